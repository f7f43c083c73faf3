"""The card of the logs: the last lines of each, to read, to copy, and to find on the disk."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication, QShowEvent
from PySide6.QtWidgets import QPlainTextEdit

from burnish_app.engine_setup.log_files import MOST_LINES, log_files, log_text
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import font
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.buttons import quiet, row, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.pill import Segmented
from burnish_app.widgets.basic.text import PathLabel, caption
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_engine.contract.failure_report import masked
from burnish_engine.contract.files import make_private

_HEIGHT_PX, _TEXT_PX = 240, 12


class LogCard(Card):
    """Shows the logs.

    Args:
        engine_log: file of what the engine says.

    Attributes:
        choice: choice of the log.
        text: its last lines.
    """

    def __init__(self, engine_log: Path) -> None:
        super().__init__(
            tr("Logs"),
            tr("The last {count} lines of each. Nothing is sent anywhere.").format(count=MOST_LINES),
            icon_name="text",
        )
        self._logs = {log.key: log for log in log_files(engine_log)}
        self.choice = Segmented(tr("Log"), [(log.key, log.title) for log in self._logs.values()])
        self.choice.choose("engine")
        self.choice.chosen.connect(self.show_log)
        self.text = QPlainTextEdit()
        self.text.setReadOnly(True)
        self.text.setAccessibleName(tr("Last lines of the log"))
        self.text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.text.setFont(font(_TEXT_PX, mono=True))
        self.text.setMinimumHeight(scaled(_HEIGHT_PX))
        self._path = PathLabel("")
        actions = (
            secondary(tr("Copy"), self.copy, "copy"),
            secondary(tr("Open folder"), self._open_folder, "folder"),
            quiet(tr("Read again"), lambda: self.show_log(self.choice.value)),
        )
        self.body.addLayout(fill(FlowLayout(2 * UNIT, UNIT), self.choice, *actions))
        self.body.addWidget(self.text)
        self.body.addWidget(row(self._path))
        self.body.addWidget(caption(tr("A copy leaves secrets and the names of your own folders out.")))

    def show_log(self, key: str) -> None:
        """Read a log and show its end.

        Args:
            key: name of the log.
        """
        log = self._logs[key]
        self._path.setText(str(log.path))
        self.text.setPlainText(log_text(log))
        bar = self.text.verticalScrollBar()
        bar.setValue(bar.maximum())

    def copy(self) -> None:
        """Copy what is shown, without secrets and the names of the person's own folders."""
        QGuiApplication.clipboard().setText(masked(self.text.toPlainText()))

    def showEvent(self, event: QShowEvent) -> None:
        """Read the log when the card is seen."""
        super().showEvent(event)
        self.show_log(self.choice.value)

    def _open_folder(self) -> None:
        folder = self._logs[self.choice.value].path.parent
        make_private(folder)
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder)))
