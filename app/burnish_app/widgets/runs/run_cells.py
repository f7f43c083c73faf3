"""Cells of the table of runs that are drawn: the status as a pill, and the loss or reward as a small curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import PILL_PX, SMALL_PX, UNIT
from burnish_app.wording.run_text import Tone

_SOFT: dict[Tone, tuple[str, str]] = {
    "plain": ("raised", "muted"),
    "live": ("accent_soft", "accent_ink"),
    "success": ("success_soft", "success"),
    "warning": ("warning_soft", "warning"),
    "error": ("error_soft", "error"),
}
_SPARK_PX = (120, 28)
_FILL = 0.08
Index = QModelIndex | QPersistentModelIndex


def draw_curve(painter: QPainter, place: QRectF, values: Sequence[float], color: str) -> None:
    """Draw a small curve with a soft fill below it, scaled to its own range.

    Args:
        painter: painter to draw with.
        place: rectangle that the curve fills.
        values: values from left to right.
        color: color as #rrggbb.
    """
    if len(values) < 2:
        return
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    points = [
        QPointF(
            place.left() + place.width() * at / (len(values) - 1),
            place.bottom() - place.height() * (value - low) / span,
        )
        for at, value in enumerate(values)
    ]
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    fill = QColor(color)
    fill.setAlphaF(_FILL)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(fill)
    painter.drawPolygon(QPolygonF([*points, place.bottomRight(), place.bottomLeft()]))
    painter.setPen(QPen(QColor(color), 1.6, j=Qt.PenJoinStyle.RoundJoin))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawPolyline(QPolygonF(points))


class PillDelegate(QStyledItemDelegate):
    """Draws a cell's text as a pill.

    Args:
        parent: table.
        tone_of: function that returns the tone of a row.
    """

    def __init__(self, parent: QWidget, tone_of: Callable[[int], Tone]) -> None:
        super().__init__(parent)
        self._tone_of = tone_of

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Draw the cell's ground and the pill."""
        widget = option.widget
        _draw_ground(painter, option)
        colors = colors_of(widget)
        soft, ink = (getattr(colors, name) for name in _SOFT[self._tone_of(index.row())])
        text = str(index.data() or "")
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(font(SMALL_PX, medium=True))
        height = scaled(PILL_PX)
        width = min(QFontMetricsF(painter.font()).horizontalAdvance(text) + 18, option.rect.width() - UNIT)
        pill = QRectF(option.rect.left() + 5, option.rect.center().y() - height / 2 + 1, width, height)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(soft))
        painter.drawRoundedRect(pill, height / 2, height / 2)
        painter.setPen(QColor(ink))
        painter.drawText(pill, Qt.AlignmentFlag.AlignCenter, text)
        painter.restore()


class CurveDelegate(QStyledItemDelegate):
    """Draws the loss of a run, or its reward, as a small curve.

    Args:
        parent: table.
        values_of: function that returns the values of a row.
    """

    def __init__(self, parent: QWidget, values_of: Callable[[int], Sequence[float]]) -> None:
        super().__init__(parent)
        self._values_of = values_of

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Draw the cell's ground and the curve."""
        widget = option.widget
        _draw_ground(painter, option)
        width, height = _SPARK_PX
        middle = option.rect.center().y()
        place = QRectF(option.rect.left() + 5, middle - height / 2 + 3, width - 10, height - 6)
        painter.save()
        draw_curve(painter, place, self._values_of(index.row()), colors_of(widget).series[0].color)
        painter.restore()


class RunCurve(QWidget):
    """The loss of one run, or its reward, as a curve over the width of a card. It is hidden where it would be no line.

    Attributes:
        values: losses or rewards, from the first step to the last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.values: Sequence[float] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def show_values(self, values: Sequence[float], *, of_rewards: bool) -> None:
        """Show a run's curve.

        Args:
            values: losses or rewards, from the first step to the last.
            of_rewards: whether they are rewards.
        """
        self.setAccessibleName(tr("Reward over the steps") if of_rewards else tr("Loss over the steps"))
        self.setVisible(len(values) > 1)
        if values != self.values:
            self.values = values
            self.update()

    def sizeHint(self) -> QSize:
        """Return the preferred size."""
        return QSize(240, 88)

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size."""
        return QSize(120, 72)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the curve."""
        painter = QPainter(self)
        draw_curve(painter, QRectF(self.rect()).adjusted(1, 4, -1, -2), self.values, colors_of(self).series[0].color)


def _draw_ground(painter: QPainter, option: QStyleOptionViewItem) -> None:
    """Draw what is behind a cell, such as the selection."""
    option.widget.style().drawPrimitive(QStyle.PrimitiveElement.PE_PanelItemViewItem, option, painter, option.widget)
