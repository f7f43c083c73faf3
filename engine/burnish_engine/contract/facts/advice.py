"""Types of advice: models, run plans and suggestions. Plain data, no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from burnish_engine.contract.facts.coverage import Coverage
from burnish_engine.contract.facts.exports import ExportChoice
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.facts.machine import LinkKind, MachineFacts, ParallelSettings
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.recipe.recipe_export import GgufType
from burnish_engine.contract.record import Facts, Record


class CatalogModel(Facts):
    """A model people fine-tune, known well enough to plan without downloading it."""

    name: str = Field(description='The name it is fetched by, such as "Qwen/Qwen3-0.6B".')
    title: str = Field(description='What to call it, such as "Qwen3 0.6B".')
    family: str = Field(description='The family people know, such as "Qwen3".')
    kind: Literal["chat", "base", "reasoning", "code"]
    parameters: int = Field(description="All weights, embeddings included once where tied.")
    spec: DecoderSpec
    license: str = Field(description="SPDX id where there is one, else the license's name.")
    license_note: str = Field(default="", description="Conditions a person should know, in a sentence.")
    gated: bool = Field(description="Whether its page asks to accept terms and sign in before download.")
    good_for: str = Field(description="What it is good for, in a sentence.")
    languages: str = ""
    released: str = Field(description="Year and month, such as 2025-04.")
    exports: bool = Field(description="Whether this version exports it to GGUF.")
    unchecked: str = Field(
        default="", description="Which of these facts no source confirmed, in a sentence; empty: all were confirmed."
    )
    download_bytes: int = Field(default=0, description="Size of its weight files.")
    merit: float = Field(
        default=1.0, description="Judgment: how good a base it is for its size, Qwen3 of the same size being 1."
    )


class MemoryPart(Facts):
    """One component of the predicted memory peak."""

    name: str
    bytes: int
    note: str = ""


class PlanBasis(Record):
    """A prediction before past runs corrected it; a run's measurements are compared with it."""

    device: str = Field(description="The device by name and size; runs on equal ones are comparable.")
    engine: Literal["fast", "plain"]
    kind: str = Field(description='What it computes in and trains, such as "bf16", "nf4 bf16" or "full bf16".')
    memory: dict[str, int] = Field(description="Components of the peak on the training device, bytes.")
    tokens_per_s: float
    times: dict[str, float] = Field(default={}, description="By `TimePart.name`: predicted time of one, seconds.")
    runs: int = Field(default=0, description="Past runs on this device that corrected the plan.")


class TimePart(Facts):
    """A part of a run's predicted time."""

    name: Literal[
        "loading",
        "replay",
        "reference",
        "steps",
        "replies",
        "checks",
        "evaluations",
        "general_text",
        "prompts",
        "task",
        "saves",
    ]
    count: int = Field(description="How many of them there are.")
    seconds: float = Field(description="Predicted time of all of them together.")
    share: float = Field(default=0.0, description="Part of the time of the whole run, 0 to 1; 0 where not told.")
    tokens: int = Field(default=0, description="Longest reply, tokens; 0: none is made.")


class SamplePlan(Facts):
    """When a run answers its fixed prompts, so that this takes little of its time."""

    prompts: int = Field(description="Prompts that are answered, the recipe's first ones.")
    tokens: int = Field(description="Longest reply, tokens.")
    every: int = Field(default=0, description="Steps from one round of replies to the next; 0: none on the way.")
    before: bool = Field(default=True, description="Whether there is a round before the first step.")

    def is_due(self, step: int, steps: int) -> bool:
        """Return whether there is a round after a step.

        Args:
            step: optimizer steps done.
            steps: optimizer steps of the whole run.
        """
        on_the_way = self.every > 0 and step % self.every == 0
        return step == steps or (self.before if step == 0 else on_the_way)


class SharedSteps(Facts):
    """The steps of a run that several GPUs share."""

    gpus: int = Field(description="GPUs, or processes of a CPU, that share each step.")
    passes: int = Field(description="Most passes of one of them in a step.")
    idle: int = Field(default=0, description="Those of them that have no pass in a step.")
    times: float = Field(description="Steps are so many times as fast as on one.")
    step_ms: float = Field(description="Predicted time of a step.")
    exchange_ms: float | None = Field(
        default=None, description="What sending between them takes of a step; None: not known."
    )
    exchange_bytes: int = Field(default=0, description="Bytes that are added up, or gathered, in a step.")
    link: LinkKind | None = Field(default=None, description="What carries it; None: nothing is told of their links.")
    rounded: bool = Field(default=False, description="Gradients are sent in bf16.")
    while_computing: bool = Field(default=False, description="Sending continues while the GPUs compute.")


