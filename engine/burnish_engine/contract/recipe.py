"""The recipe: one TOML document that describes a run. This schema is the only place where its fields are defined.

The command line's messages, the reference page, the JSON schema for editors and the app's form all derive from here.
Every field has help; fields with a physical meaning have a unit.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.fields import FieldInfo

from burnish_engine.contract.memory_plan import AUTO, parse_levels

RECIPE_VERSION = 1

GgufType = Literal[
    "F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "IQ4_NL", "IQ4_XS"
]

ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def _field(default: Any, help_text: str, *, unit: str = "", **constraints: Any) -> Any:
    """A recipe field: default, help shown to people, unit, and the range pydantic enforces."""
    extra: dict[str, Any] = {"unit": unit} if unit else {}
    if callable(default):
        return Field(default_factory=default, description=help_text, json_schema_extra=extra, **constraints)
    return Field(default=default, description=help_text, json_schema_extra=extra, **constraints)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


class ModelSection(_Section):
    """Which model to start from."""

    path: str = _field(
        "embedded",
        'The base model: "embedded" for the SmolLM2-135M-Instruct that comes with Burnish; a folder with config.json, '
        "safetensors weights and a tokenizer (relative paths are taken from the recipe's folder); or the name of a "
        'model fetched with `burnish models fetch`, such as "Qwen/Qwen3-0.6B".',
        min_length=1,
    )
    quantize: Literal["none", "nf4"] = _field(
        "none",
        "nf4: keep the frozen base weights in 4 bits while training (QLoRA, Dettmers et al. 2023): about a quarter of "
        "the memory for a few percent of the speed. Fast engine only.",
    )


class DataSection(_Section):
    """What to learn from."""

    files: list[str] = _field(
        list,
        "Training files: JSONL, JSON, CSV, Parquet or TXT. Relative paths are taken from the recipe's folder.",
    )
    validation_files: list[str] = _field(
        list, "Held-out files. When empty, `validation_share` of the training rows is held out."
    )
    validation_share: float = _field(
        0.05, "Share of the training rows held out when there are no validation files.", unit="share", ge=0.0, le=0.5
    )
    shape: Literal["auto", "messages", "sharegpt", "alpaca", "prompt_completion", "text"] = _field(
        "auto", "How the columns are to be read. auto recognizes the shape from the column names and values."
    )
    learn: Literal["responses", "everything"] = _field(
        "responses", "What the loss counts: the assistant's replies with their end-of-turn token, or every token."
    )
    system_prompt: str = _field("", "System message put before conversations that have none. Empty: none is added.")
    max_length: int = _field(1024, "Longest row.", unit="tokens", ge=16, le=1_048_576)
    overlong: Literal["truncate", "drop"] = _field(
        "truncate", "What happens to rows longer than `max_length`. Either way they are counted and reported."
    )


class AdapterSection(_Section):
    """The low-rank adapter that is trained, or the whole model."""

    method: Literal["lora", "rslora", "dora", "full"] = _field(
        "lora",
        "lora: Hu et al. 2021. rslora: scale alpha / sqrt(rank), Kalajdzievski 2023. dora: magnitude and direction, "
        "Liu et al. 2024. full: no adapter; every weight of the model is trained, which takes 10 to 18 bytes a weight "
        "and a learning rate some ten times lower; rank, alpha, dropout and targets do not apply.",
    )
    rank: int = _field(16, "Rank of the update.", unit="dimensions", ge=1, le=256)
    alpha: float = _field(32.0, "Scale of the update; the update is multiplied by alpha / rank.", gt=0.0, le=4096.0)
    dropout: float = _field(0.0, "Dropout on the adapter's input.", unit="share", ge=0.0, lt=1.0)
    targets: list[str] = _field(
        lambda: list(ALL_LINEAR),
        "Names of the linear layers that get an adapter. Names a model does not have are reported; none at all is an "
        'error. ["all-linear"] takes every linear layer but the head.',
        min_length=1,
    )


class TrainSection(_Section):
    """How to train."""

    epochs: float = _field(2.0, "Passes over the training rows.", unit="epochs", gt=0.0, le=1000.0)
    max_steps: int = _field(0, "Stop after this many optimizer steps. 0: no limit.", unit="steps", ge=0)
    max_tokens: int = _field(0, "Stop before training on more tokens than this. 0: no limit.", unit="tokens", ge=0)
    micro_batch_tokens: int = _field(
        2048, "Token budget of one forward and backward pass; rows are packed into it.", unit="tokens", ge=16
    )
    accumulation: int = _field(
        1, "Forward and backward passes per optimizer step. The loss is averaged over all of them.", ge=1, le=4096
    )
    pack: bool = _field(True, "Pack several rows into one pass. Rows never see each other either way.")
    learning_rate: float = _field(2e-4, "Peak learning rate.", gt=0.0, le=1.0)
    schedule: Literal["cosine", "linear", "constant", "wsd"] = _field(
        "cosine",
        "Shape of the learning rate after warmup. wsd (warmup, stable, decay): constant, then falling in a straight "
        "line over the last steps.",
    )
    warmup_share: float = _field(0.05, "Share of the steps with rising learning rate.", unit="share", ge=0.0, le=0.9)
    final_share: float = _field(
        0.1, "Learning rate at the end as a share of the peak (cosine, linear, wsd).", unit="share", ge=0.0, le=1.0
    )
    decay_share: float = _field(
        0.2, "wsd: share of the steps, the last ones, with falling learning rate.", unit="share", gt=0.0, le=1.0
    )
    weight_decay: float = _field(0.0, "Decoupled weight decay of AdamW.", ge=0.0, le=1.0)
    beta1: float = _field(0.9, "AdamW: decay of the first moment.", ge=0.0, lt=1.0)
    beta2: float = _field(0.999, "AdamW: decay of the second moment.", ge=0.0, lt=1.0)
    epsilon: float = _field(1e-8, "AdamW: added to the denominator.", gt=0.0, le=1e-2)
    max_grad_norm: float = _field(
        1.0, "Gradients are scaled down to this global L2 norm. 0: no clipping.", ge=0.0, le=1e6
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = _field(
        "auto",
        "What the base model computes in. auto: bf16 where the device computes it fast, else fp32. fp16: with loss "
        "scaling. fp32 stays fp32 everywhere. What is trained is always kept in fp32: adapters, and with "
        "adapter.method = full the weights, of which the model then computes with a bf16 copy.",
    )
    optimizer: Literal["adamw", "adamw8bit", "paged_adamw8bit"] = _field(
        "adamw",
        "adamw: two fp32 moments, 8 bytes a trained weight. adamw8bit: moments in 8 bits, 2 bytes (bitsandbytes, "
        "Dettmers et al. 2022). paged_adamw8bit: these in host memory, brought to the GPU page by page; on a processor "
        "the same as adamw8bit. Both 8-bit ones train on the plain engine.",
    )
    engine: Literal["auto", "fast", "plain"] = _field(
        "auto",
        "fast: Burnish's own decoder and kernels. plain: transformers and PEFT. auto: fast for the models and adapters "
        "it knows.",
    )
    recompute: bool = _field(
        False, "Recompute activations in the backward pass: slower by about a third, in a fraction of the memory."
    )
    seed: int = _field(0, "Seed of everything random: order, adapter start, dropout.", ge=0, le=2**32 - 1)
    checkpoint_every: int = _field(100, "Checkpoint after this many steps. 0: only at the end.", unit="steps", ge=0)
    keep_checkpoints: int = _field(2, "How many of the newest checkpoints to keep.", unit="checkpoints", ge=1, le=1000)


class MemorySection(_Section):
    """How the fast engine uses the device's memory."""

    layers: str = _field(
        AUTO,
        "What layers keep for the backward pass. auto: the fastest mix that fits. Otherwise levels from the first "
        'layer on, such as "attention:12,narrow:8,products". From fastest to smallest: all; rotated; products (outputs '
        "of matrix products); offloaded (the widest of them in host memory); narrow (without the widest); attention "
        "(its output and the layer's input); host (these in host memory); input (the layer's input alone, there).",
        min_length=1,
    )
    budget_gib: float = _field(
        0.0,
        "Most memory that this run may take on the device. 0: what is free, less a margin.",
        unit="GiB",
        ge=0.0,
        le=16384.0,
    )
    mlp_rows: int = _field(
        0, "Tokens that pass the feed-forward at once, 32 or more. 0: as the plan decides.", unit="tokens", ge=0
    )
    head_rows: int = _field(
        0, "Learned tokens whose logits exist at once, 32 or more. 0: as the plan decides.", unit="tokens", ge=0
    )

    @property
    def pins(self) -> list[str]:
        """Parts of the plan that are not left to choose, each as the setting that would leave it."""
        found = [] if self.layers == AUTO else [f'memory.layers = "{AUTO}"']
        return found + [f"memory.{name} = 0" for name in ("mlp_rows", "head_rows") if getattr(self, name)]

    @field_validator("mlp_rows", "head_rows")
    @classmethod
    def _worth_a_product(cls, rows: int) -> int:
        if 0 < rows < 32:
            raise ValueError(f"must be 0 or at least 32, not {rows}: products of fewer rows take as long")
        return rows

    @field_validator("layers")
    @classmethod
    def _known_levels(cls, text: str) -> str:
        if text != AUTO:
            parse_levels(text)
        return text


