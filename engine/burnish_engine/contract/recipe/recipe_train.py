"""The schemas of the recipe's sections `adapter`, `train` and `masking`."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from burnish_engine.contract.recipe.eight_bit_use import EIGHT_BITS
from burnish_engine.contract.recipe.recipe_section import Section, setting

AUTO, ALL_LINEAR = "auto", "all-linear"
"""Values of `adapter.targets` that are not names of layers."""

Optimizer = Literal["adamw", "adamw8bit", "paged_adamw8bit", "muon", "lion", "adafactor", "schedule_free"]
Masking = Literal["off", "magma", "skip_update"]
_ADAM = ("beta1", "beta2", "epsilon")
OPTIMIZER_USES: dict[Optimizer, tuple[str, ...]] = {
    "adamw": _ADAM, "adamw8bit": _ADAM, "paged_adamw8bit": _ADAM, "muon": ("momentum", *_ADAM),
    "lion": ("momentum", "beta1"), "adafactor": (), "schedule_free": _ADAM,
}  # fmt: skip
"""The optimizer settings that each optimizer uses."""


class AdapterSection(Section):
    """The low-rank adapter that is trained, or the whole model."""

    method: Literal["lora", "rslora", "dora", "full"] = setting(
        "lora",
        "lora: Hu et al. 2021. rslora: scale alpha / sqrt(rank), Kalajdzievski 2023. dora: magnitude and direction, "
        "Liu et al. 2024. full: no adapter; every weight of the model is trained, which takes 10 to 18 bytes a weight "
        "and a learning rate some ten times lower; rank, alpha, dropout and targets do not apply.",
    )
    rank: int = setting(16, "Rank of the update.", unit="dimensions", ge=1, le=256)
    alpha: float = setting(32.0, "Scale of the update; the update is multiplied by alpha / rank.", gt=0.0, le=4096.0)
    dropout: float = setting(0.0, "Dropout on the adapter's input.", unit="share", ge=0.0, lt=1.0)
    targets: list[str] = setting(
        lambda: [AUTO],
        '["auto"]: an adapter on every matrix of the decoder layers, fused experts too; routers stay as they are. '
        '["all-linear"]: every linear layer but the head. Names, such as ["q_proj", "v_proj"]: exactly these matrices, '
        "lm_head and embed_tokens among them, and the others stay as they are. A recipe that misses matrices without "
        "saying so by name is refused.",
        min_length=1,
    )
    expert_rank: int = setting(
        0,
        "Rank of each expert's update in a mixture of experts. 0: rank divided by the experts of a token, at least 1, "
        "so that a token passes as many adapter weights as in a dense model; the full rank on all experts can take "
        "more memory than the model. The update is multiplied by alpha / expert_rank.",
        unit="dimensions",
        ge=0,
        le=256,
    )
    start: str = setting(
        "",
        "Go on from this adapter: the folder of a run that has ended, or of an adapter in PEFT's format; relative "
        "paths are taken from the recipe's folder. Method, rank, alpha, dropout and targets come from it. With a "
        "preference objective, it is the reference. Empty: a new adapter.",
    )


class TrainSection(Section):
    """The training: length, batches, learning rate, optimizer, precision."""

    epochs: float = setting(2.0, "Passes over the training rows.", unit="epochs", gt=0.0, le=1000.0)
    max_steps: int = setting(0, "Stop after this many optimizer steps. 0: no limit.", unit="steps", ge=0, le=10**9)
    max_tokens: int = setting(
        0, "Stop before training on more tokens than this. 0: no limit.", unit="tokens", ge=0, le=10**15
    )
    micro_batch_tokens: int = setting(
        2048,
        "Token budget of one forward and backward pass; rows are packed into it. At least data.max_length, and twice "
        "that where pairs are learned.",
        unit="tokens",
        ge=16,
        le=2**24,
    )
    accumulation: int = setting(
        1, "Forward and backward passes per optimizer step. The loss is averaged over all of them.", ge=1, le=4096
    )
    pack: bool = setting(True, "Pack several rows into one pass. Rows never see each other either way.")
    learning_rate: float = setting(2e-4, "Peak learning rate.", gt=0.0, le=1.0)
    schedule: Literal["cosine", "linear", "constant", "wsd"] = setting(
        "cosine",
        "Shape of the learning rate after warmup. wsd (warmup, stable, decay): constant, then falling in a straight "
        "line over the last steps.",
    )
    warmup_share: float = setting(0.05, "Share of the steps with rising learning rate.", unit="share", ge=0.0, le=0.9)
    final_share: float = setting(
        0.1, "Learning rate at the end as a share of the peak (cosine, linear, wsd).", unit="share", ge=0.0, le=1.0
    )
    decay_share: float = setting(
        0.2, "wsd: share of the steps, the last ones, with falling learning rate.", unit="share", gt=0.0, le=1.0
    )
    weight_decay: float = setting(
        0.0,
        "Decoupled weight decay: in each step weights lose the learning rate times this share of themselves. Never of "
        "norms, biases and other vectors. With lion usually 3 to 10 times what AdamW has.",
        ge=0.0,
        le=1.0,
    )
    beta1: float = setting(
        0.9,
        "AdamW: decay of the first moment. lion: weight of the running mean in the step's sign. schedule_free: share "
        "of the averaged weights in those that gradients are taken at; above 0 there. Not for adafactor.",
        ge=0.0,
        lt=1.0,
    )
    beta2: float = setting(
        0.999, "AdamW and schedule_free: decay of the second moment. Not for lion and adafactor.", ge=0.0, lt=1.0
    )
    epsilon: float = setting(
        1e-8, "AdamW and schedule_free: added to the denominator. Not for lion and adafactor.", gt=0.0, le=1e-2
    )
    momentum: float = setting(
        0.0,
        "muon: decay of its momentum, usually 0.95. lion: decay of its running mean (its beta2), usually 0.99. 0: as "
        "usual. Not for the others.",
        ge=0.0,
        lt=1.0,
    )
    max_grad_norm: float = setting(
        1.0, "Gradients are scaled down to this global L2 norm. 0: no clipping.", ge=0.0, le=1e6
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = setting(
        "auto",
        "What the base model computes in. auto: bf16 where the device computes it fast, else fp32. fp16: with loss "
        "scaling. fp32 stays fp32 everywhere. What is trained is always kept in fp32: adapters, and with "
        "adapter.method = full the weights, of which the model then computes with a bf16 copy.",
    )
    products: Literal["auto", "16", "fp8", "int8", "mxfp8"] = setting(
        "16",
        "What products with the frozen weights are computed in. 16: in `precision`. fp8: in 8 bits (E4M3) with a scale "
        "for each token and each output, on RTX 40, RTX 50 and H100; the weights are then kept in 8 bits too, unless "
        "in nf4. int8: the same with whole numbers from -127 to 127, also on RTX 30 and A100; columns are rotated by "
        "blocks, so that numbers far above their neighbors leave these enough levels. "
        "mxfp8: E4M3 with a power of two for each 32 columns of a token and each 32 x 32 weights, on RTX 50 alone; "
        "compiled for these cards, and run on none yet. Mixtures of experts do fp8 alone. Not with adapter.method = "
        "dora or full. With any of the three, logits are products in int8; their gradient, adapters, attention and "
        "norms stay as they are. auto: int8, or fp8 where model.quantize "
        "is fp8, where a few seconds of timing on this GPU find it clearly faster.",
    )
    optimizer: Optimizer = setting(
        "adamw",
        "adamw: two fp32 moments, 8 bytes a trained weight. adamw8bit: moments in 8 bits, 2 bytes (bitsandbytes, "
        "Dettmers et al. 2022). paged_adamw8bit: these in host memory, brought to the GPU page by page; on a processor "
        "the same as adamw8bit. muon: a momentum of each matrix, orthogonalized (Jordan 2024, torch), 4 bytes; scaled "
        "to AdamW's usual size (Liu et al. 2025), so learning rates as for AdamW fit, not 0.02; vectors, and in full "
        "fine-tuning embeddings and head, are AdamW's. lion: the sign of a running mean (Chen et al. 2023, "
        "lion-pytorch), 4 bytes; wants a 3 to 10 times lower learning rate. adafactor: a mean square of each row and "
        "column (Shazeer and Stern 2018, torch), nearly nothing; the learning rate is a share of a matrix's own size, "
        "usually 1e-2. schedule_free: AdamW that averages its weights (Defazio et al. 2024, schedulefree), 12 bytes; "
        'made for schedule = "constant" and 1 to 10 times the learning rate. On the fast engine all but adamw and muon '
        "wait for the GPU once a step, the 8-bit ones twice, adafactor for each matrix.",
    )
    lora_plus_ratio: float = setting(
        1.0,
        "LoRA+ (Hayou et al. 2024): learning rate of B as a multiple of A's, which is `learning_rate`; they suggest "
        "16. 1: the same for both.",
        gt=0.0,
        le=1024.0,
    )
    engine: Literal["auto", "fast", "plain"] = setting(
        "auto",
        "fast: Burnish's own decoder and kernels. plain: transformers and PEFT. auto: fast for the models and adapters "
        "it knows.",
    )
    recompute: bool = setting(
        False, "Recompute activations in the backward pass: slower by about a third, in a fraction of the memory."
    )
    seed: int = setting(0, "Seed of everything random: order, adapter start, dropout.", ge=0, le=2**32 - 1)
    checkpoint_every: int = setting(
        100, "Checkpoint after this many steps. 0: not by steps.", unit="steps", ge=0, le=10**9
    )
    checkpoint_minutes: float = setting(
        10.0,
        "Checkpoint also when the newest one is this old, so that a crash never costs more. 0: not by time.",
        unit="minutes",
        ge=0.0,
        le=1e6,
    )
    keep_checkpoints: int = setting(2, "How many of the newest checkpoints to keep.", unit="checkpoints", ge=1, le=1000)

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
        "magma: what a matrix would move in a step is scaled by how its momentum and gradient have agreed, and half of "
        "the matrices, drawn anew for each step, do not move. skip_update: those that move go the further for it. "
        "Moments are updated all the same; adafactor and schedule_free, which have no momentum, get a running mean of "
        "the gradient (0.9) for it, 4 bytes a weight. Published for pretraining; a duel shows whether it helps here.",
    )
    probability: float = setting(0.5, "Chance of a matrix to move in a step.", ge=1e-3, le=1.0)
    temperature: float = setting(2.0, "Magma: the cosine of momentum and gradient is divided by it.", ge=1e-3, le=1e3)
    decay: float = setting(0.9, "Magma: of the running mean of the scale.", ge=0.0, le=1.0)
    start: float = setting(0.5, "Magma: the scale to begin with, which the paper does not say.", gt=0.0, le=1.0)
    momentum: Literal["before", "after"] = setting(
        "before", "Magma: the momentum before the step or after it; the paper does not say."
    )
    share: Literal["matrix", "pair"] = setting(
        "matrix", "What sits out together: every matrix for itself, or the two of a module's adapter."
    )
    blocks: Literal["layers", "all"] = setting(
        "layers",
        "What may sit out. layers: matrices of attention and feed-forward, as in the paper, and their adapters; "
        "routers, convolutions, embeddings, head and vectors always move. all: every tensor.",
    )
    rate: float = setting(
        1.0, "Times the learning rate: in the mean, matrices move 0.25 to 0.31 of the way with magma.", gt=0.0, le=100.0
    )

    @property
    def is_active(self) -> bool:
        """Whether masking changes any step; otherwise the optimizer alone takes the steps."""
        always = self.probability == self.rate == 1.0
        wholly = self.kind == "skip_update" or self.start == self.decay == 1.0
        return self.kind != "off" and not (always and wholly)


def unused_settings_note(adapter: AdapterSection) -> str:
    """Name the changed adapter settings that training every weight ignores, as a sentence; else empty."""
    if adapter.method != "full":
        return ""
    usual = AdapterSection()
    changed = [
        f"adapter.{name}"
        for name in ("rank", "alpha", "dropout", "targets", "expert_rank")
        if getattr(adapter, name) != getattr(usual, name)
    ]
    if not changed:
        return ""
    named = f"{', '.join(changed[:-1])} and {changed[-1]} do" if len(changed) > 1 else f"{changed[0]} does"
    return f'With adapter.method = "full" every weight is trained: {named} not apply.'


def optimizer_notes(train: TrainSection) -> list[str]:
    """List the changed settings that the optimizer ignores, as sentences for people."""
    usual, found = TrainSection(), []
    idle = [
        f"train.{name}"
        for name in ("momentum", *_ADAM)
        if name not in OPTIMIZER_USES[train.optimizer] and getattr(train, name) != getattr(usual, name)
    ]
    if idle:
        named = f"{', '.join(idle[:-1])} and {idle[-1]} do" if len(idle) > 1 else f"{idle[0]} does"
        found.append(f'With train.optimizer = "{train.optimizer}", {named} not apply.')
    if train.optimizer == "schedule_free" and train.schedule != "constant":
        found.append(
            "The schedule-free optimizer averages its weights instead of lowering the learning rate: it is made for "
            f'train.schedule = "constant", and this run has "{train.schedule}".'
        )
    return found
