"""The lines of a chart: their appearance, and the pyqtgraph items that draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyqtgraph as pg
from PySide6.QtGui import QColor, QPen

from burnish_app.curves.curve import Numbers
from burnish_app.curves.thinning import columns, visible
from burnish_app.look.chart_style import (
    AREA_ALPHA,
    LINE_PX,
    MEAN_PX,
    POINT_PX,
    RAW_PX,
    band_alpha,
    chart_pen,
    raw_alpha,
)
from burnish_app.look.theme import Colors, Dash
from burnish_app.look.tokens import LineStyle
from burnish_app.widgets.charts.gestures import MarkItem

LineKind = Literal["line", "raw", "mean", "points", "area", "limit"]
_WIDTHS_PX: dict[LineKind, float] = {
    "line": LINE_PX, "raw": RAW_PX, "mean": MEAN_PX, "points": LINE_PX, "area": 0.0, "limit": LINE_PX,
}  # fmt: skip
_POINT_GAP = 12  # pixel columns to a point from which on each value gets a mark
_DENSE = 1.5  # points to a pixel column from which on a line is drawn by columns


@dataclass(frozen=True)
class ChartLine:
    """The appearance of one line of a chart.

    Attributes:
        label: text of the line in the legend.
        series: index of the line's style in `theme.Colors.lines`; past their end they begin anew, dashed.
        kind: `line`; `raw`, pale, for the values of each step; `mean`, strong, for what is smoothed; `points`, a line
            with a mark at each value; `area`, a part of a stack, filled down to zero; `limit`, a horizontal line.
        ink: name of the theme's color that the line has instead of a series'; empty: none.
    """

    label: str
    series: int = 0
    kind: LineKind = "line"
    ink: str = ""

    def color(self, colors: Colors) -> QColor:
        """Return the color of the line."""
        if self.kind == "limit":
            return QColor(colors.text)
        return QColor(getattr(colors, self.ink) if self.ink else self._style(colors).color)

    def dash(self, colors: Colors) -> Dash:
        """Return the dash of the line. Only a line beside others needs one; raw values and means go together."""
        if self.kind == "limit":
            return "dash"
        if self.kind == "points":
            return self._style(colors).dash
        return "solid" if self.series < len(colors.lines) else "dash"

    def _style(self, colors: Colors) -> LineStyle:
        return colors.lines[self.series % len(colors.lines)]

    def pen(self, colors: Colors, pixel_ratio: float = 1.0) -> QPen:
        """Return the pen that draws the line.

        Args:
            colors: colors of the theme.
            pixel_ratio: device pixels per device-independent pixel.
        """
        alpha = raw_alpha(colors) if self.kind == "raw" else 255
        return chart_pen(self.color(colors), _WIDTHS_PX[self.kind] * pixel_ratio, alpha=alpha, dash=self.dash(colors))


@dataclass(frozen=True)
class VisibleRange:
    """The part of the data that a plot shows.

    Attributes:
        low: left edge.
        high: right edge.
        column: width of a pixel column, in the axis' unit.
        log: whether values are drawn by their decimal logarithm.
    """

    low: float
    high: float
    column: float
    log: bool = False


class DrawnLine:
    """Draws one line: as a polyline while its points are further apart than pixels, else by pixel columns.

    By columns, a band reaches from the lowest to the highest value of each, so that no spike is lost, and the line
    goes through their means. A smoothed line has no band, raw values have no line.

    Args:
        line: appearance of the line.
        box: view box that the items go into.
        height: order of drawing; larger ones are drawn later.
    """

    def __init__(self, line: ChartLine, box: Any, height: int) -> None:
        self.line = line
        self._band = pg.PlotCurveItem(antialias=False, connect="pairs")
        self._curve = pg.PlotCurveItem(antialias=line.kind != "area", connect="finite")  # areas would show seams
        self._points = MarkItem(size=POINT_PX, symbol="o", antialias=True) if line.kind == "points" else None
        self.items = [item for item in (self._band, self._curve, self._points) if item is not None]
        for item in self.items:
            item.setZValue(height)
            box.addItem(item, ignoreBounds=True)

    def set_colors(self, colors: Colors, pixel_ratio: float) -> None:
        """Apply the colors of a theme, and widths for a device's pixels."""
        color = self.line.color(colors)
        pen = self.line.pen(colors, pixel_ratio)
        self._band.setPen(chart_pen(color, 0, alpha=band_alpha(colors)))
        self._band.setSegmentedLineMode("on")
        self._curve.setPen(pen)
        # Qt strokes a wide path sixty times slower than the same points as lines, in which dashes would begin anew.
        self._curve.setSegmentedLineMode("off" if pen.dashPattern() else "on")
        if self.line.kind == "area":
            filled = QColor(color)
            filled.setAlpha(AREA_ALPHA)
            self._curve.setBrush(filled)
            self._curve.setFillLevel(0.0)
        if self._points is not None:
            self._points.setBrush(color)
            self._points.setPen(chart_pen(colors.surface, 1.5 * pixel_ratio))

    def set_visible(self, visible_now: bool) -> None:
        """Show or hide the line."""
        for item in self.items:
            item.setVisible(visible_now)

    def draw(self, x: Numbers, y: Numbers, window: VisibleRange) -> tuple[float, float] | None:
        """Draw the values within a window.

        Args:
            x: rising positions, [points].
            y: values, [points]; one that is not finite is a gap.
            window: part of the data to draw.

        Returns:
            Lowest and highest value drawn, as drawn; None: none.
        """
        part = visible(x, window.low, window.high)
        x, y = x[part], y[part]
        none = np.empty(0)
        if len(x) < _DENSE * (window.high - window.low) / window.column:
            y = _scaled(y, log=window.log)
            self._band.setData(none, none)
            self._curve.setData(x, y)
            if self._points is not None:
                apart = len(x) * _POINT_GAP < (window.high - window.low) / window.column
                known = np.isfinite(y) & apart
                self._points.setData(x[known], y[known])
            within = (x >= window.low) & (x <= window.high)
            return _extent(y[within], y[within])
        found = columns(x, y, window.column)
        low, high, mean = (_scaled(one, log=window.log) for one in (found.lowest, found.highest, found.mean))
        if self.line.kind in ("mean", "area"):
            self._band.setData(none, none)
        else:  # neighbors touch, so that a steep curve has no holes
            bottom = np.concatenate((low[:1], np.fmin(low[1:], high[:-1])))
            top = np.concatenate((high[:1], np.fmax(high[1:], low[:-1])))
            self._band.setData(np.repeat(found.x, 2), np.stack((bottom, top), axis=1).ravel())
        self._curve.setData(*((none, none) if self.line.kind == "raw" else (found.x, mean)))
        if self._points is not None:
            self._points.setData(none, none)
        within = (found.x >= window.low) & (found.x <= window.high)
        if self.line.kind in ("mean", "area"):
            return _extent(mean[within], mean[within])
        return _extent(low[within], high[within])


def _scaled(values: Numbers, *, log: bool) -> Numbers:
    """Return values as they are drawn: by their logarithm if asked for, and not a number where there is none."""
    usable = np.isfinite(values) & (values > 0) if log else np.isfinite(values)
    kept = np.where(usable, values, np.nan)
    return np.log10(kept) if log else kept


def _extent(low: Numbers, high: Numbers) -> tuple[float, float] | None:
    low, high = low[np.isfinite(low)], high[np.isfinite(high)]
    return (float(low.min()), float(high.max())) if len(low) and len(high) else None
