"""The text boxes of the page Try it: the transcript of a conversation, and the person's message."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import QPlainTextEdit, QTextEdit

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT


class Transcript(QTextEdit):
    """A text whose placeholder wraps: Qt 6.11 draws the first line of it alone."""

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the text, or the whole placeholder."""
        if not self.document().isEmpty():
            super().paintEvent(event)
            return
        room = (
            self.viewport()
            .rect()
            .adjusted(*[round(self.document().documentMargin()) * side for side in (1, 1, -1, -1)])
        )
        painter = QPainter(self.viewport())
        painter.setPen(self.palette().color(QPalette.ColorRole.PlaceholderText))
        painter.drawText(room, int(Qt.AlignmentFlag.AlignTop) | int(Qt.TextFlag.TextWordWrap), self.placeholderText())


class PromptBox(QPlainTextEdit):
    """The box for the person's message; Ctrl+Return sends it (the page's primary action)."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedHeight(scaled(9 * UNIT))
        self.setTabChangesFocus(True)
        self.setPlaceholderText(tr("Your message goes to every model above. Ctrl+Return sends it."))
        self.setAccessibleName(tr("Your message"))
