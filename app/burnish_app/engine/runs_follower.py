"""Follows several runs' folders at once: reads new events in a thread and folds them into a state for each run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from burnish_app.engine.run_follower import EventsReader
from burnish_app.engine.threads import start_thread
from burnish_engine.contract.paths import RunPaths

_POLL_S = 1.0


class RunsFollower(QObject):
    """Follows a set of runs.

    Attributes:
        advanced: signal with a dict of folder to `RunState`, of all runs, when events of any came; the first one comes
            even if no run has events.
    """

    advanced = Signal(object)  # Qt would sort the keys of a dict

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, folders: Sequence[str]) -> None:
        """Follow these runs from their first event and stop following others.

        Args:
            folders: paths of the runs; empty: none.
        """
        self.stop()
        if folders:
            self._stop = threading.Event()
            self._thread = start_thread(self, self._work, tuple(folders), self._stop, name="runs-follower")

    def stop(self) -> None:
        """Stop following, without waiting for the thread: it ends after the piece that it reads."""
        self._stop.set()
        self._thread = None

    def _work(self, folders: tuple[str, ...], stop: threading.Event) -> None:
        readers = {folder: EventsReader(RunPaths(Path(folder)).events) for folder in folders}
        first = True
        try:
            while not stop.is_set():
                news = first
                for reader in readers.values():
                    while not stop.is_set() and reader.read():
                        news = True
                if news and not stop.is_set():
                    self.advanced.emit({folder: reader.state for folder, reader in readers.items()})
                first = False
                stop.wait(_POLL_S)
        except RuntimeError:
            return  # the window is gone
