"""The card of a run, `card.json`: its inputs and outcome, to repeat and compare it. Loads no torch.

A card names files, never folders, and no person or machine.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from burnish_engine.contract.facts.coverage import Coverage
from burnish_engine.contract.facts.exports import ExportChoice
from burnish_engine.contract.facts.task_score import TaskChange
from burnish_engine.contract.record import Record
from burnish_engine.contract.run.forgetting import Forgetting
from burnish_engine.contract.units import memory_size

CARD_VERSION = 1
_WEIGHTS = (".safetensors", ".gguf")


class HashedFile(Record):
    """A file with its size and hash."""

    name: str = Field(description="File name without its folder.")
    bytes: int
    sha256: str | None = Field(default=None, description="Hexadecimal. None: not read yet, or it cannot be read.")

    @property
    def is_weights(self) -> bool:
        """Whether the file holds weights."""
        return self.name.endswith(_WEIGHTS)


class DataFile(HashedFile):
    """A file of rows."""

    role: Literal["train", "held out"]


class CardData(Record):
    """The data of a run."""

    files: list[DataFile] = Field(description="In the recipe's order.")
    tokens_sha256: str = Field(description="SHA-256 over all token ids and learned flags, in the order of the rows.")
    train_rows: int
    held_out_rows: int
    tokens: int = Field(description="Tokens of the training rows.")
    learned_tokens: int = Field(description="Tokens of the training rows.")


class CardModel(Record):
    """The base model of a run."""

    name: str
    files: list[HashedFile] = Field(description="Weights, configuration, tokenizer; by name.")


class RunEnvironment(Record):
    """The environment in which one process trained: software, device, engine, precision."""

    versions: dict[str, str] = Field(description="Versions of Burnish and its libraries; only installed ones.")
    os: str
    architecture: str
    device: str = Field(description="Name of the GPU, or of the processor.")
    compute_capability: str | None = Field(default=None, description="Compute capability of the GPU, such as 9.0.")
    memory_bytes: int = Field(description="All memory of the GPU, or of the system where the processor trains.")
    threads: int = Field(description="Processor threads; sums depend on it.")
    engine: str = Field(description="fast or plain.")
    precision: str = Field(description="Precision of the computation.")
    weights: str = Field(
        description="Number format of the frozen weights: nf4, gguf (its blocks), fp8, int8, mxfp8, or the precision."
    )
    products: str = Field(
        default="16",
        description="What products with the frozen weights are computed in: 16 (the precision), fp8, int8 or mxfp8.",
    )
    layout: str = Field(
        description="How rows were laid out in a pass: packed, masked (packed, with masks of ours), "
        "padded, alone (a pass for each row), or documents (packed, with our own attention)."
    )
    rewards: str = Field(
        default="", description="Files with reward functions, each with its SHA-256; empty where rewards have none."
    )
    memory_plan: str = Field(description='As the recipe\'s [memory] would pin it; "" where the engine had no choice.')

    def flat(self) -> dict[str, str | None]:
        """Map each fact's name to its text, versions included; memory in GiB, as systems differ in the last bytes."""
        facts = {
            **self.model_dump(exclude={"versions", "memory_bytes"}),
            "memory": memory_size(self.memory_bytes),
        }
        return self.versions | {name: None if value is None else str(value) for name, value in facts.items()}


class FactChange(Record):
    """A fact that changed between two processes; None: absent."""

    what: str
    before: str | None
    after: str | None


class Resume(Record):
    """The record of another process that continued with the run."""

    t: float = Field(description="Wall-clock time, seconds since the epoch.")
    step: int = Field(description="Optimizer steps that were kept.")
    changed: list[FactChange] = Field(description="Facts that differ from the process before.")


class CardResult(Record):
    """The result that a process saved at its end."""

    t: float = Field(description="Wall-clock time, seconds since the epoch.")
    ended: Literal["finished", "stopped", "suspended"]
    step: int = Field(description="Optimizer steps made.")
    tokens: int = Field(description="Real tokens trained on.")
    trained: Literal["adapter", "model"] = Field(description="Also the name of the folder.")
    files: list[HashedFile]
    memory_plan: str = Field(description="At the end; it becomes smaller where memory ran out.")
    best_step: int | None = Field(default=None, description="The files are of this step; None: of the last one.")
    best_loss: float | None = Field(default=None, description="Held-out loss of that step, nats.")
    forgetting: Forgetting | None = Field(
        default=None, description="Loss on general text before and after; None: not measured."
    )
    task: TaskChange | None = Field(default=None, description="Score of the task before and after; None: not measured.")


class CardGuard(Record):
    """The guard's verdict on whether the run really trained."""

    verdict: Literal["training", "suspicious", "not_training"]
    sentence: str
    check: str = Field(default="", description="The check that failed first; empty where none did.")
    cause: str = ""
    remedy: str = ""
    passed: list[str] = Field(default=[], description="Checks that found nothing.")
    coverage: str = Field(default="", description="What an adapter reaches of the layers' weights, in words.")


class CardRollback(Record):
    """The record of a rollback, after which the run continued at a lower learning rate."""

    step: int = Field(description="The step of the trouble.")
    to_step: int
    factor: float = Field(description="Factor on the learning rates since.")
    reason: str


class RunCard(Record):
    """Content of `card.json`. Written by the engine only: begun with training, completed at the end."""

    v: Literal[1] = 1
    t: float = Field(description="Wall-clock time when it was begun, seconds since the epoch.")
    begun_step: int = Field(default=0, description="More than 0 where an earlier card was lost.")
    recipe_sha256: str = Field(description="SHA-256 of the file recipe.toml.")
    seed: int = Field(description="Seed of everything random.")
    steps: int = Field(description="Optimizer steps of the whole run.")
    circumstances: RunEnvironment = Field(description="Environment of the process that began the run.")
    data: CardData
    base: CardModel
    start: list[HashedFile] = Field(
        default=[], description="Files of the adapter that the run continues from; empty: it began with a new one."
    )
    coverage: Coverage | None = Field(
        default=None, description="What is trained of each kind of layer, counted on the loaded model; None: not known."
    )
    exports: list[ExportChoice] = Field(default=[], description="Which exports of the result work, and why not.")
    resumes: list[Resume] = Field(default=[])
    guard: CardGuard | None = Field(default=None, description="None: not looked at yet, or guard.action is off.")
    rollback: CardRollback | None = None
    result: CardResult | None = None

    def now(self) -> dict[str, str | None]:
        """Map the facts of the process that trained last to their text, with the hashes of files that changed."""
        changes = {change.what: change.after for resume in self.resumes for change in resume.changed}
        return self.circumstances.flat() | changes