class FittingRank(Facts):
    """The largest lower rank with which a run that does not fit would."""

    key: Literal["adapter.rank", "adapter.expert_rank"] = Field(description="The recipe's key.")
    rank: int
    clears_expert_rank: bool = Field(
        default=False, description="Whether adapter.expert_rank has to be 0, so that experts get their share of it."
    )


class RunPlan(Facts):
    """A run plan: the predicted memory, disk and time of a run, against what is free now."""

    device: str = Field(description="Name of the GPU, or CPU.")
    memory: list[MemoryPart] = Field(description="Components of the peak on the training device.")
    memory_bytes: int = Field(description="Predicted peak: the sum of the parts.")
    memory_free_bytes: int = Field(description="Free on that device now.")
    memory_total_bytes: int
    memory_budget_bytes: int = Field(
        default=0, description="Memory that the fast engine may take: the recipe's, else the free memory less a margin."
    )
    memory_plan: MemoryPlan | None = Field(
        default=None, description="How the fast engine would use the memory; None: another engine trains."
    )
    host_bytes: int = Field(default=0, description="Predicted host memory beside a GPU; 0 on the CPU.")
    locked_bytes: int = Field(
        default=0,
        description="Part of it that is page-locked, for offloaded activations, embeddings, head and layers' weights.",
    )
    host_free_bytes: int = 0
    disk_bytes: int = Field(description="What training writes: checkpoints and trained weights (and a download first).")
    export_disk_bytes: int = Field(
        default=0, description="What the recipe's exports take afterwards, with the 16-bit files they are made from."
    )
    disk_free_bytes: int
    fits: bool
    problems: list[str] = Field(default=[], description="Why it does not fit, and what would make it fit.")
    notes: list[str] = Field(default=[])
    samples: SamplePlan | None = Field(
        default=None, description="When the fixed prompts are answered; None: as the recipe says, or there are none."
    )
    trainable_parameters: int
    adapter_bytes: int = Field(
        default=0, description="Adapter with its gradients, optimizer and copies on that device; 0 without adapter."
    )
    fitting_rank: FittingRank | None = Field(
        default=None, description="Where the run does not fit: the rank with which it would; None: no rank helps."
    )
    coverage: Coverage | None = Field(
        default=None,
        description="Which share of each kind of layer's weights is trained or has an adapter; None: not known.",
    )
    exports: list[ExportChoice] = Field(default=[], description="Which exports of the result work, and why not.")
    steps: int | None = Field(default=None, description="Optimizer steps; None where the data is not known.")
    tokens: int | None = Field(default=None, description="Tokens the run trains on; None where not known.")
    tokens_per_s: float = Field(description="Predicted speed.")
    seconds: float | None = Field(default=None, description="Predicted time of the steps; None where not known.")
    times: list[TimePart] = Field(
        default=[], description="The same with all that comes beside steps, after loading; empty where not known."
    )
    speed_source: str = Field(default="", description='Where the speed comes from: "measured here" or "estimated".')
    shared: SharedSteps | None = Field(
        default=None, description="How several GPUs share the steps, which speed and times count; None: one trains."
    )
    settings: ParallelSettings | None = None
    basis: PlanBasis | None = Field(default=None, description="The same before past runs on this device corrected it.")

    @property
    def total_seconds(self) -> float | None:
        """Predicted time from the first check to the last save, seconds; None where not known."""
        return sum(part.seconds for part in self.times) if self.times else self.seconds


class PlannedOffer(Facts):
    """A machine that can be had at a place, and the plan of a run on it."""

    name: str = Field(description="Name of the machine there; of a service its flavor.")
    machine: MachineFacts = Field(description="Its facts, as far as the place tells them; memory counts as free.")
    gpus: int = Field(description="GPUs that it has, and that are paid for.")
    used_gpus: int = Field(description="Those of them that would train.")
    usd_per_hour: float | None = Field(
        default=None, description="Price by the service's own list; None: nothing is asked, or it does not say."
    )
    plan: RunPlan = Field(description="What the run takes on each of these GPUs, and how they share its steps.")

    @property
    def usd(self) -> float | None:
        """Predicted price of the run; None where nothing is asked, or the time is not known."""
        seconds = self.plan.total_seconds
        return None if self.usd_per_hour is None or seconds is None else self.usd_per_hour * seconds / 3600


class PlaceOffers(Facts):
    """The machines that a place has for a run."""

    where: str = Field(description="Place as the recipe names it.")
    offers: list[PlannedOffer] = Field(description="Machines with as many GPUs as are wanted; at least one.")
    chosen: int = Field(description="Position of the one that the run would take, or that comes closest.")
    longest_s: int = Field(description="Longest time that the run would be given there, seconds.")
    said: str = Field(
        default="",
        description="Words of the place on the job, which it did not start; empty: it was not asked, or cannot say.",
    )

    @property
    def best(self) -> PlannedOffer:
        """The machine that the run would take, or that comes closest."""
        return self.offers[self.chosen]


