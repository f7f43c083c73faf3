"""The schemas of the recipe's sections `adapter`, `train` and `masking`."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from burnish_engine.contract.recipe.eight_bit_use import EIGHT_BITS
from burnish_engine.contract.recipe.recipe_section import Section, Step, setting, unless, when

AUTO, ALL_LINEAR = "auto", "all-linear"
"""Values of `adapter.targets` that are not names of layers."""

Optimizer = Literal["adamw", "adamw8bit", "paged_adamw8bit", "muon", "lion", "adafactor", "schedule_free"]
Masking = Literal["off", "magma", "skip_update"]
_HAS_ADAPTER = unless("adapter.method", "full", why="Does not apply: every weight is trained, without an adapter.")
_IS_NEW = when("start", "", why="Comes from the adapter that training continues from.", replaces=True)
_NEW_ADAPTER = (_HAS_ADAPTER, _IS_NEW)
_IS_MAGMA, _IS_MASKED = when("kind", "magma"), unless("kind", "off")
_HAS_ROWS = unless("preference.objective", "grpo")  # else [reinforce] says how many replies make a step
_ADAM = ("adamw", "adamw8bit", "paged_adamw8bit", "muon", "schedule_free")


class AdapterSection(Section):
    """The low-rank adapter that is trained, or the whole model."""

    method: Literal["lora", "rslora", "dora", "full"] = setting(
        "lora",
        "lora: scale alpha / rank. rslora: scale alpha / sqrt(rank), for high ranks. dora: magnitude and direction. "
        "full: every weight of the model is trained, without an adapter, in 10 to 18 bytes a weight and with a "
        "learning rate some ten times lower.",
        label="Training method", used_if=_IS_NEW,
    )  # fmt: skip
    rank: int = setting(
        16, "Rank of the update.", label="Rank (size of the adapter)", unit="dimensions",
        more="A larger adapter than suggested: room for more, takes more memory, overfits sooner.",
        less="A smaller adapter than suggested: takes less memory, and has less room to learn.",
        used_if=_NEW_ADAPTER, page="first", order=4, step=Step(doubles=True), ge=1, le=256,
    )  # fmt: skip
    alpha: float = setting(
        32.0, "Scale of the update; the update is multiplied by alpha / rank.", label="Alpha (scale of the adapter)",
        used_if=_NEW_ADAPTER, step=Step(doubles=True), gt=0.0, le=4096.0,
    )  # fmt: skip
    dropout: float = setting(
        0.0, "Dropout on the adapter's input.", label="Dropout (inputs left out)", unit="share", used_if=_NEW_ADAPTER,
        ge=0.0, lt=1.0,
    )  # fmt: skip
    targets: list[str] = setting(
        lambda: [AUTO],
        '["auto"]: an adapter on every matrix of the decoder layers, fused experts too, but not on routers. '
        '["all-linear"]: on every linear layer but the head. Names, such as ["q_proj", "v_proj"]: on exactly these. A '
        "recipe that misses matrices without saying so by name is refused.",
        label="Target modules (with adapters)", used_if=_NEW_ADAPTER, min_length=1,
    )  # fmt: skip
    expert_rank: int = setting(
        0,
        "Rank of each expert's update in a mixture of experts, which is multiplied by alpha / expert_rank. 0: rank "
        "divided by the experts of a token, so that a token passes as many adapter weights as in a dense model.",
        label="Rank of each expert (mixtures)", unit="dimensions", zero="auto", used_if=_NEW_ADAPTER,
        step=Step(1, doubles=True), ge=0, le=256,
    )  # fmt: skip
    start: str = setting(
        "",
        "Continue from this adapter: the folder of a run that has ended, or of an adapter in PEFT's format; relative "
        "paths are taken from the recipe's folder. Method, rank, alpha, dropout and targets come from it. With a "
        "preference objective, it is the reference. Empty: a new adapter.",
        label="Adapter to continue from", page="model",
    )  # fmt: skip


class TrainSection(Section):
    """The training: length, batches, learning rate, optimizer, precision."""

    epochs: float = setting(
        2.0, "Passes over the training rows.", label="Epochs (times through the data)", unit="epochs",
        more="More often than suggested: the last times may memorize the rows instead of learning from them.",
        less="Less often than suggested: sooner done, and may leave something unlearned.",
        page="first", order=1, gt=0.0, le=1000.0,
    )  # fmt: skip
    max_steps: int = setting(
        0, "Stop after this many optimizer steps. 0: no limit.", label="Stop after (optimizer steps)", unit="steps",
        zero="off",
        note={0: "Trains all epochs. A number ends the run sooner."},
        step=Step(10), ge=0, le=10**9,
    )  # fmt: skip
    max_tokens: int = setting(
        0, "Stop before training on more tokens than this. 0: no limit.", label="Stop after (tokens)", unit="tokens",
        zero="off", used_if=_HAS_ROWS, step=Step(100_000), ge=0, le=10**15,
    )  # fmt: skip
    micro_batch_tokens: int = setting(
        2048,
        "Token budget of one forward and backward pass; rows are packed into it. At least data.max_length, and twice "
        "that where pairs are learned.",
        label="Micro-batch (tokens per pass)", unit="tokens",
        more="Larger passes take more memory.",
        less="Smaller passes take less memory and are slower.",
        page="first", order=7, step=Step(doubles=True), ge=16, le=2**24,
    )  # fmt: skip
    accumulation: int = setting(
        1, "Forward and backward passes per optimizer step. The loss is averaged over all of them.",
        label="Gradient accumulation (passes per step)", used_if=_HAS_ROWS, step=Step(doubles=True), ge=1, le=4096,
    )  # fmt: skip
    pack: bool = setting(
        True, "Pack several rows into one pass. Rows never see each other either way.",
        label="Packing (rows share a pass)",
    )  # fmt: skip
    learning_rate: float = setting(
        2e-4, "Peak learning rate.", label="Learning rate",
        more="{ratio} times the suggested rate: learns faster, and may become unstable.",
        less="{ratio} times lower than suggested: steadier, and learns more slowly.",
        page="first", order=3, gt=0.0, le=1.0,
    )  # fmt: skip
    schedule: Literal["cosine", "linear", "constant", "wsd"] = setting(
        "cosine",
        "Shape of the learning rate after warmup. wsd (warmup, stable, decay): constant, then falling in a straight "
        "line over the last steps.",
        label="Learning rate schedule",
    )
    warmup_share: float = setting(
        0.05, "Share of the steps with rising learning rate.", label="Warm up for (share of the steps)", unit="share",
        ge=0.0, le=0.9,
    )  # fmt: skip
    final_share: float = setting(
        0.1, "Learning rate at the end as a share of the peak.", label="Final learning rate (share of the peak)",
        unit="share", used_if=unless("schedule", "constant"), ge=0.0, le=1.0,
    )  # fmt: skip
    decay_share: float = setting(
        0.2, "Share of the steps, the last ones, with falling learning rate.",
        label="Decay over the last (share of the steps)", unit="share", used_if=when("schedule", "wsd"), gt=0.0, le=1.0,
    )  # fmt: skip
    weight_decay: float = setting(
        0.0,
        "Decoupled weight decay: in each step weights lose the learning rate times this share of themselves. Never of "
        "norms, biases and other vectors. With lion usually 3 to 10 times what AdamW has.",
        label="Weight decay", page="optimizer", order=6, ge=0.0, le=1.0,
    )  # fmt: skip
    beta1: float = setting(
        0.9,
        "AdamW: decay of the first moment. lion: weight of the running mean in the step's sign. schedule_free: share "
        "of the averaged weights in those that gradients are taken at; above 0 there.",
        label="Beta 1", used_if=when("optimizer", *_ADAM, "lion"), page="optimizer", order=3, ge=0.0, lt=1.0,
    )  # fmt: skip
    beta2: float = setting(
        0.999, "AdamW and schedule_free: decay of the second moment.", label="Beta 2",
        used_if=when("optimizer", *_ADAM), page="optimizer", order=4, ge=0.0, lt=1.0,
    )  # fmt: skip
    epsilon: float = setting(
        1e-8, "AdamW and schedule_free: added to the denominator.", label="Epsilon", used_if=when("optimizer", *_ADAM),
        page="optimizer", order=5, gt=0.0, le=1e-2,
    )  # fmt: skip
    momentum: float = setting(
        0.0, "muon: decay of its momentum. lion: decay of its running mean (its beta2). 0: as usual, 0.95 and 0.99.",
        label="Momentum", zero="auto",
        note={0.0: "auto: 0.95 with Muon, 0.99 with Lion."},
        used_if=when("optimizer", "muon", "lion"), page="optimizer", order=2, step=Step(0.9), ge=0.0, lt=1.0,
    )  # fmt: skip
    max_grad_norm: float = setting(
        1.0, "Gradients are scaled down to this global L2 norm. 0: no clipping.", label="Clip gradients at", zero="off",
        page="optimizer", order=7, ge=0.0, le=1e6,
    )  # fmt: skip
    precision: Literal["auto", "fp32", "bf16", "fp16"] = setting(
        "auto",
        "What the base model computes in. auto: bf16 where the device computes it fast, else fp32. fp16: with loss "
        "scaling. fp32 stays fp32 everywhere. What is trained is always kept in fp32: adapters, and with "
        "adapter.method = full the weights, of which the model then computes with a bf16 copy.",
        label="Precision (computes in)",
    )
    products: Literal["auto", "16", "fp8", "int8", "mxfp8"] = setting(
        "16",
        "What products with the frozen weights are computed in. 16: in `precision`. fp8, int8, mxfp8: in 8 bits, in "
        "which the weights are then kept too, unless in nf4; mixtures of experts do fp8 alone. auto: in 8 bits where "
        "a few seconds of timing on this GPU find it clearly faster.",
        label="Matrix products in 8 bits (of frozen weights)",
        choices={
            "16": "off", "fp8": "on (FP8)", "int8": "on (INT8)", "mxfp8": "on, in blocks (MXFP8)",
            "auto": "where that is faster",
        },
        note={
            "fp8": "For RTX 40, RTX 50 and H100. The loss was 0.6 % higher; INT8 costs less.",
            "int8": "Nearly as fast as FP8 on an H100; runs on RTX 30 too. On documentation, a small model's loss rose "
            "by 0.1 %.",
            "mxfp8": "For RTX 50 alone. Others measured twice FP8's speed on a GeForce; Burnish ran it on none yet.",
            "auto": "Timed for a few seconds on this GPU when the run begins.",
        },
        used_if=(unless("adapter.method", "dora", "full"), unless("engine", "plain")),
    )  # fmt: skip
    optimizer: Optimizer = setting(
        "adamw",
        "How gradients become a step. The guide's page on the engine says what each takes for a weight, where it comes "
        "from and which learning rate it wants. On the fast engine all but adamw and muon wait for the GPU at least "
        "once a step.",
        label="Optimizer",
        choices={
            "adamw": "AdamW", "adamw8bit": "AdamW in 8 bits", "paged_adamw8bit": "AdamW in 8 bits, paged",
            "muon": "Muon", "lion": "Lion", "adafactor": "Adafactor", "schedule_free": "AdamW, schedule-free",
        },
        note={
            "adamw8bit": "A quarter of AdamW's memory; waits for the GPU twice a step.",
            "paged_adamw8bit": "Optimizer state stays in system memory and is paged in: least GPU memory.",
            "muon": "Half of AdamW's memory. The same learning rates fit.",
            "lion": "Half of AdamW's memory. Wants a learning rate 3 to 10 times lower.",
            "adafactor": "Nearly no memory. Its learning rate is a share of a weight's size: usually 0.01.",
            "schedule_free": "Needs no schedule. Takes 1 to 10 times the learning rate, and more memory.",
        },
        page="optimizer", order=1,
    )  # fmt: skip
    lora_plus_ratio: float = setting(
        1.0,
        "LoRA+ (Hayou et al. 2024): learning rate of B as a multiple of A's, which is `learning_rate`; they suggest "
        "16. 1: the same for both.",
        label="LoRA+: B's rate times", used_if=unless("adapter.method", "full"), page="optimizer", order=8, gt=0.0,
        le=1024.0,
    )  # fmt: skip
    engine: Literal["auto", "fast", "plain"] = setting(
        "auto",
        "fast: Burnish's own decoder and kernels. plain: transformers and PEFT. auto: fast for the models and adapters "
        "it knows.",
        label="Engine",
    )
    recompute: bool = setting(
        False, "Recompute activations in the backward pass: slower by about a third, in a fraction of the memory.",
        label="Activation checkpointing (recompute)",
    )  # fmt: skip
    seed: int = setting(
        0, "Seed of everything random: order, adapter start, dropout.", label="Seed", ge=0, le=2**32 - 1
    )
    checkpoint_every: int = setting(
        100, "Checkpoint after this many steps. 0: not by steps.", label="Checkpoint every", unit="steps", zero="off",
        step=Step(50), ge=0, le=10**9,
    )  # fmt: skip
    checkpoint_minutes: float = setting(
        10.0, "Checkpoint also when the newest one is this old, so that a crash never costs more. 0: not by time.",
        label="Checkpoint at least every", unit="minutes", zero="off", step=Step(5.0), ge=0.0, le=1e6,
    )  # fmt: skip
    keep_checkpoints: int = setting(
        2, "How many of the newest checkpoints to keep.", label="Keep", unit="checkpoints", ge=1, le=1000
    )

    @property
    def notes(self) -> list[str]:
        """The sentence on a schedule that the optimizer replaces."""
        if self.optimizer != "schedule_free" or self.schedule == "constant":
            return []
        return [
            "The schedule-free optimizer averages its weights instead of lowering the learning rate: it is made for "
            f'train.schedule = "constant", and this run has "{self.schedule}".'
        ]

    @model_validator(mode="after")
    def _products_have_a_result(self) -> TrainSection:
        if self.products in EIGHT_BITS and self.precision == "fp32":
            raise ValueError(
                f'products = "{self.products}" gives results in 16 bits, and precision is "fp32": set products to '
                '"16", or precision to "bf16" or "fp16"'
            )
        return self

    @model_validator(mode="after")
    def _averages_something(self) -> TrainSection:
        if self.optimizer == "schedule_free" and self.beta1 == 0.0:
            raise ValueError(
                'beta1 must be above 0 with optimizer = "schedule_free": with 0 the averaged weights cannot be found '
                "from those that are trained. Set it to 0.9"
            )
        return self


class MaskingSection(Section):
    """Experimental: matrices sit out steps by chance (Joo et al. 2026, arXiv 2602.15322)."""

    kind: Masking = setting(
        "off",
        "magma: a matrix's step is scaled by how its momentum and gradient have agreed, and half of the matrices, "
        "drawn anew for each step, do not move. skip_update: those that move go the further for it. Published for "
        "pretraining; a duel shows whether it helps here.",
        label="Masking method",
        choices={"off": "off", "magma": "Magma", "skip_update": "SkipUpdate"},
        note={
            "magma": "Experimental. In our duels it lowered the loss with cosine, and not with wsd.",
            "skip_update": "Experimental: published for pretraining. With LoRA it changed nothing we could measure.",
        },
    )
    probability: float = setting(
        0.5, "Chance of a matrix to move in a step.", label="Update probability", used_if=_IS_MASKED, ge=1e-3, le=1.0
    )
    temperature: float = setting(
        2.0, "Magma: the cosine of momentum and gradient is divided by it.", label="Temperature", used_if=_IS_MAGMA,
        ge=1e-3, le=1e3,
    )  # fmt: skip
    decay: float = setting(
        0.9, "Magma: of the running mean of the scale.", label="Decay of the scale", used_if=_IS_MAGMA, ge=0.0, le=1.0
    )
    start: float = setting(
        0.5, "Magma: the scale to begin with, which the paper does not say.", label="Scale at the start",
        used_if=_IS_MAGMA, gt=0.0, le=1.0,
    )  # fmt: skip
    momentum: Literal["before", "after"] = setting(
        "before", "Magma: the momentum before the step or after it; the paper does not say.",
        label="Momentum of the step", used_if=_IS_MAGMA,
    )  # fmt: skip
    share: Literal["matrix", "pair"] = setting(
        "matrix", "What sits out together: every matrix for itself, or the two of a module's adapter.",
        label="Masked together", used_if=_IS_MASKED,
    )  # fmt: skip
    blocks: Literal["layers", "all"] = setting(
        "layers",
        "What may sit out. layers: matrices of attention and feed-forward, as in the paper, and their adapters; "
        "routers, convolutions, embeddings, head and vectors always move. all: every tensor.",
        label="Matrices that may be masked",
        choices={"layers": "attention and feed-forward", "all": "everything"},
        used_if=_IS_MASKED,
    )
    rate: float = setting(
        1.0, "Times the learning rate: in the mean, matrices move 0.25 to 0.31 of the way with magma.",
        label="Learning rate factor", used_if=_IS_MASKED, gt=0.0, le=100.0,
    )  # fmt: skip

    @property
    def is_active(self) -> bool:
        """Whether masking changes any step; otherwise the optimizer alone takes the steps."""
        always = self.probability == self.rate == 1.0
        wholly = self.kind == "skip_update" or self.start == self.decay == 1.0
        return self.kind != "off" and not (always and wholly)
