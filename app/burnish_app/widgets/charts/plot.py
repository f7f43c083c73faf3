"""The drawing area of a chart, made of pyqtgraph's light parts.

`pyqtgraph.PlotWidget` would bring a context menu and buttons with every chart, which take three times as long to make
as all the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyqtgraph as pg
from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QGraphicsRectItem, QWidget

from burnish_app.curves.curve import Numbers
from burnish_app.curves.marks import MarkKind
from burnish_app.curves.ticks import Tick
from burnish_app.look.chart_style import CURSOR_PX, DOT_PX, GRID_ALPHA, MARK_PX, SELECTION_ALPHA, STAR_PX, chart_pen
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import SMALL_PX, Colors, font
from burnish_app.widgets.charts.gestures import GestureBox, GestureTarget, MarkItem
from burnish_app.widgets.charts.lines import ChartLine, DrawnLine, VisibleRange

_AXIS_WIDTH_PX, _AXIS_HEIGHT_PX = 52, 20
_ABOVE = 100  # order of drawing of marks, pins and cursor: above all lines
_SYMBOLS: dict[MarkKind, tuple[str, str, int]] = {
    "checkpoint": ("t1", "muted", MARK_PX),
    "best": ("star", "success", STAR_PX),
    "spike": ("t", "error", MARK_PX),
    "bad": ("x", "error", MARK_PX),
}
"""Symbol, color and size of the marks that are points; a rollback is a line."""


class PlotSpace(QWidget):
    """The room of a plot: as high as it has to be, whatever the drawing in it would like."""

    def sizeHint(self) -> QSize:
        """Return the preferred size."""
        return QSize(super().sizeHint().width(), self.minimumHeight())


class Plot:
    """A plot with axes, grid, lines, marks, pins and a cursor.

    Args:
        lines: key to appearance of each line, drawn in this order.
        target: chart that acts on gestures.

    Attributes:
        view: widget that shows the plot.
        viewport: part of the view that the mouse acts on.
        box: view box with the lines.
    """

    def __init__(self, lines: Mapping[str, ChartLine], target: GestureTarget) -> None:
        self._pg_view: Any = pg.GraphicsView()
        self._pg_view.setFrameShape(pg.GraphicsView.Shape.NoFrame)
        self._pg_view.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # the chart takes the keys
        self.view: QWidget = self._pg_view
        self.viewport: QWidget = self._pg_view.viewport()
        grid = pg.GraphicsLayout()
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setSpacing(0)
        self._pg_view.setCentralItem(grid)
        self.box: Any = GestureBox(target)
        grid.addItem(self.box, 0, 1)
        self._left, self.bottom = _Axis("left"), _BottomAxis("bottom")
        self._x_name = pg.LabelItem(justify="right")
        grid.addItem(self._left, 0, 0)
        grid.addItem(self.bottom, 1, 1)
        grid.addItem(self._x_name, 1, 0)
        self._set_up_axes()
        self.lines = {  # parts of a stack reach down to zero: the upper ones are drawn first
            key: DrawnLine(line, self.box, -at if line.kind == "area" else at)
            for at, (key, line) in enumerate(lines.items(), 1)
        }
        self.limit = self._infinite(0)
        self.rollbacks: list[Any] = []
        self.pins: list[Any] = []
        self.marks = {kind: self._scatter(symbol, size) for kind, (symbol, _, size) in _SYMBOLS.items()}
        self.cursor, self._dots = self._infinite(90), self._scatter("o", DOT_PX)
        self._style: tuple[Colors, float, int] | None = None

    def set_colors(self, colors: Colors, pixel_ratio: float) -> None:
        """Apply the colors of a theme, the text size, and widths for a device's pixels; cheap if nothing changed.

        Args:
            colors: colors of the theme.
            pixel_ratio: device pixels per device-independent pixel.
        """
        style = colors, pixel_ratio, scaled(SMALL_PX)
        if style == self._style:
            return
        self._style = style
        self._fit_axes()
        self._apply_style(colors, pixel_ratio)

    def _apply_style(self, colors: Colors, pixel_ratio: float) -> None:
        self._pg_view.setBackground(colors.surface)
        grid = QColor(colors.line)
        for axis in (self._left, self.bottom):
            axis.setTextPen(QColor(colors.muted))
            axis.setTickPen(QPen(grid, 1))
        self._left.setPen(QPen(Qt.PenStyle.NoPen))
        self.bottom.setPen(QPen(grid, 1))
        self._x_name.setAttr("color", colors.muted)
        self._x_name.setText(self._x_name.text)
        for drawn in self.lines.values():
            drawn.set_colors(colors, pixel_ratio)
        self.cursor.setPen(chart_pen(colors.muted, CURSOR_PX * pixel_ratio))
        self.limit.setPen(ChartLine("", kind="limit").pen(colors, pixel_ratio))
        for kind, (_, color, _) in _SYMBOLS.items():
            ink = QColor(getattr(colors, color))
            rim = chart_pen(ink, 1.5 * pixel_ratio) if kind == "bad" else chart_pen(colors.surface, pixel_ratio)
            self.marks[kind].setPen(rim)
            self.marks[kind].setBrush(ink)
        self._dots.setPen(chart_pen(colors.surface, 1.5 * pixel_ratio))
        for line in self.rollbacks:
            line.setPen(chart_pen(colors.warning, CURSOR_PX * pixel_ratio, dash="dash"))
        for line in self.pins:
            line.setPen(chart_pen(colors.accent_ink, CURSOR_PX * pixel_ratio))
            line.label.setColor(QColor(colors.accent_ink))
        selection: QGraphicsRectItem = self.box.rbScaleBox
        fill = QColor(colors.accent)
        fill.setAlpha(SELECTION_ALPHA)
        selection.setPen(chart_pen(colors.accent_ink))
        selection.setBrush(fill)

    def draw_line(self, key: str, x: Numbers, y: Numbers, window: VisibleRange) -> tuple[float, float] | None:
        """Draw a line's values within a window. The parameters and the result are those of `DrawnLine.draw`."""
        return self.lines[key].draw(x, y, window)

    def show_line(self, key: str, visible_now: bool) -> None:
        """Show or hide a line."""
        self.lines[key].set_visible(visible_now)

    def draw_marks(self, kind: MarkKind, x: Numbers, y: Numbers) -> None:
        """Draw the marks of a kind: points, or vertical lines for rollbacks."""
        if kind == "rollback":
            self._draw_verticals(self.rollbacks, x)
        else:
            _set_points(self.marks[kind], x, y)

    def draw_pins(self, x: Sequence[float], names: Sequence[str]) -> None:
        """Draw the pins as vertical lines with their names."""
        self._draw_verticals(self.pins, x, names)

    def set_limit(self, value: float | None) -> None:
        """Draw a horizontal line at a value; None: none."""
        self.limit.setVisible(value is not None)
        if value is not None:
            self.limit.setPos(value)

    def set_cursor(self, x: float | None, dots: Sequence[tuple[float, float, QColor]] = ()) -> None:
        """Put the cursor at a position, with dots on the lines; None hides both."""
        self.cursor.setVisible(x is not None)
        if x is not None:
            self.cursor.setPos(x)
        self._dots.setVisible(bool(dots))
        if dots:
            brushes = [pg.mkBrush(dot[2]) for dot in dots]
            self._dots.setData([dot[0] for dot in dots], [dot[1] for dot in dots], brush=brushes)

    def set_ranges(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        """Show these ranges of the axes, each as (low, high)."""
        self.box.setRange(xRange=x, yRange=y, padding=0)
        self.box.updateMatrix()  # pyqtgraph would do it while it paints, and then paint everything once more

    def set_ticks(self, x: Sequence[Tick], y: Sequence[Tick], x_name: str) -> None:
        """Replace the ticks of both axes and the name of the horizontal one."""
        self.bottom.setTicks([list(x)])
        self._left.setTicks([list(y)])
        if self._x_name.text != x_name:
            self._x_name.setText(x_name)

    def size_px(self) -> tuple[float, float]:
        """Return width and height of the area inside the axes, device-independent pixels; at least 1."""
        area = self.box.rect()
        return max(area.width(), 1.0), max(area.height(), 1.0)

    def draw_picture(self, painter: QPainter, place: QRectF) -> None:
        """Draw the plot into a picture. `QWidget.render` would put an SVG file's clip paths into the wrong place."""
        points = [item for drawn in self.lines.values() for item in drawn.items if isinstance(item, MarkItem)]
        marks = [*self.marks.values(), *points]
        for item in marks:
            item.setExportMode(True)  # as shapes instead of the screen's pixels
        self._pg_view.render(painter, place, self.viewport.rect())
        for item in marks:
            item.setExportMode(False)

    def x_at(self, scene_at: Any) -> float | None:
        """Convert a position in the scene to one on the horizontal axis; None outside the axes."""
        inside = self.box.sceneBoundingRect().contains(scene_at)
        return float(self.box.mapSceneToView(scene_at).x()) if inside else None

    def scene_px(self, x: float) -> float:
        """Convert a position on the horizontal axis to pixels from the left edge of the view."""
        return float(self.box.mapViewToScene(pg.Point(x, 0)).x())

    @property
    def mouse_moved(self) -> Any:
        """The signal with the pointer's position in the scene."""
        return self._pg_view.scene().sigMouseMoved

    def _draw_verticals(self, lines: list[Any], x: Sequence[float] | Numbers, names: Sequence[str] = ()) -> None:
        while len(lines) < len(x):
            lines.append(self._infinite(90, label="" if names else None))
            if self._style is not None:
                self._apply_style(*self._style[:2])
        for at, line in enumerate(lines):
            line.setVisible(at < len(x))
            if at < len(x):
                line.setPos(float(x[at]))
                if names:
                    line.label.setFormat(names[at])

    def _infinite(self, angle: int, label: str | None = None) -> Any:
        options = {"position": 0.92, "movable": False}
        line = pg.InfiniteLine(angle=angle, label=label, labelOpts=options if label is not None else None)
        if label is not None:
            line.label.setFont(font(SMALL_PX, bold=True))
        line.setZValue(_ABOVE)
        self.box.addItem(line, ignoreBounds=True)
        if angle:
            line.hide()
        return line

    def _scatter(self, symbol: str, size_px: int) -> Any:
        item = MarkItem(size=size_px, symbol=symbol, antialias=True)
        item.setZValue(_ABOVE)
        self.box.addItem(item, ignoreBounds=True)
        return item

    def _set_up_axes(self) -> None:
        self._left.setGrid(GRID_ALPHA)
        for axis in (self._left, self.bottom):
            axis.enableAutoSIPrefix(False)
            axis.linkToView(self.box)
        self._fit_axes()

    def _fit_axes(self) -> None:
        """Fit the axes to the text size."""
        self._left.setWidth(scaled(_AXIS_WIDTH_PX))
        self.bottom.setHeight(scaled(_AXIS_HEIGHT_PX))
        for axis in (self._left, self.bottom):
            axis.setStyle(tickLength=0, tickFont=font(SMALL_PX), tickTextOffset=6, maxTickLevel=0)
        self.bottom.setStyle(hideOverlappingLabels=scaled(_AXIS_WIDTH_PX))  # by so much they may reach out
        self._x_name.setAttr("size", tr("{small_px}px").format(small_px=scaled(SMALL_PX)))


class _Axis(pg.AxisItem):  # type: ignore[misc]
    """An axis that leaves the wheel to the page where the chart does not zoom; pyqtgraph's swallows it."""

    def wheelEvent(self, event: Any) -> None:
        """Pass the wheel to the chart, which accepts it or not."""
        self.linkedView().wheelEvent(event, axis=1 if self.orientation == "left" else 0)


class _BottomAxis(_Axis):
    """A horizontal axis that moves labels at its ends inside, where pyqtgraph would hide them.

    A label that the last one would then cover is left out.
    """

    def generateDrawSpecs(self, p: QPainter) -> Any:
        """Return what pyqtgraph draws: the axis, its ticks, and each label's rectangle, flags and text."""
        found = super().generateDrawSpecs(p)
        if found is None or not found[2]:
            return found
        axis, ticks, labels = found
        for place, *_ in labels:
            place.moveLeft(min(max(place.left(), 0.0), self.width() - place.width()))
        last = labels[-1]
        return axis, ticks, [one for one in labels if one is last or one[0].right() <= last[0].left()]


def _set_points(item: Any, x: Numbers, y: Numbers) -> None:
    """Replace the points of an item; without points it is hidden, so that it costs nothing."""
    item.setVisible(len(x) > 0)
    if len(x):
        item.setData(x, y)
