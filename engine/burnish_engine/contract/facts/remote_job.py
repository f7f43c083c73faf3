"""The job on another machine that trains a run, as the run folder's `remote.json` records it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from burnish_engine.contract.number import Moment
from burnish_engine.contract.record import Record

REMOTE_VERSION = 1


class RemoteJob(Record):
    """A job on another machine. It holds no token and no address with a signature."""

    v: Literal[1] = 1
    where: str = Field(description="Place as the recipe names it.")
    id: str = Field(description="Number or name of the job there; empty until it was given one.")
    folder: str = Field(default="", description="Folder of the job there.")
    machine: str = Field(default="", description="Kind of machine, as the service names it.")
    url: str = Field(default="", description="Page of the job, where the service has one.")
    started: Moment = Field(default=0.0, description="When it was handed over, seconds since the epoch.")
    attempt: int = Field(
        default=0, ge=0, description="Attempt whose events the run folder holds; preemption begins another."
    )
    gpu: str = Field(default="", description="GPUs that it was planned on.")
    usd_per_hour: float | None = Field(default=None, description="Price by the service's own list.")
    timeout_s: int = Field(default=0, ge=0, description="Longest time there, seconds.")
    brought_back: bool = Field(default=False, description="Whether its result lies here, verified.")
