"""The small picture of a run's line, beside its title."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPixmap
from PySide6.QtWidgets import QWidget

from burnish_app.look.theme import colors_of
from burnish_app.widgets.charts.lines import ChartLine

_WIDTH_PX, _HEIGHT_PX = 22, 12


def swatch(widget: QWidget, place: int) -> QPixmap:
    """Draw a piece of a run's line.

    Args:
        widget: widget whose theme it is drawn for.
        place: place of the run among those compared.
    """
    ratio = widget.devicePixelRatioF()
    made = QPixmap(round(_WIDTH_PX * ratio), round(_HEIGHT_PX * ratio))
    made.setDevicePixelRatio(ratio)
    made.fill(Qt.GlobalColor.transparent)
    painter = QPainter(made)
    _draw(painter, widget, place, _HEIGHT_PX / 2)
    painter.end()
    return made


class Swatch(QWidget):
    """A piece of a run's line.

    Args:
        place: place of the run among those compared.
    """

    def __init__(self, place: int) -> None:
        super().__init__()
        self._place = place
        self.setFixedSize(QSize(_WIDTH_PX, _HEIGHT_PX + 6))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the line."""
        _draw(QPainter(self), self, self._place, self.height() / 2)


def _draw(painter: QPainter, widget: QWidget, place: int, middle: float) -> None:
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    colors = colors_of(widget)
    pen = ChartLine("", place, "points").pen(colors)
    pen.setCosmetic(False)
    painter.setPen(pen)
    painter.drawLine(QPointF(1, middle), QPointF(_WIDTH_PX - 2, middle))
    painter.setBrush(pen.color())
    painter.setPen(Qt.PenStyle.NoPen)
    painter.drawEllipse(QPointF(_WIDTH_PX / 2, middle), 3, 3)
