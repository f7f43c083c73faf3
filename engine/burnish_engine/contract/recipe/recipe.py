"""The recipe: one TOML document that describes a run. Its schema is the only place where its fields are defined.

The command line's messages, the reference page, the JSON schema for editors and the app's form all derive from here.
`recipe_section` says what a field's declaration holds. The longer sections are defined in files beside this.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, field_validator, model_validator

from burnish_engine.contract.recipe.eight_bit_use import EIGHT_BITS
from burnish_engine.contract.recipe.memory_plan import MemorySection
from burnish_engine.contract.recipe.place import HERE, RunPlace, parse_place
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_evaluation import EvaluationSection, GuardSection
from burnish_engine.contract.recipe.recipe_export import ExportSection, TargetSection
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.recipe.recipe_reinforce import MOST_REWARDS, ReinforceSection, RewardSection
from burnish_engine.contract.recipe.recipe_section import Section, SettingInfo, setting, setting_info, unless, when
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.contract.recipe.recipe_train import AdapterSection, MaskingSection, TrainSection

RECIPE_VERSION = 1


class ModelSection(Section):
    """The model to start from."""

    path: str = setting(
        "embedded",
        'The base model: "embedded" for the SmolLM2-135M-Instruct that comes with Burnish; a folder with config.json, '
        "safetensors weights and a tokenizer, or a .gguf file (relative paths: from the recipe's folder); or "
        'the name of a model fetched with `burnish models fetch`, such as "Qwen/Qwen3-0.6B".',
        page="model", min_length=1,
    )  # fmt: skip
    quantize: Literal["none", "nf4", "fp8"] = setting(
        "none",
        "nf4: frozen base weights in 4 bits while training (QLoRA, Dettmers et al. 2023): about a quarter of the "
        "memory for a few percent of the speed. fp8: in 8 bits (E4M3): half of the memory, and a third of the error of "
        "nf4; fast engine, dense models. Neither with adapter.method = full.",
        label="Weights while training (LoRA or QLoRA)",
        choices={"none": "as they are (LoRA)", "nf4": "in 4 bits (QLoRA)", "fp8": "in 8 bits (FP8)"},
        note={"fp8": "Half of the memory of 16 bits, a third of NF4's error. Dense models only."},
        page="first", order=5,
    )  # fmt: skip


MOST_GPUS = 64
"""Most GPUs that share a run."""


class DevicesSection(Section):
    """The devices to train on."""

    kind: Literal["auto", "cuda", "cpu"] = setting(
        "auto",
        "auto: the GPU where there is one. A GPU that is present but cannot be used is an error, not a silent CPU run.",
        label="Train on",
    )
    gpus: list[int] = setting(
        lambda: [0], "Indices of the GPUs to use, as `burnish doctor` lists them.", label="GPUs", max_length=MOST_GPUS,
    )  # fmt: skip
    strategy: Literal["single", "data_parallel", "sharded"] = setting(
        "single",
        "How several GPUs share the work. data_parallel: each holds the model and takes its part of a step's passes, "
        "so train.accumulation should be a multiple of their number. sharded: each also holds only a part of a whole "
        "model's weights, gradients and moments. With kind = cpu, processes.",
        label="Several GPUs",
        choices={
            "single": "one trains alone",
            "data_parallel": "share every step",
            "sharded": "share every step and the weights",
        },
    )
    exact: bool = setting(
        False,
        "data_parallel: add up gradients in the order of passes, so that any number of GPUs trains the same bits. "
        "Takes more memory and exchanges each pass.",
        label="Same bits on any number",
    )
    exchange: Literal["auto", "whole", "sliced", "bf16"] = setting(
        "auto",
        "data_parallel: how gradients are added up. whole: after the backward pass. sliced: in slices, the upper "
        "layers' while the lower ones still compute. bf16: rounded, half the bytes. auto: by what one exchange takes "
        "as the run starts.",
        label="Exchange of gradients",
        choices={
            "auto": "as the links ask for",
            "whole": "after the backward pass",
            "sliced": "in slices, during it",
            "bf16": "rounded to 16 bits",
        },
        used_if=when("strategy", "data_parallel"),
    )
    threads: int = setting(
        0, "CPU threads for torch. 0: one per physical core, or fewer where OMP_NUM_THREADS says so.",
        label="CPU threads", unit="threads", zero="auto", ge=0, le=1024,
    )  # fmt: skip
    where: str = setting(
        HERE,
        "Machine to train on. here: this one. ssh:HOST: a machine that your ssh reaches. slurm, or slurm:HOST: a "
        "cluster, from this machine or from its login node. sky, or sky:GPU: SkyPilot. hf, or hf:FLAVOR: Hugging Face "
        "Jobs. The run is followed here, and its result is brought back.",
        label="Where to run",
        page="first", order=9, max_length=300,
    )  # fmt: skip
    timeout_hours: float = setting(
        0.0,
        "On another machine: longest time that the run may take there; it saves before. 0: twice the predicted time "
        "and half an hour, or a day where nothing is predicted.",
        label="Longest time there", unit="hours", zero="auto", used_if=unless("where", HERE), ge=0.0, le=10_000.0,
    )  # fmt: skip

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

    version: Literal[1] = setting(RECIPE_VERSION, "Version of the recipe format.", page="none")
    name: str = setting(
        "", "What to call the run. Empty: named by model and time.", label="Name of the run", zero="automatic",
        page="first", max_length=100,
    )  # fmt: skip
    model: ModelSection = setting(ModelSection, "Which model to start from.", label="Base model")
    data: DataSection = setting(DataSection, "What to learn from.", label="Reading the data")
    adapter: AdapterSection = setting(
        AdapterSection, "The low-rank adapter that is trained, or the whole model.", label="Adapter (what is trained)"
    )
    train: TrainSection = setting(TrainSection, "How to train.", label="Training")
    preference: PreferenceSection = setting(
        PreferenceSection, "Whether to learn from pairs of replies, and how.", label="Learning from preferences"
    )
    reinforce: ReinforceSection = setting(
        ReinforceSection, "How to learn from rewards.", label="Reinforcement (learning from rewards)"
    )
    reward: list[RewardSection] = setting(
        list, "Rewards of replies, each a table `[[reward]]`. Without one, the score of the task is the reward.",
        page="none", max_length=MOST_REWARDS,
    )  # fmt: skip
    memory: MemorySection = setting(MemorySection, "How the fast engine uses the device's memory.", label="Memory")
    masking: MaskingSection = setting(
        MaskingSection, "Experimental: matrices that sit out steps.", label="Experimental: masked updates"
    )
    evaluation: EvaluationSection = setting(
        EvaluationSection, "How to watch the run on held-out rows.", label="Evaluation and early stopping"
    )
    task: TaskSection = setting(TaskSection, "How to score replies to held-out rows.", label="Score of the task")
    guard: GuardSection = setting(GuardSection, "Is it really training?", label="Is it really training?")
    export: ExportSection = setting(ExportSection, "What to make of the trained model.", label="Export")
    target: TargetSection = setting(TargetSection, "Where the result shall run.", label="On the target")
    devices: DevicesSection = setting(DevicesSection, "What to train on.", label="Devices")

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
                f'adapter.start = "{self.adapter.start}" is an adapter to continue from, and adapter.method = "full" '
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
    def _replay_can_be_mixed_in(self) -> Recipe:
        if not self.data.replay_share:
            return self
        if self.preference.objective != "sft":
            raise ValueError(
                f"data.replay_share mixes in whole texts, and preference.objective = "
                f'"{self.preference.objective}" learns from other rows: set it to 0, or the objective to "sft"'
            )
        if self.devices.shares:
            raise ValueError("data.replay_share is not made on several GPUs yet: set it to 0, or train on one GPU")
        return self

    @model_validator(mode="after")
    def _rewards_can_be_learned(self) -> Recipe:
        if not self.preference.learns_rewards:
            if self.reward:
                raise ValueError(
                    f"has {len(self.reward)} [[reward]] tables, and preference.objective = "
                    f'"{self.preference.objective}" learns from none: set it to "grpo", or remove them'
                )
            return self
        names = [reward.title for reward in self.rewards]
        if len(set(names)) < len(names):
            raise ValueError(f"has rewards of the same name ({', '.join(names)}): give each reward.name of its own")
        for problem in _reinforce_problems(self):
            raise ValueError(f'preference.objective = "grpo" {problem}')
        return self

    @property
    def rewards(self) -> list[RewardSection]:
        """Rewards of replies; without any in the recipe, the score of the task."""
        return self.reward or [RewardSection()]

    @model_validator(mode="after")
    def _row_fits_micro_batch(self) -> Recipe:
        if self.data.max_length > self.train.micro_batch_tokens:
            raise ValueError(
                f"data.max_length ({self.data.max_length}) must not be above train.micro_batch_tokens "
                f"({self.train.micro_batch_tokens}): a row has to fit into one pass"
            )
        return self


def _reinforce_problems(recipe: Recipe) -> Iterator[str]:
    """Yield why a recipe cannot learn from rewards, each as the rest of a sentence that says what to do."""
    reinforce, train = recipe.reinforce, recipe.train
    if not recipe.task.is_active:
        yield (
            "needs the score of held-out rows, which shows whether rewards are earned or tricked: set task.metric, "
            'such as "number" or "exact_match"'
        )
    if recipe.data.learn == "everything":
        yield 'needs to know where a reply begins: set data.learn to "responses" or "last"'
    if reinforce.max_tokens >= train.micro_batch_tokens:
        yield (
            f"writes replies of up to reinforce.max_tokens ({reinforce.max_tokens}), which with a prompt have to fit "
            f"into train.micro_batch_tokens ({train.micro_batch_tokens}): raise that, or lower max_tokens"
        )
    if recipe.adapter.dropout:
        yield (
            "compares probabilities of the same replies, which dropout would change at random: set adapter.dropout to 0"
        )
    if reinforce.kl_weight and recipe.adapter.method == "full":
        yield (
            'with reinforce.kl_weight compares with the model without its adapter, and adapter.method = "full" has '
            'none: set kl_weight to 0, or the method to "lora"'
        )
    if recipe.devices.shares:
        yield 'trains on one device; several GPUs cannot share it yet: set devices.strategy to "single"'
    if recipe.evaluation.patience:
        yield "has no early stopping yet, as its held-out loss is not what it learns: set evaluation.patience to 0"
    if train.optimizer == "schedule_free":
        yield (
            'writes replies with the weights that it trains, and "schedule_free" evaluates others: choose another '
            "train.optimizer"
        )
    files = [reward.kind for reward in recipe.reward if reward.kind in ("python", "judge")]
    if files and recipe.devices.where != HERE:
        yield (
            f'cannot send the files of a reward of kind "{files[0]}" to another machine yet: train here (devices.where '
            '= "here"), or use other rewards'
        )


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


def tables() -> dict[str, type[Section]]:
    """Map the name of each array of tables to the schema of one, in the order of the document."""
    return {"reward": RewardSection}


def setting_of(key: str) -> SettingInfo:
    """Return what is declared of a setting, by its dotted key; nothing where no recipe has it."""
    section, _, name = key.rpartition(".")
    model = sections().get(section) if section else Recipe
    field = model.model_fields.get(name) if model else None
    return setting_info(field) if field else SettingInfo()


def is_changed(key: str, values: Mapping[str, Any]) -> bool:
    """Whether a setting of a section has another value than its default.

    Args:
        key: dotted key.
        values: recipe as nested tables; not necessarily valid.
    """
    section, _, name = key.partition(".")
    return bool(values[section][name] != sections()[section].model_fields[name].get_default(call_default_factory=True))


def _unused_settings(values: Mapping[str, Any], *names: str) -> dict[str, list[str]]:
    """Map each setting that leaves changed settings without effect to their keys."""
    known = sections()
    found: dict[str, list[str]] = {}
    for section in names or known:
        for name, field in known[section].model_fields.items():
            key, missing = f"{section}.{name}", setting_info(field).missing(section, values)
            if missing and not missing.replaces and is_changed(key, values):
                found.setdefault(missing.key_in(section), []).append(key)
    return found


def _unused_note(cause: str, keys: Sequence[str], values: Mapping[str, Any]) -> str:
    """Write that settings have no effect while another one is as it is."""
    section, _, name = cause.partition(".")
    named = f"{', '.join(keys[:-1])} and {keys[-1]} do" if len(keys) > 1 else f"{keys[0]} does"
    return f"With {cause} = {json.dumps(values[section][name], ensure_ascii=False)}, {named} not apply."


def setting_notes(recipe: Recipe, *names: str) -> list[str]:
    """List, in sentences, the changed settings that have no effect, and values that do not go well together.

    Args:
        recipe: the recipe.
        names: sections to look at; none: all.
    """
    values = recipe.model_dump()
    unused = [_unused_note(cause, keys, values) for cause, keys in _unused_settings(values, *names).items()]
    return unused + [note for name in names or sections() for note in getattr(recipe, name).notes]