class MaskingSection(_Section):
    """Experimental: matrices sit out steps by chance (Joo et al. 2026, arXiv 2602.15322). The fast engine only."""

    kind: Literal["off", "magma", "skip_update"] = _field(
        "off",
        "magma: what a matrix would move in a step is scaled by how its momentum and gradient have agreed, and half of "
        "the matrices, drawn anew for each step, do not move. skip_update: those that move go the further for it. "
        "Moments are updated all the same. Published for pretraining; nothing is known of fine-tuning.",
    )
    probability: float = _field(0.5, "Chance of a matrix to move in a step.", gt=0.0, le=1.0)
    temperature: float = _field(2.0, "Magma: the cosine of momentum and gradient is divided by it.", gt=0.0, le=1e3)
    decay: float = _field(0.9, "Magma: of the running mean of the scale.", ge=0.0, le=1.0)
    start: float = _field(0.5, "Magma: the scale to begin with, which the paper does not say.", gt=0.0, le=1.0)
    momentum: Literal["before", "after"] = _field(
        "before", "Magma: the momentum before the step or after it; the paper does not say."
    )
    share: Literal["matrix", "pair"] = _field(
        "matrix", "What sits out together: every matrix for itself, or the two of a module's adapter."
    )
    rate: float = _field(
        1.0, "Times the learning rate: in the mean, matrices move 0.25 to 0.31 of the way with magma.", gt=0.0, le=100.0
    )