class SettingChoice(Facts):
    """One choice of a suggestion and its reason."""

    key: str = Field(description="The recipe's key, such as adapter.rank.")
    value: str
    reason: str = Field(description="One sentence.")


class Suggestion(Facts):
    """A recipe for this machine, dataset and target."""

    recipe: str = Field(description="The recipe as TOML.")
    model: str
    choices: list[SettingChoice]
    plan: RunPlan
    warnings: list[str] = Field(default=[])


class RankedModel(Facts):
    """A model of the catalog, judged for this machine and target."""

    model: CatalogModel
    verdict: Literal["good", "tight", "slow", "too_big_to_train", "too_big_for_target", "small"] = Field(
        description="tight: it barely fits into memory, or rows are cut for that. slow: it takes long, here or there."
    )
    reason: str = Field(description="One sentence.")
    here: bool = Field(description="Whether its files are on this machine.")
    path: str = Field(default="", description="What to write into the recipe; empty: it has to be downloaded first.")
    train_bytes: int = Field(description="Predicted training peak with the suggested settings.")
    tokens_per_s: float = Field(description="Predicted training speed.")
    file_bytes: int = Field(description="Predicted size of the exported file.")
    run_bytes: int = Field(description="Predicted memory to run that file on the target, context included.")
    quant: GgufType = Field(description="File type the two are predicted for.")
    method: Literal["lora", "qlora"] = "lora"
    download_bytes: int = Field(description="Size of the download.")


class _Candidate(Facts):
    """A model that the catalog does not have, judged for training here."""

    name: str
    verdict: Literal["good", "tight", "unknown", "too_big", "unusable"] = Field(
        description="unknown: transformers has to be asked. unusable: its files cannot be trained, whatever the memory."
    )
    reason: str = Field(description="One sentence.")
    train_bytes: int = Field(default=0, description="Predicted training peak with the suggested settings.")
    tokens_per_s: float = Field(default=0.0, description="Predicted training speed.")


class LocalModel(_Candidate):
    """A model that is on this machine, judged for training here."""

    place: Literal["burnish", "folder", "hub_cache", "lm_studio", "ollama"] = Field(
        description="Program whose folder it is in; folder: one that a person named."
    )
    folder: str = Field(description="What to write into the recipe, where it can be trained.")
    bytes: int = Field(description="Size of its weights.")
    parameters: int = Field(default=0, description="All weights; 0: not known.")


class FoundOnHub(_Candidate):
    """A model that a search of the hub found, judged for training here."""

    parameters: int = Field(default=0, description="All weights; 0: the hub does not say.")
    license: str = ""
    gated: bool = Field(default=False, description="Whether its page asks to accept terms before the download.")
    downloads: int = Field(default=0, description="Downloads of the last month, as the hub counts them.")
    download_bytes: int = Field(default=0, description="Size of its weights; 0: the hub does not say.")
    here: bool = Field(default=False, description="Whether its files are on this machine.")


class ModelFacts(Facts):
    """The facts of a model folder."""

    path: str = Field(description="What to write into the recipe.")
    name: str
    folder: str
    family: str
    parameters: int | None = None
    spec: DecoderSpec | None = Field(default=None, description="Its shape, read or counted on the built model.")
    bytes: int = Field(default=0, description="Size of its weights on disk.")
    max_context: int | None = None
    chat: bool = Field(default=False, description="Whether it has a chat template.")
    license: str = ""
    file_bytes: dict[GgufType, int] = Field(
        default={}, description="Predicted size of the exported file of each type; empty where it cannot be exported."
    )
    note: str = ""
    warnings: list[str] = Field(default=[])


class ModelIntegrity(Facts):
    """The result of comparing a model's files with their published checksums; damage is a failure instead."""

    checked: int = Field(description="Files whose content is the published one.")
    bytes: int = Field(description="Size of these files.")
    unpublished: int = Field(description="Files of which no checksum is known here: sizes and headers were checked.")


class AdapterFacts(Facts):
    """An adapter that a run can continue from."""

    path: str = Field(description="What to write into the recipe's adapter.start.")
    folder: str
    base: str = Field(description="Name of the model that it was trained on; empty: it does not say.")
    base_path: str = Field(default="", description="What to write into model.path for that; empty: it is not here.")
    method: Literal["lora", "rslora", "dora"]
    rank: int
    alpha: float
    targets: list[str]
    bytes: int = Field(description="Size of its weights.")
    sha256: str = Field(description="Hash of its weights, as the run's card will name it.")
