"""The view of one training row as the model sees it, with supervised (learned) text on a tint."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent
from PySide6.QtGui import QColor, QTextBlockFormat, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of, font

_LINE_PERCENT = 125
_MAX_CHARACTERS = 12_000  # laying out more would hold up the window


class ExampleView(QPlainTextEdit):
    """Shows read-only text made of (text, is it supervised) pieces."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._pieces: tuple[tuple[str, bool], ...] = ()
        self._tokens = False
        self.setReadOnly(True)
        self.setFont(font(mono=True))
        self.setAccessibleName(tr("One training row; learned text has a tint"))
        self.setMinimumHeight(160)

    def show_pieces(self, pieces: Sequence[tuple[str, bool]], *, tokens: bool = False) -> None:
        """Show a row.

        Args:
            pieces: pieces of the row, in order; a row beyond 12,000 characters is cut, and the end says so.
            tokens: whether to show each piece as a token: the tints of learned ones alternate.
        """
        self._pieces, self._tokens = tuple(pieces), tokens
        self._write()

    def set_tokens(self, *, shown: bool) -> None:
        """Show the borders of tokens, or not."""
        self._tokens = shown
        self._write()

    def changeEvent(self, event: QEvent) -> None:
        """Rewrite the text when the palette changes."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and self._pieces:
            self._write()

    def _write(self) -> None:
        colors = colors_of(self)
        learned, context = QTextCharFormat(), QTextCharFormat()
        learned.setForeground(QColor(colors.text))
        learned.setBackground(QColor(colors.tokens[0]))
        context.setForeground(QColor(colors.muted))
        self.clear()
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        airy = QTextBlockFormat()
        airy.setLineHeight(_LINE_PERCENT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        cursor.setBlockFormat(airy)
        room = _MAX_CHARACTERS
        for number, (text, is_learned) in enumerate(self._pieces):
            style = learned if is_learned else context
            if self._tokens and (is_learned or number % 2):
                style = QTextCharFormat(style)
                style.setBackground(QColor(colors.tokens[number % len(colors.tokens)] if is_learned else colors.raised))
            cursor.insertText(text[:room], style)
            room -= len(text)
            if room <= 0:
                cursor.insertText(
                    tr("\n... and {value:,} more").format(value=sum(len(t) for t, _ in self._pieces) - _MAX_CHARACTERS),
                    context,
                )
                break
        cursor.endEditBlock()
        self.moveCursor(QTextCursor.MoveOperation.Start)
