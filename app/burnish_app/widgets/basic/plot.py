"""The drawing area of a chart: thin lines over a grid, made of pyqtgraph's light parts.

`pyqtgraph.PlotWidget` would bring a context menu and buttons with every chart, which take longer to make than the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QPen
from PySide6.QtWidgets import QWidget

from burnish_app.look.theme import SMALL_PX, Colors, Dash, font

Numbers = NDArray[np.float64]
_DASHES: dict[Dash, list[float]] = {"solid": [], "dash": [5, 3], "dot": [1.5, 2.5], "dash_dot": [6, 2.5, 1.5, 2.5]}
_AXIS_WIDTH_PX = 52
_GRID_ALPHA = 140  # opacity of the grid, of 255, in the theme's line color
_MAX_POINTS = 1200
"""Most points that a line is drawn with: about one per pixel. More cannot be seen and cost time at each repaint."""


@dataclass(frozen=True)
class ChartLine:
    """The appearance of one line of a chart.

    Attributes:
        label: text of the line in the legend.
        series: index of the line's style in `theme.Colors.series`.
        width_px: thickness, device-independent pixels.
        faint: whether the line is drawn pale, behind another one.
        points: whether each value gets a mark.
    """

    label: str
    series: int
    width_px: float = 1.6
    faint: bool = False
    points: bool = False


def line_pen(colors: Colors, line: ChartLine, *, dashed: bool = True) -> QPen:
    """Return the pen that draws a line.

    Args:
        colors: colors of the theme.
        line: appearance of the line.
        dashed: whether to tell the line from others by its dash too. A line that is alone in its chart needs none.
    """
    series = colors.series[line.series]
    color = QColor(series.color)
    color.setAlpha(95 if line.faint else 255)
    pen = QPen(color, line.width_px)
    pen.setCosmetic(True)
    pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
    if dashed and _DASHES[series.dash] and not line.faint:
        pen.setDashPattern(_DASHES[series.dash])
    pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    return pen


def thin_out(x: Numbers, y: Numbers, most: int = _MAX_POINTS) -> tuple[Numbers, Numbers]:
    """Reduce a line to fewer points: the lowest and the highest point of each bucket, so that no spike is lost.

    Args:
        x: rising positions, [points].
        y: values, [points]; values that are not finite are left out, and a bucket without a finite value stays a gap.
        most: number of points that may stay.
    """
    if len(x) <= most:
        return x, y
    size = -(-len(x) // (most // 2))
    whole = len(x) // size * size
    buckets = np.where(np.isfinite(y[:whole]), y[:whole], np.nan).reshape(-1, size)
    rows = np.arange(len(buckets))
    lowest = np.argmin(np.where(np.isnan(buckets), np.inf, buckets), axis=1)
    highest = np.argmax(np.where(np.isnan(buckets), -np.inf, buckets), axis=1)
    first, second = np.minimum(lowest, highest), np.maximum(lowest, highest)
    picked = np.stack([rows * size + first, rows * size + second], axis=1).ravel()
    picked = np.concatenate([picked, np.arange(whole, len(x))])
    return x[picked], y[picked]


class Plot:
    """A plot with axes, grid, lines, step marks and a cursor.

    Args:
        lines: key to appearance of each line, drawn in this order.
        tick_text: function that formats a value at the axis.
        moved: callback with the step under the pointer; None outside the plot.

    Attributes:
        view: widget that shows the plot.
    """

    def __init__(
        self, lines: Mapping[str, ChartLine], tick_text: Callable[[float], str], moved: Callable[[float | None], None]
    ) -> None:
        self._lines, self._moved = lines, moved
        self._rollback_pen = QPen()
        self._view: Any = pg.GraphicsView()
        self._view.setFrameShape(pg.GraphicsView.Shape.NoFrame)
        grid = pg.GraphicsLayout()
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setSpacing(0)
        self._view.setCentralItem(grid)
        self._box = grid.addViewBox(row=0, col=1, enableMenu=False, enableMouse=False)
        self._left, self._bottom = pg.AxisItem("left"), pg.AxisItem("bottom")
        grid.addItem(self._left, 0, 0)
        grid.addItem(self._bottom, 1, 1)
        self._set_up_axes(tick_text)
        self._curves: dict[str, Any] = {}
        self._marks: dict[str, Any] = {}
        for key, line in lines.items():
            self._curves[key] = pg.PlotCurveItem(antialias=True, connect="finite")
            self._box.addItem(self._curves[key])
            if line.points:
                self._marks[key] = pg.ScatterPlotItem(size=8, symbol="o", antialias=True)
                self._box.addItem(self._marks[key])
        self._bad = pg.ScatterPlotItem(size=9, symbol="x", antialias=True)
        self._box.addItem(self._bad, ignoreBounds=True)
        self._bad_steps: Numbers = np.empty(0)
        self._rollback_lines: list[Any] = []
        self._low = 0.0
        self._cursor = pg.InfiniteLine(angle=90)
        self._cursor.hide()
        self._box.addItem(self._cursor, ignoreBounds=True)
        self._view.scene().sigMouseMoved.connect(self._mouse_moved)

    @property
    def view(self) -> QWidget:
        """The widget that shows the plot."""
        view: QWidget = self._view
        return view

    def set_colors(self, colors: Colors) -> None:
        """Apply the colors of a theme."""
        self._view.setBackground(colors.surface)
        grid = QColor(colors.line)
        for axis in (self._left, self._bottom):
            axis.setTextPen(QColor(colors.muted))
            axis.setTickPen(QPen(grid, 1))
        self._left.setPen(QPen(Qt.PenStyle.NoPen))
        self._bottom.setPen(QPen(grid, 1))
        self._cursor.setPen(QPen(QColor(colors.faint), 1))
        self._bad.setPen(QPen(QColor(colors.error), 1.5))
        self._rollback_pen = QPen(QColor(colors.warning), 1, Qt.PenStyle.DashLine)
        self._rollback_pen.setCosmetic(True)
        for line in self._rollback_lines:
            line.setPen(self._rollback_pen)
        rim = QPen(QColor(colors.surface), 1.5)
        rim.setCosmetic(True)
        for key, line in self._lines.items():
            pen = line_pen(colors, line, dashed=len(self._lines) > 1)
            self._curves[key].setPen(pen)
            # Qt strokes a wide path sixty times slower than the same points as lines, in which dashes would begin anew.
            self._curves[key].setSegmentedLineMode("off" if pen.dashPattern() else "on")
            if key in self._marks:
                self._marks[key].setBrush(pen.color())
                self._marks[key].setPen(rim)

    def set_line(self, key: str, x: Numbers, y: Numbers) -> None:
        """Replace a line's values.

        Args:
            key: key of the line.
            x: rising steps, [points].
            y: values, [points]; a value that is not finite is a gap.
        """
        x, y = thin_out(x, y)
        y = np.where(np.isfinite(y), y, np.nan)
        self._curves[key].setData(x, y)
        if key in self._marks:
            self._marks[key].setData(x[np.isfinite(y)], y[np.isfinite(y)])

    def set_marks(self, bad: Numbers, rollback_steps: Numbers) -> None:
        """Mark unusable steps and rollbacks.

        Args:
            bad: unusable steps, each drawn as a cross at the bottom.
            rollback_steps: steps that the run went back to, each drawn as a vertical line.
        """
        self._bad_steps = bad
        while len(self._rollback_lines) < len(rollback_steps):
            line = pg.InfiniteLine(angle=90, pen=self._rollback_pen)
            self._box.addItem(line, ignoreBounds=True)
            self._rollback_lines.append(line)
        for at, line in enumerate(self._rollback_lines):
            line.setVisible(at < len(rollback_steps))
            if at < len(rollback_steps):
                line.setPos(float(rollback_steps[at]))
        self._draw_bad_steps()

    def _draw_bad_steps(self) -> None:
        self._bad.setData(self._bad_steps, np.full(len(self._bad_steps), self._low))

    def set_ranges(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        """Show these ranges of the axes, each as (low, high)."""
        self._box.setRange(xRange=x, yRange=y, padding=0)
        self._low = y[0] + 0.05 * (y[1] - y[0])
        self._draw_bad_steps()

    def set_cursor(self, step: float | None) -> None:
        """Put the cursor at a step; None hides it."""
        self._cursor.setVisible(step is not None)
        if step is not None:
            self._cursor.setPos(step)

    def _set_up_axes(self, tick_text: Callable[[float], str]) -> None:
        self._left.setWidth(_AXIS_WIDTH_PX)
        self._left.setGrid(_GRID_ALPHA)
        self._left.tickStrings = lambda values, _scale, _spacing: [tick_text(value) for value in values]
        self._bottom.tickStrings = lambda values, _scale, _spacing: [
            f"{value:,.0f}" if value == round(value) else "" for value in values
        ]
        for axis in (self._left, self._bottom):
            axis.enableAutoSIPrefix(False)
            axis.setStyle(tickLength=0, tickFont=font(SMALL_PX), tickTextOffset=6, maxTickLevel=0)
            axis.linkToView(self._box)

    def _mouse_moved(self, at: QPointF) -> None:
        inside = self._box.sceneBoundingRect().contains(at)
        self._moved(self._box.mapSceneToView(at).x() if inside else None)
