"""Reports a job's progress as lines: `python -m burnish_engine.remote.there.relay FOLDER --events N --hardware T`.

It reads the folder only, so it may run on another host that sees the folder, any number of times, and end at any time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from burnish_engine.contract.files import read_plain
from burnish_engine.contract.run.growing_file import GrowingFile
from burnish_engine.contract.run.state import RunStateFile
from burnish_engine.remote.there.job_folder import JobEnd, JobFolder
from burnish_engine.remote.there.relay_line import RelayLine, write_line

POLL_S = 0.25
_BEAT_S = 2.0  # a line at least so often: a connection that broke is noticed by writing
_LOST_AFTER_S = 90.0  # the job's counter stands still: its host is gone


class Relay:
    """Turns what is new in a job's folder into lines.

    Args:
        folder: folder of the job.
        write: function that sends a line.
        events: number of events that the reader has already.
        hardware_t: time of the newest hardware sample that the reader has already, seconds since the epoch.
        attempt: number of the attempt that the lines belong to.
    """

    def __init__(
        self,
        folder: JobFolder,
        write: Callable[[str], object],
        *,
        events: int = 0,
        hardware_t: float = 0.0,
        attempt: int = 0,
    ) -> None:
        self._folder, self._write = folder, write
        self._events = GrowingFile(folder.run.events)
        self._hardware = GrowingFile(folder.run.hardware)
        self._seen, self._wanted, self._hardware_t = 0, events, hardware_t
        self._state: RunStateFile | None = None
        self._told = float("-inf")
        self.attempt = attempt

    def begin(self) -> None:
        """Say that an attempt begins, and how many events the run has.

        All of them are sent again: the last ones may have been saved by the attempt before, which ended before it sent
        them.
        """
        events = 0
        with suppress(OSError):
            events = self._folder.run.events.read_bytes().count(b"\n")
        self._send(RelayLine(kind="attempt", events=events))

    def step(self) -> None:
        """Send what is new."""
        while (lines := self._events.read()) is not None:
            if self._events.began_anew:
                self._seen = 0
            for line in lines:
                if self._seen >= self._wanted:
                    self._send(RelayLine(kind="event", text=line.decode("utf-8", errors="replace")))
                self._seen += 1
        while (lines := self._hardware.read()) is not None:
            for line in lines:
                self._send_sample(line)
        self._send_state()

    def end(self, end: JobEnd | None) -> None:
        """Say that nothing comes any more.

        Args:
            end: how the job ended; None where it could not say so.
        """
        self.step()
        if end is None:
            self._send(RelayLine(kind="end", text="The job is gone and could not say why."))
        else:
            self._send(
                RelayLine(kind="end", text=end.message, status=end.status, exit_code=end.exit_code, files=end.files)
            )

    def _send_sample(self, line: bytes) -> None:
        t = 0.0
        with suppress(ValueError, AttributeError, TypeError):
            t = float(json.loads(line).get("t", 0.0))
        if t > self._hardware_t:  # old samples are merged, which writes the file anew
            self._hardware_t = t
            self._send(RelayLine(kind="hardware", text=line.decode("utf-8", errors="replace")))

    def _send_state(self) -> None:
        state = None
        with suppress(OSError, ValueError):
            state = RunStateFile.model_validate_json(read_plain(self._folder.run.state))
        changed = state != self._state and not _only_beat(state, self._state)
        if changed or time.monotonic() - self._told >= _BEAT_S:
            self._state, self._told = state, time.monotonic()
            self._send(RelayLine(kind="state", text=state.model_dump_json() if state else ""))

    def _send(self, line: RelayLine) -> None:
        self._write(write_line(line.model_copy(update={"attempt": self.attempt})))


def _only_beat(one: RunStateFile | None, other: RunStateFile | None) -> bool:
    if one is None or other is None:
        return False
    return one.model_copy(update={"heartbeat": other.heartbeat}) == other


class Liveness:
    """Judges whether a job lives: by its process on its own host, else by its counter."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._beat, self._moved = -1, time.monotonic()

    def is_lost(self) -> bool:
        """Whether the job began and is gone without a word."""
        record = self._folder.record()
        if record is None:
            return False
        if record.is_here:
            return not record.is_alive
        if record.beat != self._beat:
            self._beat, self._moved = record.beat, time.monotonic()
        return time.monotonic() - self._moved > _LOST_AFTER_S


def relay(folder: JobFolder, write: Callable[[str], object], *, events: int, hardware_t: float) -> None:
    """Report until the job has ended."""
    record = folder.record()
    reporter = Relay(folder, write, events=events, hardware_t=hardware_t, attempt=record.attempt if record else 0)
    liveness = Liveness(folder)
    while True:
        lost = liveness.is_lost()  # looked up before the end is: a job writes its end before it goes
        if end := folder.end():
            reporter.end(end)
            return
        if lost:
            reporter.end(None)
            return
        reporter.step()
        time.sleep(POLL_S)


def main(arguments: list[str]) -> int:
    """Report on standard output until the job has ended, or nobody reads any more."""
    parser = argparse.ArgumentParser(prog="relay")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--events", type=int, default=0)
    parser.add_argument("--hardware", type=float, default=0.0)
    asked = parser.parse_args(arguments)

    def write(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    try:
        relay(JobFolder(asked.folder), write, events=asked.events, hardware_t=asked.hardware)
    except OSError:  # nobody reads any more
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
