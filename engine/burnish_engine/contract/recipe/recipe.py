"""The recipe: one TOML document that describes a run. Its schema is the only place where its fields are defined.

The command line's messages, the reference page, the JSON schema for editors and the app's form all derive from here.
Every field has help; fields with a physical meaning have a unit. The longer sections are defined in files beside this.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, field_validator, model_validator

from burnish_engine.contract.recipe.eight_bit_use import EIGHT_BITS
from burnish_engine.contract.recipe.memory_plan import AUTO, parse_save_levels, parse_weight_places
from burnish_engine.contract.recipe.place import HERE, RunPlace, parse_place
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_export import ExportSection, TargetSection
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.recipe.recipe_section import Section, setting
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.contract.recipe.recipe_train import AdapterSection, MaskingSection, TrainSection

RECIPE_VERSION = 1


class ModelSection(Section):
    """The model to start from."""

    path: str = setting(
        "embedded",
        'The base model: "embedded" for the SmolLM2-135M-Instruct that comes with Burnish; a folder with config.json, '
        "safetensors weights and a tokenizer (relative paths are taken from the recipe's folder); or the name of a "
        'model fetched with `burnish models fetch`, such as "Qwen/Qwen3-0.6B".',
        min_length=1,
    )
    quantize: Literal["none", "nf4", "fp8"] = setting(
        "none",
        "nf4: keep the frozen base weights in 4 bits while training (QLoRA, Dettmers et al. 2023): about a quarter of "
        "the memory for a few percent of the speed. fp8: in 8 bits (E4M3) with a scale for each output: half of the "
        "memory, and a third of the error of nf4; fast engine, dense models. Neither with adapter.method = full.",
    )


class MemorySection(Section):
    """The fast engine's use of the device's memory."""

    layers: str = setting(
        AUTO,
        "What layers keep for the backward pass. auto: the fastest mix that fits. Otherwise levels from the first "
        'layer on, such as "attention:12,narrow:8,products". From fastest to smallest: all; rotated; products (outputs '
        "of matrix products); offloaded (the widest of them in host memory); narrow (without the widest); attention "
        "(its output and the layer's input); host (these in host memory); input (the layer's input alone, there).",
        min_length=1,
    )
    weights: str = setting(
        AUTO,
        "Where layers keep their frozen weights. auto: as the plan decides, on the card where there is room. Otherwise "
        'places from the first layer on, such as "card:8,host", or "card+host:32" by turns. card: on the GPU; host: in '
        "system memory, from where they are copied to the GPU while other layers compute; ranks: shared out over the "
        "GPUs of the data_parallel strategy, which read them from each other meanwhile (one GPU alone: as card).",
        min_length=1,
    )
    budget_gib: float = setting(
        0.0,
        "Most memory that this run may take on the device. 0: what is free, less a margin.",
        unit="GiB",
        ge=0.0,
        le=16384.0,
    )
    mlp_rows: int = setting(
        0,
        "Tokens that pass the feed-forward at once, 32 or more. 0: as the plan decides.",
        unit="tokens",
        ge=0,
        le=2**24,
    )
    head_rows: int = setting(
        0,
        "Learned tokens whose logits exist at once, 32 or more. 0: as the plan decides.",
        unit="tokens",
        ge=0,
        le=2**24,
    )

    @property
    def pins(self) -> list[str]:
        """The pinned parts of the memory plan, each as its setting and the value that would unpin it."""
        found = [f'memory.{name} = "{AUTO}"' for name in ("layers", "weights") if getattr(self, name) != AUTO]
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
            parse_save_levels(text)
        return text

    @field_validator("weights")
    @classmethod
    def _known_places(cls, text: str) -> str:
        if text != AUTO:
            parse_weight_places(text)
        return text


class EvaluationSection(Section):
    """Evaluation of the run on held-out rows."""

    every: int = setting(
        0, "Evaluate after this many steps. 0: before the first step and after the last.", unit="steps", ge=0, le=10**9
    )
    max_rows: int = setting(200, "Most held-out rows to use. 0: all.", unit="rows", ge=0, le=10**9)
    prompts: list[str] = setting(list, "Fixed prompts answered at each evaluation, to read how the model changes.")
    general_text: bool = setting(
        True,
        "Measure what the model forgets: its loss on a general text of about 2,000 tokens that comes with Burnish, "
        "before the first step and at the end (with `patience`, at each evaluation).",
    )
    sample_tokens: int = setting(120, "Longest reply to a fixed prompt.", unit="tokens", ge=1, le=8192)
    patience: int = setting(
        0,
        "Early stopping: end after this many evaluations in a row without a better held-out loss. The adapter of the "
        "best evaluation is kept. 0: train all steps and keep the last one. Needs `every`.",
        unit="evaluations",
        ge=0,
        le=10_000,
    )
    min_improvement: float = setting(
        0.0, "Early stopping: a loss is better only if it is lower by more than this.", unit="nats", ge=0.0, le=100.0
    )

    @model_validator(mode="after")
    def _patience_has_evaluations(self) -> EvaluationSection:
        if self.patience and not self.every:
            raise ValueError(
                f"patience ({self.patience}) counts evaluations, and every = 0 makes none on the way: set every, "
                "such as every = 50"
            )
        return self


class GuardSection(Section):
    """The guard against runs that do not really train, and what it does about them."""

    action: Literal["stop", "warn", "off"] = setting(
        "stop",
        "At a sign that the run does not train what it should (no gradient, labels shifted, an adapter without effect "
        "and the like). stop: end with exit code 13. warn: say so and go on. off: do not look.",
    )
    probes: bool = setting(
        True,
        "Also measure on a few rows: before training, after warmup and at the end. Together about as long as three "
        "steps of some hundred tokens, and reading all weights three times.",
    )
    troubles: int = setting(
        3,
        "This many skipped or spiking steps within `window` steps are trouble: the run goes back to its last good "
        "checkpoint and on at half the learning rate, once; the next time it ends with exit code 13.",
        unit="steps",
        ge=1,
        le=1000,
    )
    window: int = setting(20, "Steps in which `troubles` are counted.", unit="steps", ge=1, le=10_000)
    rollback: bool = setting(True, "false: trouble ends the run at once.")


MOST_GPUS = 64
"""Most GPUs that share a run."""


class DevicesSection(Section):
    """The devices to train on."""

    kind: Literal["auto", "cuda", "cpu"] = setting(
        "auto",
        "auto: the GPU where there is one. A GPU that is present but cannot be used is an error, not a silent CPU run.",
    )
    gpus: list[int] = setting(
        lambda: [0], "Indices of the GPUs to use, as `burnish doctor` lists them.", max_length=MOST_GPUS
    )
    strategy: Literal["single", "data_parallel", "sharded"] = setting(
        "single",
        "How several GPUs share the work. data_parallel: each holds the model and takes its part of a step's passes, "
        "so train.accumulation should be a multiple of their number. sharded: so do they, and each holds a part of a "
        "whole model's weights, gradients and moments. With kind = cpu, as many processes share it.",
    )
    exact: bool = setting(
        False,
        "data_parallel: add up gradients in the order of passes, so that any number of GPUs trains the same bits. "
        "Takes more memory and exchanges each pass.",
    )
    exchange: Literal["auto", "whole", "sliced", "bf16"] = setting(
        "auto",
        "data_parallel: how gradients are added up. whole: after the backward pass. sliced: in slices, the upper "
        "layers' while the lower ones still compute. bf16: rounded, half the bytes; the rest is added in the next "
        "step. auto: as the links between the GPUs ask for, by what one exchange takes as the run starts.",
    )
    threads: int = setting(
        0,
        "CPU threads for torch. 0: one per physical core, or fewer where OMP_NUM_THREADS says so.",
        unit="threads",
        ge=0,
        le=1024,
    )
    where: str = setting(
        HERE,
        "Machine to train on. here: this one. ssh:HOST: a machine that your ssh reaches. slurm, or slurm:HOST: a "
        "cluster, from this machine or from its login node. sky, or sky:GPU: SkyPilot. hf, or hf:FLAVOR: Hugging Face "
        "Jobs. The run is followed here, and its result is brought back.",
        max_length=300,
    )
    timeout_hours: float = setting(
        0.0,
        "On another machine: longest time that the run may take there; it saves before. 0: twice the predicted time "
        "and half an hour, or a day where nothing is predicted.",
        unit="hours",
        ge=0.0,
        le=10_000.0,
    )

    @property
    def place(self) -> RunPlace:
        """The machine to train on."""
        return parse_place(self.where)

    @field_validator("where")
    @classmethod
    def _known_place(cls, text: str) -> str:
        parse_place(text)
        return text

    @property
    def shares(self) -> bool:
        """Whether the passes of a step are made to be shared out, by however many GPUs."""
        return self.strategy != "single"

    def first_gpus(self, count: int) -> list[int]:
        """Return so many GPUs: the first that the recipe names, or of the machine where it names fewer."""
        return self.gpus[:count] if count <= len(self.gpus) else list(range(count))

    @model_validator(mode="after")
    def _known_gpus(self) -> DevicesSection:
        if self.shares and (not self.gpus or min(self.gpus) < 0 or len(set(self.gpus)) < len(self.gpus)):
            raise ValueError(
                f"must name each GPU once for the {self.strategy} strategy, such as [0, 1], not {self.gpus}"
            )
        if self.strategy == "sharded" and (self.exact or self.exchange != "auto"):
            raise ValueError("cannot be exact or have another exchange where sharded: torch adds up gradients there")
        if self.exact and self.exchange == "bf16":
            raise ValueError("cannot add up in the order of passes (exact) what is rounded (exchange = bf16)")
        if not self.shares and (len(self.gpus) != 1 or self.gpus[0] < 0):
            raise ValueError(f"must name exactly one GPU for the single strategy, such as [0], not {self.gpus}")
        return self


class Recipe(Section):
    """A whole run: model, data, adapter, training, memory, masking, preference, evaluation, task, guard and more."""

    version: Literal[1] = setting(RECIPE_VERSION, "Version of the recipe format.")
    name: str = setting("", "What to call the run. Empty: named by model and time.", max_length=100)
    model: ModelSection = setting(ModelSection, "Which model to start from.")
    data: DataSection = setting(DataSection, "What to learn from.")
    adapter: AdapterSection = setting(AdapterSection, "The low-rank adapter that is trained, or the whole model.")
    train: TrainSection = setting(TrainSection, "How to train.")
    preference: PreferenceSection = setting(PreferenceSection, "Whether to learn from pairs of replies, and how.")
    memory: MemorySection = setting(MemorySection, "How the fast engine uses the device's memory.")
    masking: MaskingSection = setting(MaskingSection, "Experimental: matrices that sit out steps.")
    evaluation: EvaluationSection = setting(EvaluationSection, "How to watch the run on held-out rows.")
    task: TaskSection = setting(TaskSection, "How to score replies to held-out rows.")
    guard: GuardSection = setting(GuardSection, "Is it really training?")
    export: ExportSection = setting(ExportSection, "What to make of the trained model.")
    target: TargetSection = setting(TargetSection, "Where the result shall run.")
    devices: DevicesSection = setting(DevicesSection, "What to train on.")

    @model_validator(mode="after")
    def _weights_can_be_trained(self) -> Recipe:
        if self.adapter.method == "full" and self.model.quantize != "none":
            raise ValueError(
                f'adapter.method = "full" trains every weight, which cannot be done with model.quantize = '
                f'"{self.model.quantize}": set that to "none", or adapter.method to "lora"'
            )
        return self

    @model_validator(mode="after")
    def _products_are_of_frozen_weights(self) -> Recipe:
        products, method = self.train.products, self.adapter.method
        if products in EIGHT_BITS and method in ("dora", "full"):
            why = "trains every weight, and none is frozen" if method == "full" else "measures the weights in 16 bits"
            raise ValueError(
                f'train.products = "{products}" multiplies frozen weights in 8 bits, and adapter.method = "{method}" '
                f'{why}: set products to "16", or the method to "lora"'
            )
        if products in ("int8", "mxfp8") and self.model.quantize == "fp8":
            raise ValueError(
                f'train.products = "{products}" would round weights in FP8 once more: set model.quantize to "none" '
                f'(they are then kept in {products.upper()}) or "nf4", or products to "fp8"'
            )
        return self

    @model_validator(mode="after")
    def _has_an_adapter_to_start(self) -> Recipe:
        if self.adapter.start and self.adapter.method == "full":
            raise ValueError(
                f'adapter.start = "{self.adapter.start}" is an adapter to go on from, and adapter.method = "full" '
                'trains every weight instead: set adapter.method to "lora", or adapter.start to ""'
            )
        return self

    @model_validator(mode="after")
    def _has_two_rates(self) -> Recipe:
        if self.train.lora_plus_ratio != 1.0 and self.adapter.method == "full":
            raise ValueError(
                f"train.lora_plus_ratio = {self.train.lora_plus_ratio:g} is of adapters, and adapter.method = "
                '"full" has none: set it to 1, or adapter.method to "lora"'
            )
        return self

    @model_validator(mode="after")
    def _preference_can_be_learned(self) -> Recipe:
        objective = self.preference.objective
        if not self.preference.is_active:
            return self
        labels = self.preference.learns_labels
        what, shape = ("replies labeled good or bad", "kto") if labels else ("pairs of replies", "preference")
        if self.data.shape not in ("auto", shape):
            raise ValueError(
                f'preference.objective = "{objective}" learns from {what}, which data.shape = "{self.data.shape}" has '
                f'not: set that to "auto" or "{shape}", or the objective to "sft"'
            )
        if labels and self.task.is_active and self.task.compares:
            raise ValueError(
                f'task.metric = "{self.task.metric}" compares with the rows\' own replies, which are good and bad ones '
                'for preference.objective = "kto": set it to "json", or to "none"'
            )
        if self.preference.needs_reference and self.adapter.method == "full":
            raise ValueError(
                f'preference.objective = "{objective}" compares with the model without its adapter, and adapter.method '
                '= "full" has none: set that to "lora", or the objective to "orpo" or "simpo"'
            )
        if self.preference.learns_pairs and 2 * self.data.max_length > self.train.micro_batch_tokens:
            raise ValueError(
                f"a pair of rows of data.max_length ({self.data.max_length}) tokens has to fit into one pass of "
                f"train.micro_batch_tokens ({self.train.micro_batch_tokens}): set that to {2 * self.data.max_length}, "
                f"or max_length to {self.train.micro_batch_tokens // 2}"
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


def why_plain(recipe: Recipe) -> str:
    """The reason why only the plain engine trains a recipe, as the first half of a sentence; else empty."""
    if recipe.adapter.method == "dora" and recipe.adapter.dropout:
        return "The fast engine does not do DoRA with dropout"
    if recipe.adapter.method == "full":
        return 'The fast engine trains adapters only, not every weight (adapter.method = "full")'
    return ""


def sections() -> dict[str, type[BaseModel]]:
    """Map each section's name to its schema, in the order of the document."""
    return {
        name: field.annotation
        for name, field in Recipe.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
