"""The parts of some results: a run's summary, its export, a benchmark, a row as it is trained on, a finished reply."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from burnish_engine.contract.facts.facts import FidelityReport
from burnish_engine.contract.facts.votes import VoteCount
from burnish_engine.contract.run.notes import RunNotes
from burnish_engine.contract.run.process_end import ProcessEnd
from burnish_engine.contract.run.state import ObservedStatus, RunStateFile
from burnish_engine.contract.serve.protocol_line import ProtocolLine

BenchKind = Literal["kernels", "step", "gguf"]


class Bench(ProtocolLine):
    """A `burnish bench` that is running, whoever started it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    v: Literal[1] = 1
    kind: BenchKind
    about: str = Field(description="What is measured: kernels, a model's shape, or files.")
    started: float = Field(description="Seconds since the epoch.")
    share: float | None = Field(default=None, ge=0, le=1, description="How far it is; null: it cannot be told.")
    pid: int
    process_created: float


class ExportJob(ProtocolLine):
    """Content of a run's `export/job.json`, replaced atomically by the export process."""

    model_config = ConfigDict(extra="ignore", frozen=True, ser_json_inf_nan="strings")

    v: Literal[1] = 1
    status: Literal["running", "finished", "canceled", "failed"]
    to: str = "gguf"
    quants: list[str] = Field(default=[])
    what: str = Field(default="", description="What it is doing, in words.")
    share: float = Field(default=0.0, description="How far it is, 0 to 1.")
    pid: int | None = None
    process_created: float | None = None
    started: float = 0.0
    message: str = Field(default="", description="Why it failed, or where the files are.")
    exit_code: int | None = None
    process_end: ProcessEnd | None = Field(default=None, description="How its process ended; null: not known.")
    report: FidelityReport | None = None
    suggested: str = Field(default="", description="The best file for the limit or the target; empty: none, or one.")
    why: str = Field(default="", description="Why that file, or why none, in a sentence.")


class RunSummary(ProtocolLine):
    """The state of one run."""

    folder: str
    state: RunStateFile
    standing: ObservedStatus
    model: str = ""
    data: str = Field(default="", description="Names of the training files.")
    held_out: str = Field(
        default="", description="Equal for runs measured on the same held-out rows in the same way; empty: unknown."
    )
    objective: str = Field(default="", description="Losses compare only where it is the same; empty: unknown.")
    notes: RunNotes = RunNotes()
    waits_for: str = Field(default="", description="Queued runs: the run that holds the device.")
    votes: VoteCount = VoteCount()
    export: ExportJob | None = None
    process_end: ProcessEnd | None = Field(default=None, description="Interrupted runs: how the process ended.")


class Preview(ProtocolLine):
    """One row as it would be trained on."""

    file: str
    row: int = Field(description="Its line in the file, or its place; from 1.")
    tokens: int = Field(default=0, description="Tokens of the row, uncut.")
    supervised_tokens: int = Field(default=0, description="Tokens of it that count in the loss.")
    cut_tokens: int = Field(default=0, description="Tokens beyond data.max_length that are cut off.")
    parts: int = Field(default=1, description="Rows that it becomes where it is split; the first is shown.")
    pieces: list[tuple[str, bool]] = Field(
        default=[], description="(text, is it learned) in order, one a token as far as tokens are whole characters."
    )
    problem: str = Field(default="", description="Why nothing is learned of it; empty: it can be used.")


class Reply(ProtocolLine):
    """A finished reply."""

    text: str
    stopped: bool = Field(description="Whether it ended by itself rather than at the limit.")
    tokens: int
    seconds: float
    name: str = Field(description="What answered.")
    first_token_s: float | None = Field(default=None, description="From the request to the first piece, model loaded.")
    waited: str = Field(default="", description="Why it answered after other lanes and not beside them; empty: it did.")
