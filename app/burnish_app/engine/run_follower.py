"""Follows a run's folder: reads new events as they are written and folds them into a state, in a thread of its own.

The window gets complete `RunState` objects, at most five per second, however fast the run writes. Handing one over is
cheap, because states share their columns.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from PySide6.QtCore import QObject, Signal
from typing_extensions import override

from burnish_app.engine.threads import start_thread
from burnish_engine.contract.files import is_folder, read_with_retry
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.events import parse_event
from burnish_engine.contract.run.fold import RunState, fold
from burnish_engine.contract.run.growing_file import FoldedFile
from burnish_engine.contract.run.hardware_log import HardwareReader
from burnish_engine.contract.run.state import RunStateFile

POLL_S = 0.2
_MANY_PIECES = 8  # pieces of a megabyte; reading so many leaves much free memory behind
_DRAWN_S = 1.0  # time in which the window has drawn what was read


class EventsReader(FoldedFile[RunState]):
    """Reads the growing file of a run's events."""

    @override
    def _empty(self) -> RunState:
        return RunState()

    @override
    def _add(self, state: RunState, line: bytes) -> RunState:
        return fold(state, parse_event(line))


class RunFollower(QObject):
    """Follows one run at a time.

    Attributes:
        advanced: signal with (folder, `RunState`) when events came.
        state_file: signal with (folder, `RunStateFile`) when the run's state file changed.
        hardware: signal with (folder, `HardwareHistory`) when samples of the hardware came.
        gone: signal with the folder when it no longer exists.
    """

    advanced = Signal(str, object)
    state_file = Signal(str, object)
    hardware = Signal(str, object)
    gone = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, folder: str) -> None:
        """Follow one run from its first event and stop following any other.

        Args:
            folder: path of the run; empty: none.
        """
        self.stop()
        if folder:
            self._stop = threading.Event()
            self._thread = start_thread(self, self._work, folder, self._stop, name="run-follower")

    def stop(self) -> None:
        """Stop following and wait up to 2 s for the thread."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(2.0)

    def _work(self, folder: str, stop: threading.Event) -> None:
        paths = RunPaths(Path(folder))
        reader, samples = EventsReader(paths.events), HardwareReader(paths.hardware)
        last_summary: RunStateFile | None = None
        try:
            while not stop.is_set():
                if not is_folder(paths.root):
                    self.gone.emit(folder)
                    return
                pieces = _read_all(reader, stop)
                if pieces:
                    if pieces >= _MANY_PIECES:
                        return_free_memory()
                    self.advanced.emit(folder, reader.state)
                if _read_all(samples, stop):
                    self.hardware.emit(folder, samples.state)
                summary = _read_summary(paths.state)
                if summary is not None and summary != last_summary:
                    last_summary = summary
                    self.state_file.emit(folder, summary)
                stop.wait(_DRAWN_S if pieces >= _MANY_PIECES else POLL_S)
                if pieces >= _MANY_PIECES:
                    return_free_memory()
        except RuntimeError:
            return  # the window is gone


def _read_all(reader: FoldedFile[Any], stop: threading.Event) -> int:
    """Read everything new in a file and return the number of pieces that it took."""
    pieces = 0
    while reader.read() and not stop.is_set():
        pieces += 1
    return pieces


def _read_summary(path: Path) -> RunStateFile | None:
    try:
        return RunStateFile.model_validate_json(read_with_retry(path))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None


def return_free_memory() -> None:
    """Ask the C library to give back what it keeps for later; where it does so by itself, do nothing.

    glibc keeps the memory of a thread that parsed many lines: 20 MB after a run of 100,000 steps. See malloc_trim(3).
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library has no such function
            ctypes.CDLL(None).malloc_trim(0)
