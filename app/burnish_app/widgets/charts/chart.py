"""A live chart over the steps of a run: legend, linked cursor, zoom, table and pictures.

Importing this loads pyqtgraph and numpy. The drawing is made when the chart is first shown, each chart's in an event of
its own, so that a page with several does not hold up the window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, QRectF, Qt, QTimer, Signal
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
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.curves.curve import Curve, Numbers
from burnish_app.curves.marks import Mark, MarkKind
from burnish_app.curves.run_axis import XKind
from burnish_app.curves.smoothing import smoothed
from burnish_app.curves.tables import CurveTable, curve_table
from burnish_app.curves.ticks import TickText, fixed, linear_ticks, log_ticks, time_text, x_ticks
from burnish_app.look.theme import UNIT, colors_of
from burnish_app.widgets.basic.text import caption, heading
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.charts.hover_card import CardRow, HoverCard
from burnish_app.widgets.charts.legend import LegendEntry
from burnish_app.widgets.charts.lines import ChartLine, Window
from burnish_app.widgets.charts.link import PIN_NAMES, ChartLink, Reading
from burnish_app.widgets.charts.more_button import MoreButton
from burnish_app.widgets.charts.plot import EMPTY, Plot

_ROOM = 0.12  # share of the values' span left free above and below, for marks
_PLOT_PX = 160
_TICK_PX, _LABEL_PX = 36, 52  # least distance of ticks, upright and along
_MARK_GAP_PX = 10
_CLIP = 99  # percentile that values are cut at if asked for
_PIN_MS = 220  # a second click within this time makes it a double click
_RING_PX = 3
_ZOOM_KEYS = {Qt.Key.Key_Plus: 0.5, Qt.Key.Key_Equal: 0.5, Qt.Key.Key_Minus: 2.0}
_MOVE_KEYS = {
    Qt.Key.Key_Left: -1,
    Qt.Key.Key_Right: 1,
    Qt.Key.Key_PageUp: -100,
    Qt.Key.Key_PageDown: 100,
    Qt.Key.Key_Home: -(2**40),
    Qt.Key.Key_End: 2**40,
}


class Chart(QWidget):
    """A chart of curves over the steps of a run.

    Args:
        name: heading of the chart, what its vertical axis shows.
        lines: key to appearance of each line, in the order of drawing.
        link: axis, range, cursor and pins that it shares with other charts.
        value_text: function that formats a value.
        unit: unit of the vertical axis, shown behind the heading; empty: none.
        tick_text: function that formats a tick of the vertical axis.
        limit_label: name of a horizontal line in the legend, such as a prediction.
        from_zero: whether the vertical axis begins at zero, unless it is logarithmic.
        smooth: key of the line whose mean is drawn too; empty: none.
        small: whether there is little room, so that the legend has values without names.

    Attributes:
        options_wanted: signal without arguments: the options shall open.
        copied: signal without arguments: the value table is wanted on the clipboard.
    """

    options_wanted = Signal()
    copied = Signal()

    def __init__(
        self,
        name: str,
        lines: Mapping[str, ChartLine],
        link: ChartLink,
        value_text: Callable[[float], str],
        *,
        unit: str = "",
        tick_text: TickText = fixed,
        limit_label: str = "",
        from_zero: bool = False,
        smooth: str = "",
        small: bool = False,
    ) -> None:
        super().__init__()
        self.name, self.unit, self.link = name, unit, link
        self.smooth, self.log, self.clip, self.window = smooth, False, False, 1
        self._value_text, self._tick_text, self._from_zero = value_text, tick_text, from_zero
        self._lines = dict(lines)
        if smooth:
            self._lines = {
                smooth: replace(lines[smooth], kind="raw"),
                self._mean_key: replace(lines[smooth], kind="mean", label=self.tr("mean")),
                **{key: line for key, line in lines.items() if key != smooth},
            }
        self._curves: dict[str, Curve] = {}
        self._positions: dict[tuple[str, XKind], Numbers] = {}
        self._marks: tuple[Mark, ...] = ()
        self._limit: float | None = None
        self._values_range: tuple[float, float] | None = None
        self._plot: Plot | None = None
        self._card: HoverCard | None = None
        self._armed = self._stale = self._ringed = False
        self._low = self._high = 0.0
        self.setAccessibleName(self.tr("{name} chart").format(name=name))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._legend: dict[str, LegendEntry] = {}
        self._limit_entry = LegendEntry(ChartLine(limit_label, kind="limit"), short=small)
        self._space, self._holder = QWidget(), QVBoxLayout()
        self._space.setLayout(self._holder)
        self._holder.setContentsMargins(0, 0, 0, 0)
        column = QVBoxLayout(self)
        column.setContentsMargins(_RING_PX, _RING_PX, _RING_PX, _RING_PX)
        column.setSpacing(UNIT // 2)
        column.addLayout(self._make_head(small=small))
        column.addWidget(self._space)
        column.addStretch()
        self.set_plot_height(_PLOT_PX)
        self._redraw = QTimer(self, singleShot=True, interval=0)
        self._redraw.timeout.connect(self._draw)
        self._click = QTimer(self, singleShot=True, interval=_PIN_MS)
        self._click.timeout.connect(self._pin)
        link.charts.append(self)
        link.view_changed.connect(self.redraw)
        link.cursor_changed.connect(self._draw_cursor)
        link.pins_changed.connect(self._draw_pins)

    @property
    def _mean_key(self) -> str:
        return f"{self.smooth} mean"

    # What it shows

    def set_curves(
        self, curves: Mapping[str, Curve], *, limit: float | None = None, marks: Sequence[Mark] = ()
    ) -> None:
        """Replace what the chart shows. It is drawn in an event of its own.

        Args:
            curves: key of the line to its curve.
            limit: value of the line of the kind `limit`; None: none.
            marks: what happened at single steps.
        """
        self._curves, self._limit, self._marks = dict(curves), limit, tuple(marks)
        self._positions.clear()
        self._smooth()
        self._show_newest()
        self.redraw()

    def set_window(self, window: int) -> None:
        """Average the smoothed line over this number of steps; 1: do not draw it."""
        self.window = window
        self._smooth()
        self._positions.clear()
        self._show_newest()
        self.redraw()

    def set_log(self, log: bool) -> None:
        """Draw values by their logarithm or as they are."""
        self.log, self._values_range = log, None
        self.redraw()

    def set_clip(self, clip: bool) -> None:
        """Leave out the highest hundredth of the values, or show all."""
        self.clip, self._values_range = clip, None
        self.redraw()

    def set_plot_height(self, height_px: int) -> None:
        """Set the height of the plot without the heading, device-independent pixels."""
        self._space.setFixedHeight(height_px)

    def plot_height(self) -> int:
        """Return the height of the plot, device-independent pixels."""
        return self._space.height()

    def legend(self, key: str) -> LegendEntry:
        """Return the legend's entry of a line."""
        return self._legend[key]

    def curve(self, key: str) -> Curve:
        """Return a line's curve; an empty one if it has none."""
        return self._curves.get(key, Curve.of([], []))

    def table(self) -> CurveTable:
        """Return the values of all lines as a table."""
        names = {self._full_label(key): self._curves[key] for key in self._lines if key in self._curves}
        return curve_table(self.link.axis, names)

    def readings(self, step: float) -> list[Reading]:
        """Return the value of each visible line at a step."""
        found = []
        for key, line in self._lines.items():
            at = self.curve(key).at(step) if self._shown(key) else None
            if at is not None:
                found.append(Reading(line, self._label(key), at[0], at[1], self._value_text(at[1])))
        return found

    def step_text(self, step: float) -> str:
        """Return a step with the tokens and the time up to it."""
        axis = self.link.axis
        tokens, seconds = (float(axis.x(kind, [step])[0]) for kind in ("tokens", "time"))
        text = self.tr("Step {step}").format(step=f"{step:,.0f}")
        return f"{text}  ·  {tokens:,.0f} {self.tr('tokens')}  ·  {time_text(seconds)}"

    def values_text(self, step: float) -> str:
        """Return the values at a step as a sentence, for screen readers."""
        read = [f"{reading.label} {self._reading_text(reading, step)}" for reading in self.readings(step)]
        here = [self._mark_text(mark) for mark in self._marks if mark.step == step]
        return f"{self.tr('Step {step}').format(step=f'{step:,.0f}')}: {', '.join([*read, *here])}"

    # Gestures; `GestureTarget`

    @property
    def takes_wheel(self) -> bool:
        """Whether the wheel zooms. While the page is scrolled under a resting pointer it goes on scrolling."""
        return self._armed

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
        self.zoom_values_to(center - (center - self._low) * factor, center + (self._high - center) * factor)

    def pan_by(self, x: float, y: float) -> None:
        """Move the range of the horizontal axis, and that of the vertical one if it was zoomed."""
        if self._values_range is not None:
            self._values_range = self._low + y, self._high + y
            self.redraw()
        self.link.pan_by(x)

    def show_all(self) -> None:
        """Show the whole run and all values."""
        self._click.stop()
        self._values_range = None
        self.link.show_latest(0)

    def click_at(self, x: float) -> None:
        """Pin the cursor's step, unless a second click follows."""
        self.link.set_cursor(self.link.axis.nearest(self.link.axis.step(self.link.kind, x)))
        self.setFocus(Qt.FocusReason.MouseFocusReason)
        self._click.start()

    def _pin(self) -> None:
        if self.link.cursor is not None:
            self.link.toggle_pin(self.link.cursor)

    # Events

    def showEvent(self, event: QShowEvent) -> None:
        """Schedule making the plot, the first time the chart is shown."""
        super().showEvent(event)
        if self._plot is None:
            QTimer.singleShot(0, self, self._make_plot)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Draw for the new size."""
        super().resizeEvent(event)
        self.redraw()

    def changeEvent(self, event: QEvent) -> None:
        """Apply the theme's colors when the palette changes."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and getattr(self, "_plot", None) is not None:
            self._apply_colors()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follow the pointer within the plot."""
        if event.type() == QEvent.Type.MouseMove:
            self._armed = True
        elif event.type() == QEvent.Type.Leave:
            self._armed = False
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
        elif key in _MOVE_KEYS:
            fast = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
            self.link.move_cursor(_MOVE_KEYS[key] * (10 if fast else 1))
            self._say(self.values_text(self.link.cursor or 0.0))
        elif key in _ZOOM_KEYS:
            low, high = self.link.range()
            center = (low + high) / 2
            if self.link.cursor is not None:
                center = float(self.link.axis.x(self.link.kind, [self.link.cursor])[0])
            self.link.zoom_by(_ZOOM_KEYS[key], center)
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

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Take the cursor away that the keyboard moved."""
        super().focusOutEvent(event)
        self.update()
        if not self._armed and event.reason() != Qt.FocusReason.PopupFocusReason:
            self.link.set_cursor(None)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show the focus ring if the focus came by the keyboard."""
        super().focusInEvent(event)
        self._ringed = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the focus ring, and what changed while the chart was out of sight."""
        if self._stale:
            self.redraw()
        if self.hasFocus() and self._ringed:
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(QColor(colors_of(self).accent_ink), 2))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 4, 4)

    def _say(self, text: str) -> None:
        self.setAccessibleDescription(text)
        if QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))

    # Drawing

    def redraw(self) -> None:
        """Draw everything in an event of its own, soon; once the chart is in sight."""
        self._stale = True
        if not self._redraw.isActive():
            self._redraw.start()

    def _draw(self) -> None:
        plot = self._plot
        if plot is None or not self._stale or self.visibleRegion().isEmpty():
            return
        self._stale = False
        low, high = self.link.range()
        width, height = plot.size_px()
        window = Window(low, high, (high - low) / (width * self.devicePixelRatioF()), self.log)
        extents = []
        for key in self._lines:
            plot.show_line(key, self._shown(key))
            if self._shown(key):
                extents.append(plot.draw_line(key, self._x(key), self._drawn_values(key), window))
        limit = self._drawn_limit()
        plot.set_limit(limit)
        self._low, self._high = self._values_range or self._fit([one for one in extents if one], limit, window)
        plot.set_ranges((low, high), (self._low, self._high))
        self._draw_marks(plot, window, width)
        most_x, most_y = max(int(width / _LABEL_PX), 2), max(int(height / _TICK_PX), 2)
        ticks = log_ticks if self.log else linear_ticks
        names = {"step": self.tr("step"), "tokens": self.tr("tokens"), "time": self.tr("time")}
        plot.set_ticks(
            x_ticks(self.link.kind, low, high, most_x),
            ticks(self._low, self._high, most_y, self._tick_text),
            names[self.link.kind],
        )
        self._draw_pins()
        self._draw_cursor()

    def _fit(self, extents: Sequence[tuple[float, float]], limit: float | None, window: Window) -> tuple[float, float]:
        """Return the range of values that shows all that is drawn, with room so that lines do not touch the frame."""
        ends = [*extents, (limit, limit)] if limit is not None else [*extents]
        if not ends:
            return (0.0, 1.0)
        low, high = min(end[0] for end in ends), max(end[1] for end in ends)
        if self.clip:
            high = max(self._percentile(window), low)
        from_zero = self._from_zero and not self.log
        low = min(low, 0.0) if from_zero else low
        room = (high - low) * _ROOM or (0.3 if self.log else abs(high) * _ROOM or 1.0)
        return (low if from_zero else low - room), high + room

    def _drawn_limit(self) -> float | None:
        """Return where the limit is drawn; None: nowhere."""
        if self._limit is None or not self._limit_entry.isChecked() or (self.log and self._limit <= 0):
            return None
        return float(np.log10(self._limit)) if self.log else self._limit

    def _percentile(self, window: Window) -> float:
        shown = []
        for key in self._lines:
            x = self._x(key)
            values = self._drawn_values(key)[(x >= window.low) & (x <= window.high)]
            if self._shown(key) and self._lines[key].kind != "mean":
                shown.append(values[np.isfinite(values)])
        values = np.concatenate(shown) if shown else EMPTY
        high = float(np.percentile(values, _CLIP)) if len(values) else 1.0
        return float(np.log10(high)) if self.log and high > 0 else high

    def _draw_marks(self, plot: Plot, window: Window, width_px: float) -> None:
        kinds: dict[MarkKind, list[Mark]] = {"checkpoint": [], "best": [], "spike": [], "bad": [], "rollback": []}
        for mark in self._marks:
            kinds[mark.kind].append(mark)
        floor = self._low + 0.05 * (self._high - self._low)
        least = (window.high - window.low) / width_px * _MARK_GAP_PX
        for kind, marks in kinds.items():
            x = self.link.axis.x(self.link.kind, [mark.step for mark in marks])
            y = np.array([floor if mark.value is None else mark.value for mark in marks], dtype=np.float64)
            if self.log:
                y = np.array([floor if mark.value is None else np.log10(max(mark.value, 1e-12)) for mark in marks])
            within = (x >= window.low) & (x <= window.high)
            x, y = x[within], np.clip(y[within], floor, self._high - 0.04 * (self._high - self._low))
            if len(x) > 1 and kind in ("checkpoint", "bad"):  # as many as can be told from each other
                _, kept = np.unique(np.floor(x / least), return_index=True)
                x, y = x[kept], y[kept]
            plot.draw_marks(kind, x, y)

    def _draw_cursor(self) -> None:
        if self._plot is None or self._card is None or self.visibleRegion().isEmpty():
            return
        step = self.link.cursor
        low, high = self.link.range()
        x = float(self.link.axis.x(self.link.kind, [step])[0]) if step is not None else low - 1
        if step is None or not low <= x <= high or not self._curves:
            self._plot.set_cursor(None)
            self._card.hide()
            return
        readings, colors = self.readings(step), colors_of(self)
        dots = []
        for reading in readings:
            value = reading.value if not self.log else np.log10(reading.value) if reading.value > 0 else np.nan
            at = float(self.link.axis.x(self.link.kind, [reading.step])[0])
            if reading.line.kind != "area" and np.isfinite(value) and self._low <= value <= self._high and at >= low:
                dots.append((at, float(value), reading.line.color(colors)))
        self._plot.set_cursor(x, dots)
        rows: list[CardRow] = [(reading.line, reading.label, self._reading_text(reading, step)) for reading in readings]
        rows += [(None, self._mark_text(mark), "") for mark in self._marks if mark.step == step]
        self._card.show_at(self._plot.scene_px(x), self._cursor_title(step), rows)

    def _cursor_title(self, step: float) -> str:
        text = self.tr("Step {step}").format(step=f"{step:,.0f}")
        if self.link.kind == "step":
            return text
        x = float(self.link.axis.x(self.link.kind, [step])[0])
        return f"{text}  ·  " + (time_text(x) if self.link.kind == "time" else f"{x:,.0f} {self.tr('tokens')}")

    def _draw_pins(self) -> None:
        if self._plot is not None:
            pins = self.link.pins
            self._plot.draw_pins(self.link.axis.x(self.link.kind, pins).tolist() if pins else [], PIN_NAMES)

    def _reading_text(self, reading: Reading, step: float) -> str:
        earlier = f" ({self.tr('step {step}').format(step=f'{reading.step:,.0f}')})"
        return reading.text + (earlier if step - reading.step >= 1 else "")

    def _mark_text(self, mark: Mark) -> str:
        return {
            "checkpoint": self.tr("checkpoint saved"),
            "best": self.tr("best held-out loss"),
            "spike": self.tr("spike: far above the steps before"),
            "bad": self.tr("bad step: its numbers could not be used"),
            "rollback": self.tr("the run went back to here"),
        }[mark.kind]

    # Lines

    def _smooth(self) -> None:
        raw = self._curves.get(self.smooth)
        self._curves.pop(self._mean_key, None)
        if raw is not None and self.window > 1:
            self._curves[self._mean_key] = Curve(raw.steps, smoothed(raw.values, self.window))
        if self.smooth:
            self._legend[self._mean_key].set_name(self._full_label(self._mean_key))
            self._legend[self._mean_key].setVisible(self.window > 1)

    def _x(self, key: str) -> Numbers:
        where = key, self.link.kind
        if where not in self._positions:
            self._positions[where] = self.link.axis.x(self.link.kind, self.curve(key).steps)
        return self._positions[where]

    def _drawn_values(self, key: str) -> Numbers:
        """Return the values that a line is drawn at: parts of a stack stand on those drawn before it."""
        return self.curve(key).values

    def _shown(self, key: str) -> bool:
        return self._legend[key].isChecked() and key in self._curves

    def _label(self, key: str) -> str:
        return self._lines[key].label or self.name

    def _full_label(self, key: str) -> str:
        if self.smooth and key == self._mean_key:
            return self.tr("mean of {steps} steps").format(steps=f"{self.window:,}")
        return self._label(key)

    def _show_newest(self) -> None:
        for key, entry in self._legend.items():
            curve = self.curve(key)
            entry.set_value(self._value_text(float(curve.values[-1])) if len(curve) else "")
        self._limit_entry.setVisible(self._limit is not None)
        self._limit_entry.set_value(self._value_text(self._limit) if self._limit is not None else "")
        if self.link.cursor is None and self._curves:
            self.setAccessibleDescription(self.values_text(float(self.link.axis.steps[-1])))

    # Parts

    def _make_plot(self) -> None:
        if self._plot is not None:
            return
        self._plot = Plot(self._lines, self)
        self._plot.view.viewport().installEventFilter(self)  # type: ignore[attr-defined]  # it is a QGraphicsView
        self._plot.mouse_moved.connect(self._pointer_moved)
        self._card = HoverCard(self._plot.view)
        self._apply_colors()
        self._holder.addWidget(self._plot.view)
        self.redraw()

    def _pointer_moved(self, scene_at: QPointF) -> None:
        x = self._plot.x_at(scene_at) if self._plot is not None else None
        axis = self.link.axis
        self.link.set_cursor(None if x is None else axis.nearest(axis.step(self.link.kind, x)))

    def _apply_colors(self) -> None:
        if self._plot is not None:
            self._plot.set_colors(colors_of(self))

    def _make_head(self, *, small: bool) -> QHBoxLayout:
        words = FlowLayout(UNIT if small else 2 * UNIT, 0)
        title, unit = heading(self.name), caption(self.unit)
        for label in (title, unit):
            label.setWordWrap(False)
        (unit if self.unit else title).setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        words.addWidget(title)
        if self.unit:
            words.addWidget(unit)
        for key, line in self._lines.items():
            entry = LegendEntry(line, short=small)
            entry.toggled.connect(self.redraw)
            self._legend[key] = entry
            words.addWidget(entry)
        self._limit_entry.toggled.connect(self.redraw)
        self._limit_entry.hide()
        words.addWidget(self._limit_entry)
        self.more = MoreButton(self.tr("Options of the {name} chart").format(name=self.name))
        self.more.clicked.connect(lambda _checked=False: self.options_wanted.emit())
        head = QHBoxLayout()
        head.setSpacing(UNIT // 2)
        head.addLayout(words, 1)
        head.addWidget(self.more, alignment=Qt.AlignmentFlag.AlignTop)
        return head

    def menu_corner(self) -> QPoint:
        """Return the screen position under the options button."""
        return self.more.mapToGlobal(QPoint(self.more.width(), self.more.height()))
