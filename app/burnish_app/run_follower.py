"""Follows a run's folder: reads new events as they are written and folds them, in a thread of its own.

The window gets whole `RunState`s, at most five a second, however fast the run writes. They are cheap to hand over:
states share their columns.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError
from PySide6.QtCore import QObject, Signal

from burnish_app.run_state import RunState, fold
from burnish_engine.contract.events import parse_event
from burnish_engine.contract.files import read_with_retry
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.state import RunStateFile

POLL_S = 0.2
_CHUNK_BYTES = 2**20


@dataclass
class EventsReader:
    """Reads a growing events file piece by piece and folds its whole lines.

    Attributes:
        path: The file; it may not be there yet.
        state: What the lines read so far say.
        skipped: Lines that were no event this version knows.
    """

    path: Path
    state: RunState = field(default_factory=RunState)
    skipped: int = 0
    _offset: int = 0
    _rest: bytes = b""

    def read(self) -> bool:
        """Read one piece of what is new.

        Returns:
            Whether there was anything.
        """
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:  # another run took the folder's place
                    self.state, self._offset, self._rest = RunState(), 0, b""
                file.seek(self._offset)
                piece = file.read(_CHUNK_BYTES)
        except OSError:
            return False  # not there yet, gone, or held for a moment
        self._offset += len(piece)
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            try:
                self.state = fold(self.state, parse_event(line))
            except ValidationError:
                self.skipped += 1
        return bool(piece)


class RunFollower(QObject):
    """Follows one run at a time.

    Attributes:
        advanced: Emits (folder, `RunState`) when events came.
        state_file: Emits (folder, `RunStateFile`) when the run's summary changed.
        gone: Emits the folder when it is not there any more.
    """

    advanced = Signal(str, object)
    state_file = Signal(str, object)
    gone = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, folder: str) -> None:
        """Follow this run from its beginning and no other any more. An empty text follows none."""
        self.stop()
        if folder:
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._work, args=(folder, self._stop), name="run-follower", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Follow nothing."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(2.0)

    def _work(self, folder: str, stop: threading.Event) -> None:
        paths = RunPaths(Path(folder))
        reader = EventsReader(paths.events)
        told: RunStateFile | None = None
        try:
            while not stop.is_set():
                if not paths.root.is_dir():
                    self.gone.emit(folder)
                    return
                advanced = False
                while reader.read() and not stop.is_set():
                    advanced = True
                if advanced:
                    self.advanced.emit(folder, reader.state)
                summary = _read_summary(paths.state)
                if summary is not None and summary != told:
                    told = summary
                    self.state_file.emit(folder, summary)
                stop.wait(POLL_S)
        except RuntimeError:
            return  # the window is gone


def _read_summary(path: Path) -> RunStateFile | None:
    try:
        return RunStateFile.model_validate_json(read_with_retry(path))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None
