"""Catches exceptions that nobody expected, in any thread: writes a report about each, and shows it."""

from __future__ import annotations

import sys
import threading
import traceback
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QObject, Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QApplication, QLabel, QMessageBox

from burnish_app.look.language import tr
from burnish_app.state.preferences import studio_dir
from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.failure_report import failure_report, save_report

_MOST_NOTICES = 5
"""Notices of one session: a timer that fails would show one after the other."""


class BugNotice(QObject):
    """Reports unexpected exceptions of this process.

    Args:
        parent: application.

    Attributes:
        box: notice that is open; None: none is.
    """

    _reported = Signal(str, str)

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.box: QMessageBox | None = None
        self._seen: set[str] = set()
        self._reported.connect(self._show, Qt.ConnectionType.QueuedConnection)  # it may come from another thread

    def install(self) -> None:
        """Take what Python would only print, and print it all the same."""
        sys.excepthook = self.take
        threading.excepthook = lambda args: self.take(args.exc_type, args.exc_value, args.exc_traceback)

    def take(self, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        """Print an exception, and report it when it is the first at its place."""
        sys.__excepthook__(kind, error or kind(), trace)
        if not issubclass(kind, Exception):
            return
        places = traceback.extract_tb(trace)
        place = f"{kind.__name__} {places[-1].filename}:{places[-1].lineno}" if places else kind.__name__
        if place in self._seen or len(self._seen) >= _MOST_NOTICES:
            return
        self._seen.add(place)
        details = "".join(traceback.format_exception(kind, error, trace))
        text = failure_report("burnish studio", details, logs=[studio_dir() / "serve.log"])
        try:
            self._reported.emit(str(save_report(text)), text)
        except (OSError, NoSpaceError):
            self._reported.emit("", text)

    def _show(self, path: str, text: str) -> None:
        if self.box is not None:
            return
        self.box = QMessageBox(QApplication.activeWindow())
        self.box.setIcon(QMessageBox.Icon.Warning)
        self.box.setWindowTitle(tr("A bug in Burnish"))
        self.box.setText(tr("Something went wrong that should not have. What was running continues."))
        written = tr(
            "A report is in {file}, without paths and secrets. Nothing was sent: read it, then send it yourself."
        )
        self.box.setInformativeText(
            written.format(file=path) if path else tr("The report could not be written. It stands below.")
        )
        for label in self.box.findChildren(QLabel):
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.box.setDetailedText(text)
        if path:
            folder = self.box.addButton(tr("Open folder"), QMessageBox.ButtonRole.ActionRole)
            folder.clicked.connect(lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(str(Path(path).parent))))
        self.box.addButton(QMessageBox.StandardButton.Close)
        self.box.finished.connect(self._closed)
        self.box.open()

    def _closed(self) -> None:
        box, self.box = self.box, None
        if box is not None:
            box.deleteLater()
