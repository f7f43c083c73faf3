"""A small chart of the last ten minutes: a line or stacked areas over time, with a cursor shared by all of a group."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPainterPath, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from burnish_app.look.fonts import scaled
from burnish_app.look.theme import SMALL_PX, Colors, colors_of, font

Numbers = NDArray[np.float64]
_HEAD_PX, _PLOT_PX = 20, 64
_GAP_S = 5.0  # a longer time without a sample is drawn as a gap
_FILL_ALPHA = 38


@dataclass(frozen=True)
class Layer:
    """One line or area of a trace.

    Attributes:
        y: values; NaN: not known.
        color: name of the theme's color.
        filled: whether the area down to the layer before is filled with the color.
    """

    y: Numbers
    color: str = "accent"
    filled: bool = False


class Trace(QWidget):
    """A chart of one value over the last ten minutes.

    Args:
        name: heading of the chart.
        value_text: function that formats the values at one moment, one for each layer.
        span_s: time that the whole width shows, seconds.

    Attributes:
        pointed: signal with the moment under the pointer, seconds since the epoch; None when the pointer left.
    """

    pointed = Signal(object)

    def __init__(self, name: str, value_text: Callable[[Sequence[float]], str], span_s: float = 600.0) -> None:
        super().__init__()
        self._name, self._value_text, self._span_s = name, value_text, span_s
        self._t: Numbers = np.empty(0)
        self._layers: Sequence[Layer] = ()
        self._shaded: Numbers = np.empty(0)
        self._low, self._high = 0.0, 1.0
        self._cursor: float | None = None
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(name)

    def sizeHint(self) -> QSize:
        """Return the preferred size."""
        return QSize(190, scaled(_HEAD_PX) + _PLOT_PX)

    def minimumSizeHint(self) -> QSize:
        """Return the smallest size that can be read."""
        return QSize(120, scaled(_HEAD_PX) + _PLOT_PX)

    def set_values(
        self, t: Numbers, layers: Sequence[Layer], *, high: float, low: float = 0.0, shaded: Numbers | None = None
    ) -> None:
        """Replace the values.

        Args:
            t: moments, seconds since the epoch, rising.
            layers: values to draw, the first one below.
            high: value at the upper edge; a larger value moves it.
            low: value at the lower edge.
            shaded: share of each interval, 0 to 1, to shade behind the lines; None: nothing.
        """
        self._t, self._layers = t, layers
        self._shaded = np.empty(0) if shaded is None else shaded
        largest = max((float(np.nanmax(one.y)) for one in layers if np.isfinite(one.y).any()), default=high)
        self._low, self._high = low, max(high, largest, low + 1e-9)
        self.setAccessibleDescription(self.shown_text())
        self.update()

    def set_cursor(self, moment: float | None) -> None:
        """Show the values of a moment, seconds since the epoch; None: the newest ones."""
        if moment != self._cursor:
            self._cursor = moment
            self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Point at a moment."""
        if len(self._t):
            share = event.position().x() / max(self.width(), 1)
            self.pointed.emit(float(self._t[-1]) - self._span_s * (1 - share))

    def event(self, event: QEvent) -> bool:
        """Point at nothing when the pointer leaves."""
        if event.type() == QEvent.Type.Leave:
            self.pointed.emit(None)
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw heading, value, areas, lines and cursor."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw_head(painter, colors)
        place = QRectF(0, scaled(_HEAD_PX), self.width(), self.height() - scaled(_HEAD_PX))
        painter.setPen(QPen(QColor(colors.line), 1))
        painter.drawLine(place.bottomLeft(), place.bottomRight())
        if len(self._t) < 2:
            return
        x = place.right() - (self._t[-1] - self._t) / self._span_s * place.width()
        seen = x >= place.left()
        painter.setClipRect(place)
        self._draw_shade(painter, colors, place, x, seen)
        below = np.full(int(seen.sum()), place.bottom())
        for layer in self._layers:
            above = place.bottom() - (layer.y[seen] - self._low) / (self._high - self._low) * (place.height() - 2)
            self._draw_layer(painter, QColor(getattr(colors, layer.color)), layer, (x[seen], above, below))
            if layer.filled:
                below = np.where(np.isfinite(above), above, below)
        self._draw_cursor(painter, colors, place)

    def _draw_head(self, painter: QPainter, colors: Colors) -> None:
        line = QRectF(0, 0, self.width(), scaled(_HEAD_PX) - 2)
        painter.setFont(font(SMALL_PX))
        painter.setPen(QColor(colors.muted))
        painter.drawText(line, int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter), self._name)
        painter.setPen(QColor(colors.text))
        painter.drawText(line, int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter), self.shown_text())

    def _draw_shade(
        self, painter: QPainter, colors: Colors, place: QRectF, x: Numbers, seen: NDArray[np.bool_]
    ) -> None:
        """Shade the moments in which clocks were held down, the darker the larger the share."""
        if not len(self._shaded):
            return
        shade = QColor(colors.warning)
        painter.setPen(Qt.PenStyle.NoPen)
        for at in np.flatnonzero(seen & (self._shaded > 0)):
            left = x[at - 1] if at and self._t[at] - self._t[at - 1] < _GAP_S else x[at] - 1
            shade.setAlpha(round(_FILL_ALPHA * float(self._shaded[at])))
            painter.fillRect(QRectF(left, place.top(), x[at] - left, place.height()), shade)

    def _draw_layer(
        self, painter: QPainter, color: QColor, layer: Layer, points: tuple[Numbers, Numbers, Numbers]
    ) -> None:
        x, above, below = points
        for part in _parts(x, above, _GAP_S / self._span_s * self.width()):
            line = QPolygonF([QPointF(a, b) for a, b in zip(x[part], above[part], strict=True)])
            if layer.filled:
                path = QPainterPath()
                path.addPolygon(line)
                for a, b in zip(x[part][::-1], below[part][::-1], strict=True):
                    path.lineTo(a, b)
                path.closeSubpath()
                fill = QColor(color)
                fill.setAlpha(_FILL_ALPHA * 2)
                painter.fillPath(path, fill)
            pen = QPen(color, 1.5)
            pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
            painter.setPen(pen)
            painter.drawPolyline(line)

    def _draw_cursor(self, painter: QPainter, colors: Colors, place: QRectF) -> None:
        at = self._nearest()
        if self._cursor is None or at is None:
            return
        x = place.right() - (self._t[-1] - self._t[at]) / self._span_s * place.width()
        painter.setPen(QPen(QColor(colors.muted), 1))
        painter.drawLine(QPointF(x, place.top()), QPointF(x, place.bottom()))

    def _nearest(self) -> int | None:
        """Return the position of the moment under the cursor, or of the newest one."""
        if not len(self._t):
            return None
        return len(self._t) - 1 if self._cursor is None else int(np.argmin(np.abs(self._t - self._cursor)))

    def shown_text(self) -> str:
        """The value at the moment pointed at, else the newest; a dash where there is none."""
        at = self._nearest()
        return "–" if at is None else self._value_text([float(layer.y[at]) for layer in self._layers])


def _parts(x: Numbers, y: Numbers, gap_px: float) -> list[slice]:
    """Cut a line where values are not known or a long time has no sample; pieces of one point are left out."""
    if not len(x):
        return []
    known = np.isfinite(y)
    breaks = np.flatnonzero(~known | np.concatenate(([False], np.diff(x) > gap_px)))
    parts, first = [], 0
    for at in [*breaks.tolist(), len(x)]:
        if at - first > 1:
            parts.append(slice(first, at))
        first = at if at < len(x) and known[at] else at + 1
    return parts


def rounded_up(value: float) -> float:
    """Return the next round number (1, 2 or 5 times a power of ten) that is at least the value."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= value)
