"""Event log of a run: one writer appends, any number of readers follow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.files import cannot_write, refuse_special
from burnish_engine.contract.run.events import Event, parse_event
from burnish_engine.contract.run.fold import RunState, fold_all


class EventWriter:
    """Append events, with one unbuffered write per line. Opening the file cuts off a line torn by a crash."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._next_seq = _repair(path)
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise cannot_write(path, error) from error

    def write(self, event: Event) -> Event:
        """Stamp and append one event.

        Raises:
            NoSpaceError: The line could not be written whole; the written part is cut off again.
        """
        stamped = event.model_copy(update={"seq": self._next_seq, "t": time.time()})
        line = stamped.model_dump_json().encode() + b"\n"
        start = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                self._file.truncate(start)
                raise NoSpaceError(
                    f"The disk is full: {self._path} could not be written.", "Free some space, then resume the run."
                )
        except OSError as error:
            raise cannot_write(self._path, error) from error
        self._next_seq += 1
        return stamped

    def sync(self) -> None:
        """Wait until everything written is on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_events(path: Path) -> Iterator[Event]:
    """Yield all whole, known events of a log, in order, skipping a torn last line and lines of newer versions."""
    try:
        refuse_special(path)
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    try:
                        yield parse_event(line)
                    except ValidationError:
                        continue
    except FileNotFoundError:
        return


def read_run(path: Path) -> RunState:
    """Read what all events of a log add up to."""
    return fold_all(RunState(), read_events(path))


def _repair(path: Path) -> int:
    """Cut off a torn last line; return the next sequence number."""
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        data = file.read()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            file.truncate(whole)
    return data[:whole].count(b"\n")