class EvaluationSection(_Section):
    """How to watch the run on held-out rows."""

    every: int = _field(
        0, "Evaluate after this many steps. 0: before the first step and after the last.", unit="steps", ge=0
    )
    max_rows: int = _field(200, "Most held-out rows to use. 0: all.", unit="rows", ge=0)
    prompts: list[str] = _field(list, "Fixed prompts answered at each evaluation, to read how the model changes.")
    sample_tokens: int = _field(120, "Longest reply to a fixed prompt.", unit="tokens", ge=1, le=8192)


class ExportSection(_Section):
    """What to make of the trained model."""

    quants: list[GgufType] = _field(
        lambda: ["Q8_0"], "GGUF types to write. Each is verified against the trained model before it is called done."
    )


class TargetSection(_Section):
    """Where the result shall run."""

    kind: Literal["laptop", "phone", "desktop", "server"] = _field("laptop", "Kind of device.")
    ram_gib: float = _field(16.0, "Memory of that device.", unit="GiB", gt=0.0, le=16384.0)
    context: int = _field(2048, "Context the result is used with.", unit="tokens", ge=128, le=1_048_576)
    quant: GgufType | Literal["auto"] = _field(
        "auto", "Preferred GGUF type. auto: the finest that runs well on that device; see export.quants."
    )


