"""The protocol of `burnish serve`: JSON lines over standard input and output, one object a line, UTF-8.

A client writes requests, each with an id of its own choice; the server answers with messages that carry that id. Any
number of requests may be open. The first line of the server is `hello`. The guide's `serve-protocol.md` is made from
here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from burnish_engine.contract.facts.advice import ModelFacts, RankedModel, RunPlan, Suggestion
from burnish_engine.contract.facts.capacity import DeviceCapacity
from burnish_engine.contract.facts.data_report import FileColumns
from burnish_engine.contract.facts.export_forecast import ExportForecast
from burnish_engine.contract.facts.facts import DatasetFacts, FidelityReport
from burnish_engine.contract.facts.hardware import HardwareLine
from burnish_engine.contract.facts.machine import Checkup, MachineFacts
from burnish_engine.contract.facts.sweeps import SweepFile, SweepPlan
from burnish_engine.contract.recipe.recipe_export import GgufType, MergeOnto, TargetSection
from burnish_engine.contract.recipe.sweep import SweepSetting
from burnish_engine.contract.run.commands import CommandName
from burnish_engine.contract.run.comparison import RunsComparison
from burnish_engine.contract.run.duels import DuelFacts
from burnish_engine.contract.run.notes import RunNotes
from burnish_engine.contract.run.process_end import ProcessEnd
from burnish_engine.contract.run.state import ObservedStatus, RunStateFile

PROTOCOL_VERSION = 1
MAX_LINE_BYTES = 8 * 2**20
"""Longest line, bytes; longer ones are refused, so that a faulty client cannot fill the memory."""


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), ser_json_inf_nan="strings")


class _Request(_Line):
    id: str = Field(min_length=1, max_length=64, description="Chosen by the client; carried by every answer.")


class DoctorRequest(_Request):
    """Run the whole check-up, kernels included (some seconds). Progress: none. Result: `checkup`."""

    method: Literal["doctor"] = "doctor"
    bandwidth: bool = Field(default=False, description="Also measure copies between GPUs (some seconds more).")


class MachineRequest(_Request):
    """Read the machine as it is now, quickly. Result: `machine`."""

    method: Literal["machine"] = "machine"


class HardwareRequest(_Request):
    """Sample the machine once a second, as `hardware` messages, until it is canceled. It has no result."""

    method: Literal["hardware"] = "hardware"


class ModelRequest(_Request):
    """Read the facts of a model. Result: `model`."""

    method: Literal["model"] = "model"
    path: str = Field(description='"embedded", a folder, or a name of the catalog that was fetched.')


class ModelsRequest(_Request):
    """Rank the catalog for this machine and target. Result: `models`."""

    method: Literal["models"] = "models"
    query: str = Field(default="", description="Words that the title, family or purpose must hold.")
    target: TargetSection = TargetSection()


class FetchRequest(_Request):
    """Download a model by name; progress in bytes; can be canceled and goes on where it stopped. Result: `model`."""

    method: Literal["fetch"] = "fetch"
    name: str
    token: str = Field(default="", description="Access token for gated models. Never stored.")


class InspectRequest(_Request):
    """Inspect a dataset with the recipe's model and settings; progress in rows. Result: `dataset`."""

    method: Literal["inspect"] = "inspect"
    recipe: str = Field(description="TOML. `model` and `data` are used.")


class ColumnsRequest(_Request):
    """List the columns of the first data file and every way to read them, whatever the recipe. Result: `columns`."""

    method: Literal["columns"] = "columns"
    recipe: str = Field(description="TOML. `data` is used.")


class PreviewRequest(_Request):
    """Show one row as it would be trained on. Result: `preview`."""

    method: Literal["preview"] = "preview"
    recipe: str
    row: int = Field(default=1, ge=1, description="Number of a used training row, from 1.")
    tokens: bool = Field(default=False, description="One piece a token, as far as tokens are whole characters.")


class EstimateRequest(_Request):
    """Predict memory, speed, time and disk against what is free now. Result: `plan`."""

    method: Literal["estimate"] = "estimate"
    recipe: str
    dataset: DatasetFacts | None = Field(
        default=None,
        description="What an earlier inspection with this recipe found; a server that began anew needs it.",
    )


class WhatFitsRequest(_Request):
    """Find the largest models that train here, the longest rows and the largest passes; progress in models.

    Result: `what_fits`.
    """

    method: Literal["what_fits"] = "what_fits"
    model: str = Field(default="", description="Only this one. Empty: the usual sizes and the largest.")
    gpu_gib: float = Field(default=0.0, ge=0.0, le=4096.0, description="For a card of that memory. 0: as it is now.")


