"""Follows a running export: reads its `export/job.json` in a thread of its own, a few times per second.

`RunsPoller` asks for all runs less often; only the engine can tell whether the process of an export still exists.
"""

from __future__ import annotations

import threading
from pathlib import Path

from pydantic import ValidationError
from PySide6.QtCore import QObject, Signal

from burnish_app.engine.threads import start_thread
from burnish_engine.contract.files import read_with_retry
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.serve.replies import ExportJob

POLL_S = 0.3


class ExportFollower(QObject):
    """Follows one export at a time.

    Attributes:
        advanced: signal with (folder of the run, `ExportJob`) whenever the job changed.
    """

    advanced = Signal(str, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._stop = threading.Event()
        self._folder = ""

    def follow(self, folder: str) -> None:
        """Follow the export of one run and stop following any other.

        Args:
            folder: path of the run; empty: none.
        """
        if folder == self._folder:
            return
        self._stop.set()
        self._folder = folder
        if folder:
            self._stop = threading.Event()
            start_thread(self, self._work, folder, self._stop, name="export-follower")

    def _work(self, folder: str, stop: threading.Event) -> None:
        file, last_content = RunPaths(Path(folder)).export_job, b""
        while not stop.wait(POLL_S):
            try:
                content = read_with_retry(file).encode()
                if content == last_content:
                    continue
                job = ExportJob.model_validate_json(content)
            except (OSError, ValidationError, UnicodeDecodeError):
                continue  # not there yet, or being replaced
            last_content = content
            try:
                self.advanced.emit(folder, job)
            except RuntimeError:
                return  # the window is gone
