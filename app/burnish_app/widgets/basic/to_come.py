"""A pale sample of cards that are still to come, alone on a page at work, or below what is missing."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import GAP_PX, RADIUS_PX, UNIT
from burnish_app.widgets.basic.card import Card, EmptyState
from burnish_app.widgets.basic.layouts import fill

_PALE = 0.75
_TITLE_PX, _LINE_PX = 10, 6
_SHARES = (0.82, 0.64, 0.9, 0.52, 0.74)
"""Widths of the lines of a card, as shares of it."""
_LEAST_CARD_PX = 120


class CardsToCome(QWidget):
    """Draws the outlines of cards with lines in place of their text, and says when the real ones come.

    Args:
        text: sentence in the middle that says what is awaited.
        cards: number of cards in each row, from the top.
    """

    def __init__(self, text: str, cards: tuple[int, ...] = (2, 1)) -> None:
        super().__init__()
        self._text, self._cards = text, cards
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName(text)

    def sizeHint(self) -> QSize:
        """Return the preferred size."""
        return QSize(480, len(self._cards) * _LEAST_CARD_PX)

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size."""
        return QSize(240, _LEAST_CARD_PX)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the cards and the text."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setOpacity(_PALE)
        height = (self.height() - GAP_PX * (len(self._cards) - 1)) / len(self._cards)
        for row, count in enumerate(self._cards):
            width = (self.width() - GAP_PX * (count - 1)) / count
            for column in range(count):
                place = QRectF(column * (width + GAP_PX), row * (height + GAP_PX), width, height)
                self._draw_card(painter, place.adjusted(0.5, 0.5, -0.5, -0.5), QColor(colors.line), row + column)
        painter.setOpacity(1.0)
        painter.setFont(font(medium=True))
        wrapped = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
        room = self.rect().adjusted(3 * UNIT, 0, -3 * UNIT, 0)
        words = painter.fontMetrics().boundingRect(room, wrapped, self._text)
        painter.setPen(QPen(QColor(colors.line), 1))
        painter.setBrush(QColor(colors.surface))
        painter.drawRoundedRect(words.adjusted(-2 * UNIT, -UNIT, 2 * UNIT, UNIT), RADIUS_PX, RADIUS_PX)
        painter.setPen(QColor(colors.muted))
        painter.drawText(room, wrapped, self._text)

    @staticmethod
    def _draw_card(painter: QPainter, place: QRectF, color: QColor, turn: int) -> None:
        painter.setPen(QPen(color, 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(place, RADIUS_PX, RADIUS_PX)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color)
        inner = place.adjusted(2.5 * UNIT, 2.5 * UNIT, -2.5 * UNIT, -2.5 * UNIT)
        painter.drawRoundedRect(QRectF(inner.left(), inner.top(), inner.width() * 0.28, _TITLE_PX), 4, 4)
        top = inner.top() + 4 * UNIT
        for number in range(int((inner.bottom() - top) / (3 * UNIT)) + 1):
            share = _SHARES[(number + turn) % len(_SHARES)]
            painter.drawRoundedRect(
                QRectF(inner.left(), top + number * 3 * UNIT, inner.width() * share, _LINE_PX), 3, 3
            )


class NothingYet(QWidget):
    """Shows an empty state in a card, and a sample below it that takes the rest of a page that fills its height.

    Args:
        empty: empty state with the way on.
        sample: pale sample of the later content.
    """

    def __init__(self, empty: EmptyState, sample: QWidget) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
        card = Card()
        card.body.addWidget(empty)
        fill(QVBoxLayout(self), card, (sample, 1), spacing_px=GAP_PX)
