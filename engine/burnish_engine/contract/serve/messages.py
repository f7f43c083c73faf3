"""The messages of the server: hello, progress, results, failures."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from burnish_engine.contract.facts.advice import (
    AdapterFacts,
    FoundOnHub,
    LocalModel,
    ModelFacts,
    ModelIntegrity,
    PlaceOffers,
    RankedModel,
    RunPlan,
    Suggestion,
)
from burnish_engine.contract.facts.capacity import DeviceCapacity
from burnish_engine.contract.facts.data_report import FileColumns, RowPage
from burnish_engine.contract.facts.downloads import Download
from burnish_engine.contract.facts.export_forecast import ExportForecast
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.hardware import HardwareLine
from burnish_engine.contract.facts.machine import Checkup, MachineFacts
from burnish_engine.contract.facts.sweeps import SweepFile, SweepPlan
from burnish_engine.contract.facts.votes import VoteCount
from burnish_engine.contract.run.comparison import RunsComparison
from burnish_engine.contract.run.duels import DuelFacts
from burnish_engine.contract.serve.export_requests import ProgramName
from burnish_engine.contract.serve.model_requests import ChatMessage
from burnish_engine.contract.serve.protocol_line import PROTOCOL_VERSION, ProtocolLine
from burnish_engine.contract.serve.replies import Bench, Preview, Reply, RunSummary
from burnish_engine.contract.serve.reward_trial import RewardTrial


class Hello(ProtocolLine):
    """The first line of the server."""

    type: Literal["hello"] = "hello"
    protocol: int = PROTOCOL_VERSION
    burnish: str
    pid: int


class Progress(ProtocolLine):
    """The progress of a request."""

    type: Literal["progress"] = "progress"
    id: str
    what: str
    done: int
    total: int = Field(description="0: not known.")


class Piece(ProtocolLine):
    """A piece of a streamed reply."""

    type: Literal["piece"] = "piece"
    id: str
    text: str


class HardwareReading(ProtocolLine):
    """A line of the live recording of the hardware, as in a run's `hardware.jsonl`."""

    type: Literal["hardware"] = "hardware"
    id: str
    line: HardwareLine


class Result(ProtocolLine):
    """A request is done. The method decides which key is filled."""

    type: Literal["result"] = "result"
    id: str
    checkup: Checkup | None = None
    machine: MachineFacts | None = None
    model: ModelFacts | None = None
    models: list[RankedModel] | None = None
    local_models: list[LocalModel] | None = None
    hub_models: list[FoundOnHub] | None = None
    integrity: ModelIntegrity | None = None
    adapter: AdapterFacts | None = None
    downloads: list[Download] | None = None
    dataset: DatasetFacts | None = None
    columns: FileColumns | None = None
    rows: RowPage | None = None
    preview: Preview | None = None
    trial: RewardTrial | None = None
    plan: RunPlan | None = None
    offers: PlaceOffers | None = None
    what_fits: DeviceCapacity | None = None
    forecast: ExportForecast | None = None
    programs: list[ProgramName] | None = None
    suggestion: Suggestion | None = None
    reply: Reply | None = None
    runs: list[RunSummary] | None = None
    benches: list[Bench] | None = None
    conversations: list[list[ChatMessage]] | None = None
    votes: VoteCount | None = None
    comparison: RunsComparison | None = None
    sweep_plan: SweepPlan | None = None
    sweeps: list[SweepFile] | None = None
    duels: list[DuelFacts] | None = None
    run: str | None = Field(default=None, description="A run's folder.")
    done: bool = True
    detail: str = ""


class Failure(ProtocolLine):
    """A request failed. `id` is empty where the line could not be read as a request."""

    type: Literal["failure"] = "failure"
    id: str
    what: str
    remedy: str = ""
    exit_code: int = Field(description="Exit code from the table of exit codes.")


class Canceled(ProtocolLine):
    """A request was stopped as asked."""

    type: Literal["canceled"] = "canceled"
    id: str


Message = Annotated[
    Hello | Progress | Piece | HardwareReading | Result | Failure | Canceled, Field(discriminator="type")
]
"""Union of all messages of the server."""
