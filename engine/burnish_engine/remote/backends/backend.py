"""Interface of every way to another machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.run.commands import Command, CommandName
from burnish_engine.contract.run.state import Status
from burnish_engine.remote.bundle.bundle import Bundle
from burnish_engine.remote.there.job_folder import JobEnd
from burnish_engine.remote.there.relay_line import RelayLine

ENDINGS: dict[CommandName, Status] = {"stop": "stopped", "stop_now": "stopped", "suspend": "suspended"}
"""Status of a run whose job had not begun, by the command that ended it."""


class DroppedError(Exception):
    """The connection broke; the job may well continue. The text says how it broke."""


@dataclass(frozen=True)
class Offer:
    """A machine that can be had at a place.

    Attributes:
        name: name of the machine there, for people; for a service its flavor.
        machine: its facts, as far as the place tells them; memory counts as free.
        usd_per_hour: price by the service's own list; None where nothing is asked, or it does not say.
        gpus: number of its GPUs.
        longest_s: longest time that a job may take there, seconds; None where nothing limits it.
    """

    name: str
    machine: MachineFacts
    usd_per_hour: float | None = None
    gpus: int = 0
    longest_s: int | None = None


@dataclass(frozen=True)
class MirrorPosition:
    """Lines that the follower has already: events of an attempt, hardware samples up to a time (epoch, s)."""

    attempt: int
    events: int
    hardware_t: float


@dataclass(frozen=True)
class JobStatus:
    """Answer of the place about a job: whether it waits or works, and in which words."""

    alive: bool
    text: str = ""


class Backend(Protocol):
    """A way to another machine.

    All methods raise `SetupError` where the place refuses, and `DroppedError` where it cannot be reached just now.
    """

    def offers(self) -> Sequence[Offer]:
        """List the machines that can be had, the cheapest first."""
        ...

    def check(self, bundle: Bundle, offer: Offer) -> str:  # noqa: ARG002  most places judge nothing beforehand
        """Let the place judge the job without starting it; return what it says, empty where it cannot."""
        return ""

    def submit(self, bundle: Bundle, offer: Offer, name: str) -> RemoteJob:
        """Send the bundle and start the job.

        Args:
            bundle: what to send.
            offer: machine to take.
            name: name of the run, unlike all others.
        """
        ...

    def restart(self, job: RemoteJob) -> RemoteJob:
        """Start a job again that has ended; it continues from what it saved."""
        ...

    def lines(self, job: RemoteJob, position: MirrorPosition) -> Iterator[RelayLine]:
        """Yield the job's progress from a position on; it may begin earlier. Ends after the line that ends the job."""
        ...

    def status(self, job: RemoteJob) -> JobStatus:
        """Ask what became of a job that reports nothing."""
        ...

    def send(self, job: RemoteJob, command: Command) -> JobEnd | None:
        """Hand a command to the run; return how the job ended, where the command ended one that had not begun."""
        ...

    def fetch(self, job: RemoteJob, files: Sequence[str], target: Path) -> None:
        """Bring files of the run's folder into a folder here, by their paths."""
        ...

    def release(self, job: RemoteJob) -> None:
        """Give back what the job held, after its result is here."""
        ...