class SuggestRequest(_Request):
    """Propose model and recipe with reasons. Result: `suggestion`."""

    method: Literal["suggest"] = "suggest"
    model: str = Field(default="", description="Empty: choose one.")
    data: list[str] = []
    validation: list[str] = []
    target: TargetSection = TargetSection()
    recipe: str = Field(default="", description="TOML. How its `data` is read is kept: shape, columns and the like.")


class ChatOptions(_Line):
    """The options for choosing tokens."""

    max_tokens: int = Field(default=512, ge=1, le=32768)
    temperature: float = Field(default=0.0, ge=0.0, le=100.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    seed: int = 0


class ChatMessage(_Line):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


class ChatRequest(_Request):
    """Ask for a reply, streamed as `piece` messages. The first use loads the model, which is kept. Result: `reply`."""

    method: Literal["chat"] = "chat"
    target: str = Field(description='A run, a model folder, "embedded", or a .gguf file.')
    variant: Literal["tuned", "base", "exported"] = Field(default="tuned", description="Of a run: which of its models.")
    messages: list[ChatMessage] = Field(min_length=1)
    options: ChatOptions = ChatOptions()


class FreeRequest(_Request):
    """End the chat process and free its memory. Result: `done`."""

    method: Literal["free"] = "free"


class RunsRequest(_Request):
    """List all runs, newest first; also starts waiting runs whose device is free. Result: `runs`."""

    method: Literal["runs"] = "runs"
    folders: list[str] = Field(default=[], description="Folders of runs elsewhere to list as well.")


class StartRequest(_Request):
    """Start a run in a process of its own that outlives server and client. Result: `run`.

    The request is refused, with the reason, where the plan does not fit (unless `anyway`); the run queues where the
    device is busy.
    """

    method: Literal["start"] = "start"
    recipe: str
    anyway: bool = False


class ResumeRequest(_Request):
    """Go on with a stopped, suspended, interrupted or failed run, or end a pause. Result: `run`."""

    method: Literal["resume"] = "resume"
    run: str


class CommandRequest(_Request):
    """Send a command to a run; the run acknowledges it in its events. Result: `done`, `detail` is the command's id."""

    method: Literal["command"] = "command"
    run: str
    command: CommandName


class DeleteRequest(_Request):
    """Move a run that is not alive to the trash, where it is kept for a week. Result: `run`, its former folder."""

    method: Literal["delete"] = "delete"
    run: str


class RestoreRequest(_Request):
    """Move a deleted run back to its place. Result: `run`."""

    method: Literal["restore"] = "restore"
    run: str = Field(description="Its former folder.")


class PurgeRequest(_Request):
    """Delete a run for good that was moved to the trash. Result: `done`."""

    method: Literal["purge"] = "purge"
    run: str = Field(description="Its former folder.")


class AnnotateRequest(_Request):
    """Replace what the person notes about a run. Result: `run`."""

    method: Literal["annotate"] = "annotate"
    run: str
    tags: list[str] = []
    text: str = ""


class CompareRequest(_Request):
    """Compare runs: their outcomes, and what recipes, models, data, machines and versions differ in.

    Result: `comparison`.
    """

    method: Literal["compare"] = "compare"
    runs: list[str] = Field(min_length=1)


class PlanSweepRequest(_Request):
    """Say what a sweep would take; progress in runs. Result: `sweep_plan`."""

    method: Literal["plan_sweep"] = "plan_sweep"
    recipe: str
    settings: list[SweepSetting]
    dataset: DatasetFacts | None = Field(
        default=None, description="What an earlier inspection of this recipe found; a server that began anew needs it."
    )


class StartSweepRequest(_Request):
    """Queue the runs of a sweep, and start the first where its device is free. Result: `sweeps`, the one that began.

    It is refused, with the reason, where a run does not fit (unless `anyway`).
    """

    method: Literal["start_sweep"] = "start_sweep"
    recipe: str
    settings: list[SweepSetting]
    name: str = ""
    anyway: bool = False


class SweepsRequest(_Request):
    """List the sweeps that have runs, newest first. Result: `sweeps`."""

    method: Literal["sweeps"] = "sweeps"


class DuelSideRequest(_Line):
    """A side of a duel."""

    name: str = Field(min_length=1, max_length=200)
    recipe: str = Field(description="TOML.")


class _DuelRequest(_Request):
    sides: list[DuelSideRequest] = Field(min_length=2)
    seeds: int = Field(default=3, ge=3, le=100, description="Runs of each side at its best learning rate.")
    factors: list[float] = Field(default=[0.3, 1.0, 3.0], description="Learning rates, as multiples of its own.")
    anyway: bool = Field(default=False, description="Compare although the conditions differ.")


class PlanDuelRequest(_DuelRequest):
    """Say what a duel would compare and take; progress in rows of data. Result: `duels`, the plan alone."""

    method: Literal["plan_duel"] = "plan_duel"


class StartDuelRequest(_DuelRequest):
    """Start a duel in a process of its own that outlives server and client. Result: `run`, the duel's folder."""

    method: Literal["start_duel"] = "start_duel"


class DuelsRequest(_Request):
    """List the duels, newest first, or describe one. Result: `duels`."""

    method: Literal["duels"] = "duels"
    folder: str = Field(default="", description="Empty: all.")


class StopDuelRequest(_Request):
    """Ask a duel to save the run that goes on, and to stop. Result: `done`."""

    method: Literal["stop_duel"] = "stop_duel"
    folder: str


class ResumeDuelRequest(_Request):
    """Go on with a duel that was stopped. Result: `run`, the duel's folder."""

    method: Literal["resume_duel"] = "resume_duel"
    folder: str


class ForecastRequest(_Request):
    """Forecast an export to GGUF: exact sizes, disk, memory and time by stage. Result: `forecast`."""

    method: Literal["forecast"] = "forecast"
    run: str
    quants: list[GgufType] = Field(default=[], description="Empty: the recipe's.")
    name: str = ""
    importance: bool | None = Field(default=None, description="null: as the recipe says.")


class ExportRequest(_Request):
    """Start an export in a process of its own; it reports in the run's `export/job.json`. Result: `run`."""

    method: Literal["export"] = "export"
    run: str
    to: Literal["gguf", "safetensors", "adapter", "ollama", "lmstudio", "lora-gguf"] = "gguf"
    quants: list[GgufType] = Field(default=[], description="Empty: the recipe's.")
    name: str = ""
    importance: bool | None = Field(default=None, description="null: as the recipe says; so are the two below.")
    merge_onto: MergeOnto | None = None
    size_limit_mb: float | None = Field(default=None, ge=0.0)


class CancelExportRequest(_Request):
    """Ask a running export to stop. Result: `done`."""

    method: Literal["cancel_export"] = "cancel_export"
    run: str


class CancelRequest(_Request):
    """Stop working on another request, which then ends with `canceled`. Result: `done`."""

    method: Literal["cancel"] = "cancel"
    request: str = Field(description="Id of the request to stop.")


Request = Annotated[
    DoctorRequest
    | MachineRequest
    | HardwareRequest
    | ModelRequest
    | ModelsRequest
    | FetchRequest
    | InspectRequest
    | ColumnsRequest
    | PreviewRequest
    | EstimateRequest
    | WhatFitsRequest
    | SuggestRequest
    | ChatRequest
    | FreeRequest
    | RunsRequest
    | StartRequest
    | ResumeRequest
    | CommandRequest
    | DeleteRequest
    | RestoreRequest
    | PurgeRequest
    | AnnotateRequest
    | CompareRequest
    | PlanSweepRequest
    | StartSweepRequest
    | SweepsRequest
    | PlanDuelRequest
    | StartDuelRequest
    | DuelsRequest
    | StopDuelRequest
    | ResumeDuelRequest
    | ForecastRequest
    | ExportRequest
    | CancelExportRequest
    | CancelRequest,
    Field(discriminator="method"),
]
"""Union of all requests of a client."""


class RunSummary(_Line):
    """The state of one run."""

    folder: str
    state: RunStateFile
    standing: ObservedStatus
    model: str = ""
    data: str = Field(default="", description="Names of the training files.")
    held_out: str = Field(
        default="", description="Equal for runs measured on the same held-out rows in the same way; empty: unknown."
    )
    notes: RunNotes = RunNotes()
    waits_for: str = Field(default="", description="Queued runs: the run that holds the device.")
    export: ExportJob | None = None
    process_end: ProcessEnd | None = Field(default=None, description="Interrupted runs: how the process ended.")


class ExportJob(_Line):
    """Content of a run's `export/job.json`, replaced atomically by the export process."""

    model_config = ConfigDict(extra="ignore", frozen=True, ser_json_inf_nan="strings")

    v: Literal[1] = 1
    status: Literal["running", "finished", "canceled", "failed"]
    to: str = "gguf"
    quants: list[str] = []
    what: str = Field(default="", description="What it is doing, in words.")
    share: float = Field(default=0.0, description="How far it is, 0 to 1.")
    pid: int | None = None
    process_created: float | None = None
    started: float = 0.0
    message: str = Field(default="", description="Why it failed, or where the files are.")
    exit_code: int | None = None
    process_end: ProcessEnd | None = Field(default=None, description="How its process ended; None: not known.")
    report: FidelityReport | None = None
    suggested: str = Field(default="", description="The best file for the limit or the target; empty: none, or one.")
    why: str = Field(default="", description="Why that file, or why none, in a sentence.")


class Preview(_Line):
    """One row as it would be trained on."""

    row: int
    rows: int = Field(description="Used training rows.")
    tokens: int
    pieces: list[tuple[str, bool]] = Field(description="(text, is it learned), in order.")
    source: str = Field(default="", description="File and row it comes from.")


class Reply(_Line):
    """A finished reply."""

    text: str
    stopped: bool = Field(description="Whether it ended by itself rather than at the limit.")
    tokens: int
    seconds: float
    name: str = Field(description="What answered.")


class Hello(_Line):
    """The first line of the server."""

    type: Literal["hello"] = "hello"
    protocol: int = PROTOCOL_VERSION
    burnish: str
    pid: int


class Progress(_Line):
    """The progress of a request."""

    type: Literal["progress"] = "progress"
    id: str
    what: str
    done: int
    total: int = Field(description="0: not known.")


class Piece(_Line):
    """A piece of a streamed reply."""

    type: Literal["piece"] = "piece"
    id: str
    text: str


class HardwareReading(_Line):
    """A line of the live recording of the hardware, as in a run's `hardware.jsonl`."""

    type: Literal["hardware"] = "hardware"
    id: str
    line: HardwareLine


class Result(_Line):
    """A request is done. The method decides which key is filled."""

    type: Literal["result"] = "result"
    id: str
    checkup: Checkup | None = None
    machine: MachineFacts | None = None
    model: ModelFacts | None = None
    models: list[RankedModel] | None = None
    dataset: DatasetFacts | None = None
    columns: FileColumns | None = None
    preview: Preview | None = None
    plan: RunPlan | None = None
    what_fits: DeviceCapacity | None = None
    forecast: ExportForecast | None = None
    suggestion: Suggestion | None = None
    reply: Reply | None = None
    runs: list[RunSummary] | None = None
    comparison: RunsComparison | None = None
    sweep_plan: SweepPlan | None = None
    sweeps: list[SweepFile] | None = None
    duels: list[DuelFacts] | None = None
    run: str | None = Field(default=None, description="A run's folder.")
    done: bool = True
    detail: str = ""


class Failure(_Line):
    """A request failed. `id` is empty where the line could not be read as a request."""

    type: Literal["failure"] = "failure"
    id: str
    what: str
    remedy: str = ""
    exit_code: int = Field(description="Exit code from the table of exit codes.")


class Canceled(_Line):
    """A request was stopped as asked."""

    type: Literal["canceled"] = "canceled"
    id: str


Message = Annotated[
    Hello | Progress | Piece | HardwareReading | Result | Failure | Canceled, Field(discriminator="type")
]
"""Union of all messages of the server."""

RunSummary.model_rebuild()
_REQUESTS: TypeAdapter[Any] = TypeAdapter(Request)
_MESSAGES: TypeAdapter[Any] = TypeAdapter(Message)


def parse_request(line: str | bytes) -> Request:
    """Parse the request on a line.

    Raises:
        pydantic.ValidationError: The line is none.
    """
    request: Request = _REQUESTS.validate_json(line)
    return request


def parse_message(line: str | bytes) -> Message:
    """Parse the server's message on a line.

    Raises:
        pydantic.ValidationError: The line is none.
    """
    message: Message = _MESSAGES.validate_json(line)
    return message


def request_classes() -> tuple[type[_Request], ...]:
    """List every request class, for tests and documentation."""
    return get_args(get_args(Request)[0])


def message_classes() -> tuple[type[_Line], ...]:
    """List every message class of the server, for tests and documentation."""
    return get_args(get_args(Message)[0])
