"""Writes what a job elsewhere reports into the run folder here, so that whoever reads it sees an ordinary run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from burnish_engine.contract.errors import NoSpaceError, UsageError
from burnish_engine.contract.facts.hardware import parse_hardware_line
from burnish_engine.contract.facts.remote_job import REMOTE_VERSION, RemoteJob
from burnish_engine.contract.files import cannot_write, write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.events import Event, parse_event
from burnish_engine.contract.run.state import RunStateFile, Status
from burnish_engine.remote.backends.backend import MirrorPosition
from burnish_engine.remote.there.relay_line import RelayLine
from burnish_engine.runs.hardware_file import HardwareFile, read_lines
from burnish_engine.runs.process import own_identity
from burnish_engine.runs.store import read_state, write_state
from burnish_engine.runs.versioned import read_versioned

_BEAT_S = 5.0
_LATEST_T = 1e11  # seconds since the epoch: no clock goes so wrong, and all later samples would be dropped
Listener = Callable[[Event], object]


@contextmanager
def handing_over(paths: RunPaths, where: str) -> Iterator[Callable[[str], None]]:
    """Let a run count as alive while it is planned, packed and sent, which may take long.

    Args:
        paths: paths of the run folder.
        where: place as the recipe names it.

    Yields:
        A function that records what is being done. Where the hand-over fails, the former state is written back, so
        that a job that had ended is started again the next time.
    """
    pid, created = own_identity()
    message, done = [""], threading.Event()
    former = read_state(paths)
    if former.status in ("running", "paused", "queued"):  # it never came to another machine
        former = former.model_copy(update={"status": "created"})

    def beat() -> None:
        changes = {"status": "running", "where": where, "pid": pid, "process_created": created}
        changes |= {"message": message[0], "heartbeat": time.time(), "exit_code": None}
        with suppress(NoSpaceError, UsageError):
            write_state(paths, read_state(paths).model_copy(update=changes))

    def keep_beating() -> None:
        while not done.wait(_BEAT_S):
            beat()

    def say(text: str) -> None:
        message[0] = text
        beat()

    beat()
    thread = threading.Thread(target=keep_beating, name="heartbeat", daemon=True)
    thread.start()
    handed_over = False
    try:
        yield say
        handed_over = True
    finally:
        done.set()
        thread.join()
        if not handed_over:
            write_state(paths, former.model_copy(update={"pid": None, "process_created": None}))


class GapError(Exception):
    """Events are missing between what is here and what came."""


def read_job(paths: RunPaths) -> RemoteJob | None:
    """Read the record of the run's job elsewhere; None where it has none.

    Raises:
        UsageError: The record is damaged, or of another version.
    """
    try:
        return read_versioned(paths.remote, RemoteJob, REMOTE_VERSION, what=str(paths.remote), remedy="")
    except FileNotFoundError:
        return None


def write_job(paths: RunPaths, job: RemoteJob) -> None:
    """Replace the record of the run's job."""
    write_atomic(paths.remote, job.model_dump_json(indent=1) + "\n")


