"""The summary of a run that the engine keeps in `state.json`, and the status that a reader concludes from it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from burnish_engine.contract.number import Moment
from burnish_engine.contract.record import Record

STATE_VERSION = 1
NOT_RESPONDING_AFTER_S = 30.0
"""Age of the heartbeat after which the process hangs; it beats every two seconds from a thread of its own."""

STARTING_S = 60.0
"""Time after which a new run that no process has taken over counts as interrupted."""

Status = Literal["created", "queued", "running", "paused", "finished", "stopped", "suspended", "failed"]
ObservedStatus = Literal[Status, "interrupted", "not responding"]


class RunStateFile(Record):
    """Content of `state.json`. Written by the engine only."""

    v: Literal[1] = 1
    run: str = Field(description="Name of the run folder.")
    name: str = ""
    status: Status = "created"
    phase: str = ""
    step: int = 0
    total_steps: int = 0
    loss: float | None = Field(
        default=None,
        description="Mean around the newest step, as charts draw it, nats; null: none, as of a run with rewards.",
    )
    evaluation_loss: float | None = None
    accuracy: float | None = Field(default=None, description="`EvaluationDone.accuracy` of the result so far.")
    margin: float | None = Field(default=None, description="`EvaluationDone.margin` of the result so far.")
    reward: float | None = Field(
        default=None,
        description="`RewardsGiven.reward` of the newest replies; null: the run does not learn from rewards.",
    )
    device: str = ""
    further_devices: list[str] = Field(default=[], description="Devices that share the run beside that one.")
    where: str = Field(default="", description="Other machine that trains it, as its recipe names it; empty: this one.")
    recipe_hash: str = ""
    created: Moment = Field(default=0.0, description="Seconds since the epoch.")
    pid: int | None = None
    process_created: float | None = None
    heartbeat: Moment = Field(default=0.0, description="Last sign of life, seconds since the epoch.")
    ends: Moment = Field(
        default=0.0,
        description="Predicted end, with evaluations and saves, seconds since the epoch; 0: not known.",
    )
    verdict: str = Field(default="", description="Whether it really trains, in a sentence.")
    suspicious: bool = Field(default=False, description="Whether that verdict asks for a person's attention.")
    exit_code: int | None = None
    message: str = ""


def observed_status(state: RunStateFile, *, owner_alive: bool, now: float) -> ObservedStatus:
    """Conclude a run's status from its file, its process and its heartbeat.

    A finished run, a lost process and a hanging process have different statuses.

    Args:
        state: content of the run's `state.json`.
        owner_alive: whether the process with the recorded pid and creation time exists.
        now: current time, seconds since the epoch.
    """
    if state.status == "created" and not owner_alive and now - state.created > STARTING_S:
        return "interrupted"
    if state.status not in ("running", "paused"):
        return state.status
    if not owner_alive:
        return "interrupted"
    if now - state.heartbeat > NOT_RESPONDING_AFTER_S:
        return "not responding"
    return state.status