class DevicesSection(_Section):
    """What to train on."""

    kind: Literal["auto", "cuda", "cpu"] = _field(
        "auto",
        "auto: the GPU where there is one. A GPU that is present but cannot be used is an error, not a silent CPU run.",
    )
    gpus: list[int] = _field(lambda: [0], "Indices of the GPUs to use, as `burnish doctor` lists them.", max_length=64)
    strategy: Literal["single"] = _field("single", "How several GPUs share the work. This version trains on one.")
    threads: int = _field(0, "CPU threads for torch. 0: one per physical core.", unit="threads", ge=0, le=1024)

    @model_validator(mode="after")
    def _one_gpu(self) -> DevicesSection:
        if len(self.gpus) != 1 or self.gpus[0] < 0:
            raise ValueError(f"must name exactly one GPU for the single strategy, such as [0], not {self.gpus}")
        return self


class Recipe(_Section):
    """A whole run: model, data, adapter, training, memory, masking, evaluation, export, target and devices."""

    version: Literal[1] = _field(RECIPE_VERSION, "Version of the recipe format.")
    name: str = _field("", "What to call the run. Empty: named by model and time.", max_length=100)
    model: ModelSection = _field(ModelSection, "Which model to start from.")
    data: DataSection = _field(DataSection, "What to learn from.")
    adapter: AdapterSection = _field(AdapterSection, "The low-rank adapter that is trained, or the whole model.")
    train: TrainSection = _field(TrainSection, "How to train.")
    memory: MemorySection = _field(MemorySection, "How the fast engine uses the device's memory.")
    masking: MaskingSection = _field(MaskingSection, "Experimental: matrices that sit out steps.")
    evaluation: EvaluationSection = _field(EvaluationSection, "How to watch the run on held-out rows.")
    export: ExportSection = _field(ExportSection, "What to make of the trained model.")
    target: TargetSection = _field(TargetSection, "Where the result shall run.")
    devices: DevicesSection = _field(DevicesSection, "What to train on.")

    @model_validator(mode="after")
    def _weights_can_be_trained(self) -> Recipe:
        if self.adapter.method == "full" and self.model.quantize != "none":
            raise ValueError(
                f'adapter.method = "full" trains every weight, which cannot be done with model.quantize = '
                f'"{self.model.quantize}": set that to "none", or adapter.method to "lora"'
            )
        return self

    @model_validator(mode="after")
    def _row_fits_micro_batch(self) -> Recipe:
        if self.data.max_length > self.train.micro_batch_tokens:
            raise ValueError(
                f"data.max_length ({self.data.max_length}) must not be above train.micro_batch_tokens "
                f"({self.train.micro_batch_tokens}): a row has to fit into one pass"
            )
        return self


def idle_note(adapter: AdapterSection) -> str:
    """Which settings were changed that training every weight has no use for, as a sentence; else empty."""
    if adapter.method != "full":
        return ""
    usual = AdapterSection()
    changed = [
        f"adapter.{name}"
        for name in ("rank", "alpha", "dropout", "targets")
        if getattr(adapter, name) != getattr(usual, name)
    ]
    if not changed:
        return ""
    named = f"{', '.join(changed[:-1])} and {changed[-1]} do" if len(changed) > 1 else f"{changed[0]} does"
    return f'With adapter.method = "full" every weight is trained: {named} not apply.'


def why_plain(recipe: Recipe) -> str:
    """Why only the plain engine trains what the recipe asks for, as the first half of a sentence; else empty."""
    if recipe.adapter.method == "dora":
        return "The fast engine does not do DoRA"
    if recipe.adapter.method == "full":
        return 'The fast engine trains adapters only, not every weight (adapter.method = "full")'
    if recipe.train.optimizer != "adamw":
        return f'The fast engine does not do train.optimizer = "{recipe.train.optimizer}"'
    return ""


def sections() -> dict[str, type[BaseModel]]:
    """Section name to its schema, in the order of the document."""
    return {
        name: field.annotation
        for name, field in Recipe.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


def field_unit(field: FieldInfo) -> str:
    """The field's unit, or an empty string."""
    extra = field.json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""
