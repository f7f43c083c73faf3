"""A live chart over the steps of a run: legend, linked cursor, zoom, table and pictures.

Importing this loads pyqtgraph and numpy. The drawing is made when the chart is first shown, each chart's in an event of
its own, so that a page with several does not hold up the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, QRect, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QColor,
    QFocusEvent,
    QKeyEvent,
    QKeySequence,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.curves.curve import Curve
from burnish_app.curves.marks import Mark
from burnish_app.curves.tables import CurveTable
from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of
from burnish_app.look.tokens import RING_PX, SMALL_RADIUS_PX, UNBOUNDED_PX, UNIT
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.charts.content import ChartContent, ChartSpec
from burnish_app.widgets.charts.drawing import ChartDrawing
from burnish_app.widgets.charts.gestures import MOVE_KEYS, ZOOM_KEYS
from burnish_app.widgets.charts.head import ChartHead
from burnish_app.widgets.charts.legend import LegendEntry
from burnish_app.widgets.charts.link import ChartLink, Reading
from burnish_app.widgets.charts.plot import Plot, PlotSpace
from burnish_app.widgets.charts.texts import ChartTexts

_PLOT_PX = 160
_PIN_MS = 220  # a second click within this time makes it a double click
_ROOM_PX = RING_PX + 1
_MARGIN_PX = 2 * UNIT  # margin of a picture


class Chart(QWidget):
    """A chart of curves over the steps of a run. It is the target of its plot's gestures.

    Args:
        spec: description of the chart.
        link: axis, range, cursor and pins that it shares with other charts.

    Attributes:
        options_wanted: signal without arguments: the options shall open.
        copied: signal without arguments: the value table is wanted on the clipboard.
        content: what the chart shows.
    """

    options_wanted = Signal()
    copied = Signal()

    def __init__(self, spec: ChartSpec, link: ChartLink) -> None:
        super().__init__()
        self.spec, self.name, self.link = spec, spec.name, link
        self.content = ChartContent(spec, link, tr("mean"))
        self._texts = ChartTexts(spec, self.content, link)
        self._values_range: tuple[float, float] | None = None
        self.drawing: ChartDrawing | None = None
        self._armed = self._zooms = self.stale = self._ringed = False
        self.setAccessibleName(tr("{name} chart").format(name=spec.name))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.head = ChartHead(spec, self.content.lines)
        self.head.toggled.connect(lambda key, shown: self.set_line_hidden(key, hidden=not shown))
        self.head.more.clicked.connect(lambda _checked=False: self.options_wanted.emit())
        if self.head.whole is not None:
            self.head.whole.clicked.connect(lambda _checked=False: self.show_all())
        self._space, self._holder = PlotSpace(), QVBoxLayout()
        self._space.setLayout(self._holder)
        self._holder.setContentsMargins(0, 0, 0, 0)
        column = fill(
            QVBoxLayout(self),
            self.head,
            (self._space, 1),
            spacing_px=UNIT // 2,
            margins_px=_ROOM_PX,
        )
        column.addStretch()
        self.set_plot_height(_PLOT_PX)
        self._redraw = QTimer(self, singleShot=True, interval=0)
        self._redraw.setObjectName(f"chart {spec.name}")
        self._redraw.timeout.connect(self._draw)
        self._click = QTimer(self, singleShot=True, interval=_PIN_MS)
        self._click.setObjectName("pin")
        self._click.timeout.connect(self._pin)
        link.charts.append(self)
        link.view_changed.connect(self._view_changed)
        link.cursor_changed.connect(self._draw_cursor)
        link.pins_changed.connect(self._draw_pins)

    # What it shows

    def set_curves(
        self, curves: Mapping[str, Curve], *, limit: float | None = None, marks: Sequence[Mark] = ()
    ) -> None:
        """Replace what the chart shows. It is drawn in an event of its own.

        Args:
            curves: key of the line to its curve.
            limit: value of a horizontal line; None: none.
            marks: what happened at single steps.
        """
        self.content.show(curves, limit, marks)
        self._content_changed()

    def name_lines(self, names: Mapping[str, str]) -> None:
        """Give lines other names; `set_curves` follows.

        Args:
            names: key of the line to its name.
        """
        for key, name in names.items():
            self.content.lines[key] = replace(self.content.lines[key], label=name)

    def set_window(self, window: int) -> None:
        """Average the smoothed line over this number of steps; 1: do not draw it."""
        self.content.smooth_over(window)
        self._content_changed()

    def set_log(self, log: bool) -> None:
        """Draw values by their logarithm or as they are."""
        self.content.log, self._values_range = log, None
        self.redraw()

    def set_clip(self, clip: bool) -> None:
        """Leave out the highest hundredth of the values, or show all."""
        self.content.clip, self._values_range = clip, None
        self.redraw()

    def set_line_hidden(self, key: str, *, hidden: bool) -> None:
        """Hide or show a line; the empty key is the limit's."""
        self.content.set_hidden(key, hidden=hidden)
        self.redraw()

    def set_plot_height(self, height_px: int, *, grows: bool = False) -> None:
        """Set the height of the plot without the heading, device-independent pixels.

        Args:
            height_px: height.
            grows: whether the plot takes more where its neighbor is higher.
        """
        self._space.setMinimumHeight(height_px)
        self._space.setMaximumHeight(UNBOUNDED_PX if grows else height_px)

    def plot_height(self) -> int:
        """Return the height of the plot, device-independent pixels."""
        return self._space.height()

    def legend(self, key: str) -> LegendEntry:
        """Return the legend's entry of a line."""
        return self.head.entries[key]

    def table(self) -> CurveTable:
        """Return the values of all lines as a table."""
        return self.content.table({key: self._texts.label(key) for key in self.content.lines})

    def readings(self, step: float) -> list[Reading]:
        """Return the value of each line that is drawn at a step."""
        return self.content.readings(step)

    def values_text(self, step: float) -> str:
        """Return the values at a step as a sentence, for screen readers."""
        return self._texts.values(step)

    def picture_size(self) -> QSize:
        """Return the size of a picture of the chart, device-independent pixels."""
        return QSize(self._space.width() + 2 * _MARGIN_PX, self._space.geometry().bottom() + 2 * _MARGIN_PX)

    def draw_picture(self, painter: QPainter, pixel_ratio: float) -> None:
        """Draw the chart without buttons and cursor, for a file.

        Args:
            painter: painter of the picture.
            pixel_ratio: pixels of the picture per device-independent pixel.
        """
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(QRect(QPoint(0, 0), self.picture_size()), QColor(colors_of(self).surface))
        painter.save()
        painter.translate(_MARGIN_PX, _MARGIN_PX)
        self.head.draw(painter)
        painter.restore()
        if self.drawing is not None:
            top = self._space.y() - self.head.y() + _MARGIN_PX
            self._draw_all(self.drawing, pixel_ratio)
            self.drawing.plot.set_cursor(None)
            self.drawing.plot.draw_picture(painter, QRectF(QPoint(_MARGIN_PX, top), self._space.size()))
            self._draw_all(self.drawing, self.devicePixelRatioF())

    def menu_corner(self) -> QPoint:
        """Return the screen position under the options button."""
        return self.head.more.mapToGlobal(QPoint(self.head.more.width(), self.head.more.height()))

    # Gestures; `GestureTarget`

    @property
    def takes_wheel(self) -> bool:
        """Whether the wheel zooms without Ctrl: a click asked for it, until the pointer leaves."""
        return self._zooms

    def zoom_to(self, low: float, high: float) -> None:
        """Show a range of the horizontal axis in all linked charts."""
        self.link.zoom_to(low, high)

    def zoom_by(self, factor: float, center: float) -> bool:
        """Widen the range around a position by a factor and return whether anything changed."""
        return self.link.zoom_by(factor, center)

    def zoom_values_to(self, low: float, high: float) -> None:
        """Show a range of the vertical axis."""
        self._values_range = (low, high)
        self.redraw()

    def zoom_values_by(self, factor: float, center: float) -> None:
        """Widen the range of the vertical axis around a position by a factor."""
        low, high = self._ends()
        self.zoom_values_to(center - (center - low) * factor, center + (high - center) * factor)

    def pan_by(self, x: float, y: float) -> None:
        """Move the range of the horizontal axis, and that of the vertical one if it was zoomed."""
        if self._values_range is not None:
            low, high = self._values_range
            self.zoom_values_to(low + y, high + y)
        self.link.pan_by(x)

    def show_all(self) -> None:
        """Show the whole run and all values."""
        self._click.stop()
        self._values_range = None
        self.link.show_latest(0)

    def click_at(self, x: float) -> None:
        """Pin the step under the pointer, unless a second click follows; from then on the wheel zooms."""
        self._zooms = True
        self.link.set_cursor(self.link.step_at(x))
        self.setFocus(Qt.FocusReason.MouseFocusReason)
        self._click.start()

    def _ends(self) -> tuple[float, float]:
        return (self.drawing.low, self.drawing.high) if self.drawing is not None else (0.0, 1.0)

    def _pin(self) -> None:
        if self.link.cursor is not None:
            self.link.toggle_pin(self.link.cursor)

    # Events

    def showEvent(self, event: QShowEvent) -> None:
        """Schedule making the plot, the first time the chart is shown."""
        super().showEvent(event)
        if self.drawing is None:
            QTimer.singleShot(0, self, self._make_plot)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Draw for the new size."""
        super().resizeEvent(event)
        self.redraw()

    def changeEvent(self, event: QEvent) -> None:
        """Apply the theme's colors when the palette changes."""
        super().changeEvent(event)
        drawing = getattr(self, "drawing", None)  # there is none yet while Qt makes the widget
        if event.type() == QEvent.Type.PaletteChange and drawing is not None:
            drawing.plot.set_colors(colors_of(self), self.devicePixelRatioF())

    def event(self, event: QEvent) -> bool:
        """Draw anew on a screen with other pixels."""
        if event.type() == QEvent.Type.DevicePixelRatioChange:
            self.redraw()
        return super().event(event)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follow the pointer within the plot."""
        if event.type() == QEvent.Type.MouseMove:
            self._armed = True
        elif event.type() == QEvent.Type.Leave:
            self._armed = self._zooms = False
            self.link.set_cursor(None)
        elif event.type() == QEvent.Type.Resize:
            self.redraw()
        return super().eventFilter(watched, event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move the cursor, zoom, pin and copy by the keyboard."""
        self._ringed = True
        self.update()
        key = Qt.Key(event.key())
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copied.emit()
        elif key in MOVE_KEYS:
            fast = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
            self.link.move_cursor(MOVE_KEYS[key] * (10 if fast else 1))
            self._say(self.values_text(self.link.cursor or 0.0))
        elif key in ZOOM_KEYS:
            self.link.zoom_at_cursor(ZOOM_KEYS[key])
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self._pin()
        elif key == Qt.Key.Key_0:
            self.show_all()
        elif key == Qt.Key.Key_Escape and (self.link.cursor is not None or self.link.zoomed):
            self.link.set_cursor(None)
            self.show_all()
        elif key == Qt.Key.Key_Menu:
            self.options_wanted.emit()
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show the focus ring if the focus came by the keyboard."""
        super().focusInEvent(event)
        self._ringed = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Take the cursor away that the keyboard moved."""
        super().focusOutEvent(event)
        self.update()
        if not self._armed and event.reason() != Qt.FocusReason.PopupFocusReason:
            self.link.set_cursor(None)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the focus ring, and what changed while the chart was out of sight."""
        if self.stale:
            self.redraw()
        if self.hasFocus() and self._ringed:
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(QColor(colors_of(self).focus), RING_PX))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), SMALL_RADIUS_PX, SMALL_RADIUS_PX)

    def _say(self, text: str) -> None:
        self.setAccessibleDescription(text)
        if QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))

    # Drawing

    def redraw(self) -> None:
        """Draw everything in an event of its own, soon; once the chart is in sight."""
        self.stale = True
        if not self._redraw.isActive():
            self._redraw.start()

    def _view_changed(self) -> None:
        self.head.set_zoomed(self.link.zoomed)
        self.redraw()

    def _content_changed(self) -> None:
        self.head.show_values(self.content, self._texts)
        if self.link.cursor is None and not self.content.is_empty:
            self.setAccessibleDescription(self.values_text(float(self.link.axis.steps[-1])))
        self.redraw()

    def _draw(self) -> None:
        if self.drawing is None or not self.stale or self.visibleRegion().isEmpty():
            return
        self.stale = False
        self._draw_all(self.drawing, self.devicePixelRatioF())

    def _draw_all(self, drawing: ChartDrawing, pixel_ratio: float) -> None:
        drawing.plot.set_colors(colors_of(self), pixel_ratio)
        drawing.draw(self._values_range, pixel_ratio)
        self._draw_cursor()

    def _draw_pins(self) -> None:
        if self.drawing is not None:
            self.drawing.draw_pins()

    def _draw_cursor(self) -> None:
        if self.drawing is not None and not self.visibleRegion().isEmpty():
            self.drawing.draw_cursor(colors_of(self))

    def _make_plot(self) -> None:
        if self.drawing is not None:
            return
        plot = Plot(self.content.lines, self)
        plot.viewport.installEventFilter(self)
        plot.mouse_moved.connect(self._pointer_moved)
        plot.set_colors(colors_of(self), self.devicePixelRatioF())
        self.drawing = ChartDrawing(plot, self.spec, self.content, self.link, self._texts)
        self._holder.addWidget(plot.view)
        self.redraw()

    def _pointer_moved(self, scene_at: QPointF) -> None:
        x = self.drawing.plot.x_at(scene_at) if self.drawing is not None else None
        self.link.set_cursor(None if x is None else self.link.step_at(x))
