"""Requests about runs and sweeps: start, command, list, compare, delete."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.sweep import SweepSetting
from burnish_engine.contract.run.commands import COMMAND_MEANINGS, CommandName
from burnish_engine.contract.serve.protocol_line import ProtocolRequest


class RunsRequest(ProtocolRequest):
    """List all runs, newest first, and the benchmarks that are running; also starts waiting runs whose device is free.

    Result: `runs` and `benches`.
    """

    method: Literal["runs"] = "runs"
    folders: list[str] = Field(default=[], description="Folders of runs elsewhere to list as well.")


class StartRequest(ProtocolRequest):
    """Start a run in a process of its own that outlives server and client. Result: `run`.

    The request is refused, with the reason, where the plan does not fit (unless `anyway`); the run queues where the
    device is busy.
    """

    method: Literal["start"] = "start"
    recipe: str
    anyway: bool = False


class ResumeRequest(ProtocolRequest):
    """Continue with a stopped, suspended, interrupted or failed run, or end a pause. Result: `run`."""

    method: Literal["resume"] = "resume"
    run: str


class CommandRequest(ProtocolRequest):
    """Send a command to a run; the run acknowledges it in its events. Result: `done`, `detail` is the command's id."""

    method: Literal["command"] = "command"
    run: str
    command: CommandName = Field(description=COMMAND_MEANINGS)


class DeleteRequest(ProtocolRequest):
    """Move a run that is not alive to the trash, where it is kept for a week. Result: `run`, its former folder."""

    method: Literal["delete"] = "delete"
    run: str


class RestoreRequest(ProtocolRequest):
    """Move a deleted run back to its place. Result: `run`."""

    method: Literal["restore"] = "restore"
    run: str = Field(description="Its former folder.")


class PurgeRequest(ProtocolRequest):
    """Delete a run for good that was moved to the trash. Result: `done`."""

    method: Literal["purge"] = "purge"
    run: str = Field(description="Its former folder.")


class AnnotateRequest(ProtocolRequest):
    """Replace what the person notes about a run. Result: `run`."""

    method: Literal["annotate"] = "annotate"
    run: str
    tags: list[str] = Field(default=[])
    text: str = ""


class HeldOutRequest(ProtocolRequest):
    """Read conversations of a run's held-out rows, with their replies. Result: `conversations`."""

    method: Literal["held_out"] = "held_out"
    run: str
    most: int = Field(default=20, ge=1, le=200)


class VoteRequest(ProtocolRequest):
    """Keep a blind vote on replies to a prompt with the run. Result: `votes`."""

    method: Literal["vote"] = "vote"
    run: str
    prompt: str
    shown: list[str] = Field(description="Names of the two or three models that answered, such as tuned and base.")
    best: str = Field(default="", description="Name of the best one; empty: they are equally good.")


class CompareRequest(ProtocolRequest):
    """Compare runs: their outcomes, and what recipes, models, data, machines and versions differ in.

    Result: `comparison`.
    """

    method: Literal["compare"] = "compare"
    runs: list[str] = Field(min_length=1)


class StopBenchRequest(ProtocolRequest):
    """End a benchmark that `runs` listed, wherever it was started. Result: `done`."""

    method: Literal["stop_bench"] = "stop_bench"
    pid: int = Field(description="Its process.")


class PlanSweepRequest(ProtocolRequest):
    """Say what a sweep would take; progress in runs. Result: `sweep_plan`."""

    method: Literal["plan_sweep"] = "plan_sweep"
    recipe: str
    settings: list[SweepSetting]
    dataset: DatasetFacts | None = Field(
        default=None, description="What an earlier inspection of this recipe found; a server that began anew needs it."
    )


class StartSweepRequest(ProtocolRequest):
    """Queue the runs of a sweep, and start the first where its device is free. Result: `sweeps`, the one that began.

    It is refused, with the reason, where a run does not fit (unless `anyway`).
    """

    method: Literal["start_sweep"] = "start_sweep"
    recipe: str
    settings: list[SweepSetting]
    name: str = ""
    anyway: bool = False


class SweepsRequest(ProtocolRequest):
    """List the sweeps that have runs, newest first. Result: `sweeps`."""

    method: Literal["sweeps"] = "sweeps"


RequestsOnRuns = (
    RunsRequest
    | StartRequest
    | ResumeRequest
    | CommandRequest
    | DeleteRequest
    | RestoreRequest
    | PurgeRequest
    | AnnotateRequest
    | HeldOutRequest
    | VoteRequest
    | CompareRequest
    | StopBenchRequest
    | PlanSweepRequest
    | StartSweepRequest
    | SweepsRequest
)
