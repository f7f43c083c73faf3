"""Lets the engine write a run's report, a page for the browser, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, QProcess, Signal

from burnish_app.engine_setup.engine_command import engine_command
from burnish_app.look.language import tr

PAGE = "report.html"
"""Name of the page in a run's folder, and in the folder of a demo around its run."""
_RUN_OF_DEMO = "run"


class RunReport(QObject):
    """Writes one report at a time.

    Args:
        parent: parent in Qt's object tree.
        command: function that returns the command line of the engine with these arguments.

    Attributes:
        written: signal with the path of the page.
        failed: signal with what the engine said.
    """

    written = Signal(str)
    failed = Signal(str)

    def __init__(self, parent: QObject, command: Callable[..., tuple[str, ...]] = engine_command) -> None:
        super().__init__(parent)
        self._command = command
        self._process: QProcess | None = None
        self._page = Path()

    @property
    def is_busy(self) -> bool:
        """Whether a report is being written."""
        return self._process is not None

    def write(self, folder: Path) -> None:
        """Write the report of a run; that of the demo around it is there already.

        Args:
            folder: folder of the run.
        """
        if self.is_busy:
            return
        around = folder.parent / PAGE
        if folder.name == _RUN_OF_DEMO and around.is_file():
            self.written.emit(str(around))
            return
        self._page = folder / PAGE
        command = self._command("runs", "report", str(folder), "--out", str(self._page))
        if not command:
            self.failed.emit(tr("No engine is set up."))
            return
        process = self._process = QProcess(self)
        process.finished.connect(self._ended)
        process.errorOccurred.connect(self._errored)
        process.start(command[0], list(command[1:]))

    def _errored(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:  # the only error after which `finished` does not come
            self._ended(-1)

    def _ended(self, code: int, _status: object = None) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        said = bytes(process.readAllStandardError().data()).decode("utf-8", "replace").strip()
        process.deleteLater()
        if code == 0:
            self.written.emit(str(self._page))
        else:
            self.failed.emit(said or tr("The report could not be written."))
