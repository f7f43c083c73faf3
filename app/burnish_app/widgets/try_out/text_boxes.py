"""The text boxes of the page Try it: the transcript of a conversation, and the person's message."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QEvent, QRectF, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import (
    QColor,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QPalette,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextDocumentFragment,
    QTextFormat,
)
from PySide6.QtWidgets import QPlainTextEdit, QTextEdit

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of
from burnish_app.look.tokens import RADIUS_PX, UNIT

COLOR_PROPERTY = QTextFormat.Property.UserProperty.value + 1
"""Property of a text's format: the name of its color, which themes differ in."""
TINT_PROPERTY = COLOR_PROPERTY + 1
"""Property of a text's format: the name of the color behind it."""
PLAIN = "plain"
"""Value of it for text that is not marked any more."""
_BUBBLE_PROPERTY = COLOR_PROPERTY + 2
"""Property of a paragraph's format: the name of the color of the bubble around it."""
_PAD_PX, _OWN_PX = 10, 40  # between a bubble's edge and its text; left of the person's own
_LINE_PERCENT = 120.0
_MARKDOWN = re.compile(r"(^|\n)(```|#{1,6} |[-*+] |\d+[.)] |> |\|)|\*\*\S|`[^`\n]+`")
"""Signs of Markdown; a text without any is shown as it is, with its spaces and line ends."""


class Transcript(QTextEdit):
    """A text whose placeholder wraps: Qt 6.11 draws the first line of it alone."""

    def __init__(self) -> None:
        self._recolor_soon = QTimer(singleShot=True, interval=0)
        super().__init__()
        self._recolor_soon.setParent(self)
        self._recolor_soon.timeout.connect(self.recolor)

    def recolor(self) -> None:
        """Give all text its color of the theme as it is now."""
        cursor = QTextCursor(self.document())
        for position, length, name in self.pieces(COLOR_PROPERTY):
            cursor.setPosition(position)
            cursor.setPosition(position + length, QTextCursor.MoveMode.KeepAnchor)
            how = QTextCharFormat()
            how.setForeground(QColor(getattr(colors_of(self.window()), name)))
            cursor.mergeCharFormat(how)
        self._tint()

    def bubble(self, color: str, *, own: bool) -> QTextBlockFormat:
        """Make the format of paragraphs in a bubble.

        Args:
            color: name of the bubble's color in the theme.
            own: whether it is the person's message, which stands to the right.
        """
        made = QTextBlockFormat()
        made.setProperty(_BUBBLE_PROPERTY, color)
        made.setLeftMargin(scaled(_PAD_PX + (_OWN_PX if own else 0)))
        made.setRightMargin(scaled(_PAD_PX))
        made.setLineHeight(_LINE_PERCENT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        return made

    def show_markdown(self, begin: int, text: str) -> None:
        """Show the last reply as the Markdown that it is; HTML and pictures in it stay text.

        Args:
            begin: position of its first character.
            text: the reply.
        """
        if not _MARKDOWN.search(text):
            return
        how = QTextDocument.MarkdownFeature.MarkdownDialectGitHub | QTextDocument.MarkdownFeature.MarkdownNoHTML
        cursor = QTextCursor(self.document())
        cursor.setPosition(begin)
        paragraph = cursor.blockFormat()
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.insertFragment(QTextDocumentFragment.fromMarkdown(_with_line_ends(text), how))
        cursor.setPosition(begin)
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.mergeBlockFormat(paragraph)

    def loadResource(self, kind: int, name: QUrl | str) -> Any:
        """Load nothing that a reply names, such as a picture on this machine."""
        return None

    def text_from(self, begin: int) -> str:
        """Return the text from a position on."""
        return self.toPlainText()[begin:]

    def mark(self, begin: int, spans: Sequence[tuple[int, int]]) -> None:
        """Mark stretches of the text from a position on, and nothing else there."""
        cursor = QTextCursor(self.document())
        for first, last, name in (
            (0, len(self.text_from(begin)), PLAIN),
            *((*span, "warning_soft") for span in spans),
        ):
            cursor.setPosition(begin + first)
            cursor.setPosition(begin + last, QTextCursor.MoveMode.KeepAnchor)
            how = QTextCharFormat()
            how.setProperty(TINT_PROPERTY, name)
            cursor.mergeCharFormat(how)
        self._tint()

    def pieces(self, prop: int) -> list[tuple[int, int, str]]:
        """List position, length and value of all text that has a property."""
        found, block = [], self.document().begin()
        while block.isValid():
            place = block.begin()
            while not place.atEnd():
                piece = place.fragment()
                name = piece.charFormat().property(prop)
                if isinstance(name, str) and name:
                    found.append((piece.position(), piece.length(), name))
                place += 1
            block = block.next()
        return found

    def _tint(self) -> None:
        cursor = QTextCursor(self.document())
        for position, length, name in self.pieces(TINT_PROPERTY):
            cursor.setPosition(position)
            cursor.setPosition(position + length, QTextCursor.MoveMode.KeepAnchor)
            how = QTextCharFormat()
            color = QColor(0, 0, 0, 0) if name == PLAIN else QColor(getattr(colors_of(self.window()), name))
            how.setBackground(color)
            cursor.mergeCharFormat(how)

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme, once the style sheet has its final palette."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._recolor_soon.start()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the text, or the whole placeholder."""
        if not self.document().isEmpty():
            self._paint_bubbles()
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

    def _paint_bubbles(self) -> None:
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.translate(-self.horizontalScrollBar().value(), -self.verticalScrollBar().value())
        pad, layout = scaled(_PAD_PX), self.document().documentLayout()
        block, around, color = self.document().begin(), QRectF(), ""
        while True:
            name = str(block.blockFormat().property(_BUBBLE_PROPERTY) or "") if block.isValid() else ""
            if color and name != color:
                painter.setBrush(QColor(getattr(colors_of(self.window()), color)))
                painter.drawRoundedRect(around.adjusted(0, -0.7 * pad, 0, 0.7 * pad), RADIUS_PX, RADIUS_PX)
                around = QRectF()
            if not block.isValid():
                return
            if name:
                whole = layout.blockBoundingRect(block)
                whole.setLeft(block.blockFormat().leftMargin() - pad)
                whole.setRight(self.viewport().width() + self.horizontalScrollBar().maximum() - 2)
                around = around.united(whole)
            color, block = name, block.next()


def _with_line_ends(text: str) -> str:
    """Keep single line ends, which Markdown would join, outside of code."""
    parts = text.split("```")
    return "```".join(part if at % 2 else re.sub(r"(?<!\n)\n(?!\n)", "  \n", part) for at, part in enumerate(parts))


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