class Mirror:
    """The one writer of a run folder whose run is elsewhere.

    Args:
        paths: paths of the run folder.
        job: job elsewhere.
        listener: callback given every event that is new.
    """

    def __init__(self, paths: RunPaths, job: RemoteJob, listener: Listener | None = None) -> None:
        self._paths, self._listener = paths, listener
        self.job = job
        self._events = 0
        with suppress(FileNotFoundError):
            self._events = _repair(paths.events)
        self._hardware_t = 0.0
        with suppress(OSError):
            self._hardware_t = max((line.t for line in read_lines(paths.hardware)), default=0.0)
        self._hardware: HardwareFile | None = None
        self._pid, self._created = own_identity()
        self._told: RunStateFile | None = None

    @property
    def position(self) -> MirrorPosition:
        """Lines that are here already."""
        return MirrorPosition(self.job.attempt, self._events, self._hardware_t)

    def take(self, line: RelayLine, *, over_gaps: bool = False) -> None:
        """Write down a line; repeats, and lines of an earlier attempt, are dropped.

        Args:
            line: line that came.
            over_gaps: whether to continue over missing events, which cannot be had any more.

        Raises:
            GapError: Events before this one are missing.
            NoSpaceError: The disk is full.
        """
        if line.attempt < self.job.attempt:
            return
        if line.kind == "attempt":
            self._begin(line)
        elif line.kind == "event":
            self._event(line.text, over_gaps=over_gaps)
        elif line.kind == "hardware":
            self._sample(line.text)
        elif line.kind == "state" and line.text:
            self._state(line.text)

    def say(self, message: str) -> None:
        """Record what the run waits for, as its message; a run that reports itself says more."""
        state = read_state(self._paths)
        self._write(state.model_copy(update={"message": message, "heartbeat": time.time()}))

    def own(self) -> None:
        """Record that this process stands for the run."""
        running: Status = "running"
        state = read_state(self._paths)
        changes = {"status": running, "where": self.job.where, "heartbeat": time.time(), "exit_code": None}
        self._write(state.model_copy(update=changes))

    def end(self, status: Status, exit_code: int, message: str = "") -> None:
        """Record how the run ended."""
        state = read_state(self._paths).model_copy(
            update={"status": status, "exit_code": exit_code, "message": message, "phase": "", "heartbeat": time.time()}
        )
        write_state(self._paths, state.model_copy(update={"pid": None, "process_created": None}))

    def let_go(self, message: str) -> None:
        """Record that nobody follows the run any more, though it may continue."""
        state = read_state(self._paths)
        write_state(self._paths, state.model_copy(update={"pid": None, "process_created": None, "message": message}))

    def _begin(self, line: RelayLine) -> None:
        """Another attempt continues from what was saved: later events were lost with the machine."""
        if line.attempt <= self.job.attempt:
            return
        if line.events < self._events:
            lines = self._paths.events.read_bytes().splitlines(keepends=True)
            # A new file, not a shorter one: readers see that they have to begin anew.
            write_atomic(self._paths.events, b"".join(one for one in lines if _number(one) < line.events))
            self._events = line.events
        self.job = self.job.model_copy(update={"attempt": line.attempt})
        write_job(self._paths, self.job)

    def _event(self, text: str, *, over_gaps: bool) -> None:
        try:
            event = parse_event(text)
        except ValidationError:
            return
        if event.seq < self._events or "\n" in text:  # JSON may hold a line feed between values; a line may not
            return
        if event.seq > self._events and not over_gaps:
            raise GapError
        try:
            with self._paths.events.open("ab", buffering=0) as file:
                file.write(text.encode() + b"\n")
        except OSError as error:
            raise cannot_write(self._paths.events, error) from error
        self._events = event.seq + 1
        if self._listener:
            self._listener(event)

    def _sample(self, text: str) -> None:
        try:
            line = parse_hardware_line(text)
        except ValidationError:
            return
        if self._hardware_t < line.t < _LATEST_T:
            self._hardware_t = line.t
            self._hardware = self._hardware or HardwareFile(self._paths.hardware)
            self._hardware.write(line)

    def _state(self, text: str) -> None:
        """Take over the state there; a final status waits until the result is here."""
        with suppress(ValidationError):
            told = RunStateFile.model_validate_json(text)
            here = read_state(self._paths)
            changes = {
                "run": here.run,
                "name": here.name,
                "recipe_hash": here.recipe_hash,
                "where": self.job.where,
                "created": here.created,
                "status": told.status if told.status in ("running", "paused") else "running",
                "message": "",
                "exit_code": None,
                # Clocks differ, so a beat there is a beat here; where it stands still, the run hangs.
                "heartbeat": here.heartbeat if self._told == told else time.time(),
            }
            self._told = told
            self._write(told.model_copy(update=changes))

    def _write(self, state: RunStateFile) -> None:
        with suppress(NoSpaceError):  # the next line tries again
            write_state(self._paths, state.model_copy(update={"pid": self._pid, "process_created": self._created}))


def _repair(path: Path) -> int:
    """Cut off a line torn by a crash; return the number of the event that comes next."""
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if whole != data:
        write_atomic(path, whole)
    return _number(whole.splitlines()[-1]) + 1 if whole else 0


def _number(line: bytes) -> int:
    """Return the position of an event in the file there, which is the one here unless lines were lost on the way."""
    with suppress(ValidationError):
        return parse_event(line.decode("utf-8", errors="replace")).seq
    return 0
