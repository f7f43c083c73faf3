"""The text boxes of the page Try it: the transcript of a conversation, and the person's message."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QKeyEvent, QPainter, QPaintEvent, QPalette, QTextCharFormat, QTextCursor, QTextFormat
from PySide6.QtWidgets import QPlainTextEdit, QTextEdit

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of
from burnish_app.look.tokens import UNIT

COLOR_PROPERTY = QTextFormat.Property.UserProperty.value + 1
"""Property of a text's format: the name of its color, which themes differ in."""


class Transcript(QTextEdit):
    """A text whose placeholder wraps: Qt 6.11 draws the first line of it alone."""

    def __init__(self) -> None:
        self._recolor_soon = QTimer(singleShot=True, interval=0)
        super().__init__()
        self._recolor_soon.setParent(self)
        self._recolor_soon.timeout.connect(self.recolor)

    def recolor(self) -> None:
        """Give all text its color of the theme as it is now."""
        pieces = []
        block = self.document().begin()
        while block.isValid():
            place = block.begin()
            while not place.atEnd():
                piece = place.fragment()
                name = piece.charFormat().property(COLOR_PROPERTY)
                if name:
                    pieces.append((piece.position(), piece.length(), str(name)))
                place += 1
            block = block.next()
        cursor = QTextCursor(self.document())
        for position, length, name in pieces:
            cursor.setPosition(position)
            cursor.setPosition(position + length, QTextCursor.MoveMode.KeepAnchor)
            how = QTextCharFormat()
            how.setForeground(QColor(getattr(colors_of(self.window()), name)))
            cursor.mergeCharFormat(how)

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme, once the style sheet has its final palette."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._recolor_soon.start()

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
    """The box for the person's message. Return sends it, with Shift it begins a new line.

    Attributes:
        sent: signal without arguments, emitted by Return.
    """

    sent = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setFixedHeight(scaled(9 * UNIT))
        self.setTabChangesFocus(True)
        self.setPlaceholderText(tr("Your message goes to every model above. Return sends it."))
        self.setAccessibleName(tr("Your message"))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Send on Return; Ctrl+Return does so everywhere on the page."""
        is_return = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if is_return and not event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
            self.sent.emit()
        else:
            super().keyPressEvent(event)
