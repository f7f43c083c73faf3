"""The small card beside the cursor with the values at its step."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from burnish_app.look.fonts import scaled
from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import CONTROL_RADIUS_PX, SMALL_PX
from burnish_app.widgets.charts.lines import ChartLine

_PAD_PX, _ROW_PX, _DOT_PX, _GAP_PX, _AWAY_PX, _AXIS_PX = 8, 17, 14, 14, 12, 26

CardRow = tuple[ChartLine | None, str, str]
"""A row: the line whose color marks it, its label and its value."""


class HoverCard(QWidget):
    """A card over a plot. The mouse passes through it.

    Args:
        parent: view of the plot.
    """

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._view = parent
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._title, self._rows = "", tuple[CardRow, ...]()
        self.hide()

    @property
    def text(self) -> str:
        """The text of the card, a line for each row."""
        return "\n".join([self._title, *(f"{label} {value}".strip() for _, label, value in self._rows)])

    def show_at(self, x_px: float, title: str, rows: Sequence[CardRow], *, at_bottom: bool) -> None:
        """Show values beside a position.

        Args:
            x_px: distance of the cursor from the parent's left edge, pixels.
            title: first line.
            rows: further lines.
            at_bottom: whether the card stands at the bottom of the plot, so as not to hide a line at its top.
        """
        self._title, self._rows = title, tuple(rows)
        plain, strong = QFontMetrics(font(SMALL_PX)), QFontMetrics(font(SMALL_PX, bold=True))
        widths = [
            _DOT_PX + plain.horizontalAdvance(label) + _GAP_PX + strong.horizontalAdvance(value)
            for _, label, value in rows
        ]
        width = max([strong.horizontalAdvance(title), *widths]) + 2 * _PAD_PX
        self.resize(width, (1 + len(self._rows)) * scaled(_ROW_PX) + 2 * _PAD_PX - 4)
        room = self._view.width()
        left = x_px + _AWAY_PX if x_px + _AWAY_PX + width <= room else x_px - _AWAY_PX - width
        self.move(round(max(left, 0)), self._view.height() - self.height() - _AXIS_PX if at_bottom else 4)
        self.show()
        self.raise_()
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the card."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(colors.edge), 1))
        painter.setBrush(QColor(colors.surface))
        area = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        painter.drawRoundedRect(area, CONTROL_RADIUS_PX, CONTROL_RADIUS_PX)
        left, right = float(_PAD_PX), float(self.width() - _PAD_PX)
        row = QRectF(left, _PAD_PX - 2, right - left, scaled(_ROW_PX))
        painter.setPen(QColor(colors.text))
        painter.setFont(font(SMALL_PX, bold=True))
        painter.drawText(row, Qt.AlignmentFlag.AlignVCenter, self._title)
        for line, label, value in self._rows:
            row.translate(0, scaled(_ROW_PX))
            if line is not None:
                painter.setPen(Qt.PenStyle.NoPen)
                color = line.pen(colors).color()
                painter.setBrush(color)
                painter.drawEllipse(QPointF(left + 4, row.center().y()), 3.5, 3.5)
            painter.setFont(font(SMALL_PX))
            painter.setPen(QColor(colors.muted))
            painter.drawText(row.adjusted(_DOT_PX, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, label)
            painter.setFont(font(SMALL_PX, bold=True))
            painter.setPen(QColor(colors.text))
            painter.drawText(row, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, value)
