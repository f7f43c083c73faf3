"""The card of a run, `card.json`: what it was made of, so that it can be made again and compared. Loads no torch.

It names files, never folders, and no person or machine.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from burnish_engine.contract.coverage import Coverage
from burnish_engine.contract.exports import ExportChoice

CARD_VERSION = 1
_WEIGHTS = (".safetensors", ".gguf")


class _Card(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class HashedFile(_Card):
    """A file and its content."""

    name: str = Field(description="Without its folder.")
    bytes: int
    sha256: str | None = Field(default=None, description="Hexadecimal. None: not read yet, or it cannot be read.")

    @property
    def is_weights(self) -> bool:
        """Whether a model's file holds weights."""
        return self.name.endswith(_WEIGHTS)


class DataFile(HashedFile):
    """A file of rows."""

    role: Literal["train", "held out"]


class CardData(_Card):
    """What was learned from."""

    files: list[DataFile] = Field(description="In the recipe's order.")
    tokens_sha256: str = Field(description="Of all token ids and learned flags, in the order of the rows.")
    train_rows: int
    held_out_rows: int
    tokens: int = Field(description="Of the training rows.")
    learned_tokens: int = Field(description="Of the training rows.")


class CardModel(_Card):
    """What was trained."""

    name: str
    files: list[HashedFile] = Field(description="Weights, configuration, tokenizer; by name.")


class Circumstances(_Card):
    """Where and how one process trained."""

    versions: dict[str, str] = Field(description="Of Burnish and of what it stands on; only what is installed.")
    os: str
    architecture: str
    device: str = Field(description="Name of the GPU, or of the processor.")
    compute_capability: str | None = Field(default=None, description="Of the GPU, such as 9.0.")
    memory_bytes: int = Field(description="All memory of the GPU, or of the system where the processor trains.")
    threads: int = Field(description="Processor threads; sums depend on it.")
    engine: str = Field(description="fast or plain.")
    precision: str = Field(description="What was computed in.")
    weights: str = Field(description="What the frozen weights were kept in: nf4, or the precision.")
    layout: str = Field(
        description="How rows were laid out in a pass: packed, masked (packed, with masks of ours), "
        "padded, or documents (packed, with our own attention)."
    )
    memory_plan: str = Field(description='As the recipe\'s [memory] would pin it; "" where the engine had no choice.')

    def flat(self) -> dict[str, str | None]:
        """Every fact by its name, versions among them; memory in GiB, since systems differ in its last megabytes."""
        facts = {
            **self.model_dump(exclude={"versions", "memory_bytes"}),
            "memory": f"{self.memory_bytes / 2**30:.1f} GiB",
        }
        return self.versions | {name: None if value is None else str(value) for name, value in facts.items()}


class Change(_Card):
    """A fact that is another than before; None: not there."""

    what: str
    before: str | None
    after: str | None


class Resume(_Card):
    """Another process went on with the run."""

    t: float = Field(description="Wall-clock time, seconds since the epoch.")
    step: int = Field(description="Optimizer steps that were kept.")
    changed: list[Change] = Field(description="What is another than in the process before.")


class CardResult(_Card):
    """What a process saved at its end."""

    t: float = Field(description="Wall-clock time, seconds since the epoch.")
    ended: Literal["finished", "stopped", "suspended"]
    step: int = Field(description="Optimizer steps made.")
    tokens: int = Field(description="Real tokens trained on.")
    trained: Literal["adapter", "model"] = Field(description="Also the name of the folder.")
    files: list[HashedFile]
    memory_plan: str = Field(description="At the end; it becomes smaller where memory ran out.")
    best_step: int | None = Field(default=None, description="The files are of this step; None: of the last one.")
    best_loss: float | None = Field(default=None, description="Held-out loss of that step, nats.")


class CardGuard(_Card):
    """Whether it really trained."""

    verdict: Literal["training", "suspicious", "not_training"]
    sentence: str
    check: str = Field(default="", description="The check that failed first; empty where none did.")
    cause: str = ""
    remedy: str = ""
    passed: list[str] = Field(default=[], description="Checks that found nothing.")
    coverage: str = Field(default="", description="What an adapter reaches of the layers' weights, in words.")


class CardRollback(_Card):
    """The run went back once and on at a lower learning rate."""

    step: int = Field(description="The step of the trouble.")
    to_step: int
    factor: float = Field(description="Of the learning rates since.")
    reason: str


class RunCard(_Card):
    """Content of `card.json`. Written by the engine only: begun with training, completed at the end."""

    v: Literal[1] = 1
    t: float = Field(description="Wall-clock time when it was begun, seconds since the epoch.")
    begun_step: int = Field(default=0, description="More than 0 where the run is older than its card.")
    recipe_sha256: str = Field(description="Of the file recipe.toml.")
    seed: int = Field(description="Of everything random.")
    steps: int = Field(description="Optimizer steps of the whole run.")
    circumstances: Circumstances = Field(description="Of the process that began it.")
    data: CardData
    base: CardModel
    coverage: Coverage | None = Field(
        default=None, description="What is trained of each kind of layer, counted on the loaded model; None: not known."
    )
    exports: list[ExportChoice] = Field(
        default=[], description="Which exports of the result work, and why not. Empty: older than this is known."
    )
    resumes: list[Resume] = []
    guard: CardGuard | None = Field(default=None, description="None: not looked at yet, or guard.action is off.")
    rollback: CardRollback | None = None
    result: CardResult | None = None

    def now(self) -> dict[str, str | None]:
        """The circumstances of the process that trained last, by name; also hashes of files that are others by now."""
        changes = {change.what: change.after for resume in self.resumes for change in resume.changed}
        return self.circumstances.flat() | changes
