"""A live chart over optimizer steps: a heading, a legend with values, and a cursor that follows the pointer.

Importing this loads pyqtgraph and numpy. The drawing is made when the chart is first shown, each chart's in an event of
its own, so that a page with several does not hold up the window.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from PySide6.QtCore import QEvent, QObject, QPointF, QSize, QTimer
from PySide6.QtGui import QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.look.theme import UNIT, colors_of
from burnish_app.widgets.basic.buttons import row
from burnish_app.widgets.basic.plot import ChartLine, Numbers, Plot, line_pen
from burnish_app.widgets.basic.text import caption, heading
from burnish_app.widgets.basic.wrapping import FlowLayout

_HOVER_MS = 33
_ROOM, _SIDE_ROOM = 0.12, 0.02  # shares of the spans left free around the lines, for their marks
_PLOT_PX = 160
_NONE: Numbers = np.empty(0)


def moving_mean(values: ArrayLike, window: int) -> Numbers:
    """Compute the mean of the last `window` numbers at each position, leaving out numbers that are not finite.

    Args:
        values: numbers in order, [points].
        window: number of positions to average, at least 1.
    """
    numbers = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(numbers)
    sums = np.concatenate(([0.0], np.cumsum(np.where(finite, numbers, 0.0))))
    counts = np.concatenate(([0], np.cumsum(finite)))
    end = np.arange(1, len(numbers) + 1)
    start = np.maximum(end - window, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        means: Numbers = (sums[end] - sums[start]) / (counts[end] - counts[start])
    return means


class _Swatch(QWidget):
    """Draws a short piece of a line, for the legend."""

    def __init__(self, line: ChartLine, *, dashed: bool) -> None:
        super().__init__()
        self._line, self._dashed = line, dashed
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(22, 12)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        pen = line_pen(colors_of(self), self._line, dashed=self._dashed)
        painter.setPen(pen)
        painter.drawLine(QPointF(1, 6), QPointF(21, 6))
        if self._line.points:
            painter.setBrush(pen.color())
            painter.drawEllipse(QPointF(11, 6), 2.5, 2.5)


class Chart(QWidget):
    """A chart of values over optimizer steps.

    Args:
        name: heading of the chart.
        lines: key to appearance of each line, in the order of the legend.
        value_text: function that formats a value in the legend.
        tick_text: function that formats a value at the axis; by default `value_text`.
        from_zero: whether the value axis always begins at zero.
    """

    def __init__(
        self,
        name: str,
        lines: dict[str, ChartLine],
        value_text: Callable[[float], str],
        *,
        tick_text: Callable[[float], str] | None = None,
        from_zero: bool = False,
    ) -> None:
        super().__init__()
        self._lines, self._value_text, self._from_zero = lines, value_text, from_zero
        self._tick_text = tick_text or value_text
        self._data: dict[str, tuple[Numbers, Numbers]] = {}
        self._marked = _NONE, _NONE
        self._marks_legend = caption("", "warning")
        self._marks_legend.setWordWrap(False)
        self._marks_legend.hide()
        self._legend: dict[str, QLabel] = {}
        self._plot: Plot | None = None
        self._pointer: float | None = None
        self.setAccessibleName(f"{name} chart")
        self._step = caption("")
        self._step.setWordWrap(False)
        self._holder = QVBoxLayout()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(UNIT // 2)
        column.addLayout(self._make_head(name))
        self._space = QWidget()
        self._space.setLayout(self._holder)
        self._holder.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._space)
        self.set_plot_height(_PLOT_PX)
        self._hover = QTimer(self, singleShot=True, interval=_HOVER_MS)
        self._hover.timeout.connect(self._show_values)

    def set_line(self, key: str, x: ArrayLike, y: ArrayLike) -> None:
        """Replace a line's values.

        Args:
            key: key of the line.
            x: rising steps, [points].
            y: values, [points]; a value that is not finite is a gap.
        """
        self._data[key] = (np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
        if self._plot is not None:
            self._plot.set_line(key, *self._data[key])
            self._fit()
        if not self._hover.isActive():
            self._show_values()

    def set_marks(self, bad: ArrayLike, rollback_steps: ArrayLike) -> None:
        """Mark unusable steps, and the steps that the run rolled back to.

        Args:
            bad: unusable steps.
            rollback_steps: steps that the run rolled back to.
        """
        self._marked = np.asarray(bad, dtype=np.float64), np.asarray(rollback_steps, dtype=np.float64)
        marks = [("✕ bad step", self._marked[0]), ("┆ went back to here", self._marked[1])]
        self._marks_legend.setText("   ".join(text for text, steps in marks if len(steps)))
        self._marks_legend.setVisible(bool(self._marks_legend.text()))
        if self._plot is not None:
            self._plot.set_marks(*self._marked)

    def set_plot_height(self, height_px: int) -> None:
        """Set the height of the plot without the heading, device-independent pixels."""
        self._space.setFixedHeight(height_px)

    def legend_text(self, key: str) -> str:
        """Return the legend's text of a line."""
        return self._legend[key].text()

    def point_at(self, step: float | None) -> None:
        """Show the values at a step in the legend; None shows the newest values."""
        self._pointer = step
        if not self._hover.isActive():
            self._hover.start()

    def showEvent(self, event: QShowEvent) -> None:
        """Schedule making the plot, the first time the chart is shown."""
        super().showEvent(event)
        if self._plot is None:
            QTimer.singleShot(0, self, self._make_plot)

    def changeEvent(self, event: QEvent) -> None:
        """Apply the theme's colors when the palette changes."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and getattr(self, "_plot", None) is not None:
            self._apply_colors()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Show the newest values again when the pointer leaves the plot."""
        if event.type() == QEvent.Type.Leave:
            self.point_at(None)
        return super().eventFilter(watched, event)

    def _make_plot(self) -> None:
        if self._plot is not None:
            return
        self._plot = Plot(self._lines, self._tick_text, self.point_at)
        self._plot.view.installEventFilter(self)
        self._apply_colors()
        for key, data in self._data.items():
            self._plot.set_line(key, *data)
        self._plot.set_marks(*self._marked)
        self._fit()
        self._holder.addWidget(self._plot.view)

    def _apply_colors(self) -> None:
        if self._plot is not None:
            self._plot.set_colors(colors_of(self))

    def _make_head(self, name: str) -> FlowLayout:
        head = FlowLayout()
        title = heading(name)
        title.setWordWrap(False)
        title.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        head.addWidget(title)
        head.addWidget(self._step)
        for key, line in self._lines.items():
            label = caption(line.label)
            label.setWordWrap(False)
            self._legend[key] = label
            head.addWidget(row(_Swatch(line, dashed=len(self._lines) > 1), label))
        head.addWidget(self._marks_legend)
        return head

    def _fit(self) -> None:
        """Set axis ranges that show all finite values, with room so that lines do not touch the frame."""
        steps = [x for x, _ in self._data.values() if len(x)]
        values = [y[np.isfinite(y)] for _, y in self._data.values()]
        values = [y for y in values if len(y)]
        if self._plot is None or not steps or not values:
            return
        low, high = float(min(y.min() for y in values)), float(max(y.max() for y in values))
        low = min(low, 0.0) if self._from_zero else low
        room = (high - low) * _ROOM or abs(high) * _ROOM or 1.0
        first, last = float(min(x[0] for x in steps)), float(max(x[-1] for x in steps))
        side = max(last - first, 1.0) * _SIDE_ROOM
        self._plot.set_ranges(
            (first - side, max(last, first + 1) + side), (low if self._from_zero else low - room, high + room)
        )

    def _show_values(self) -> None:
        """Show the values at the pointer, or the newest ones, in the legend."""
        shown = self._nearest_step(self._pointer) if self._pointer is not None else None
        if self._plot is not None:
            self._plot.set_cursor(shown)
        self._step.setText(f"step {shown:,.0f}" if shown is not None else "")
        self._step.setVisible(shown is not None)
        for key, line in self._lines.items():
            steps, values = self._data.get(key, (_NONE, _NONE))
            text = line.label
            if len(steps):
                at = len(steps) - 1 if shown is None else int(np.searchsorted(steps, shown, side="right")) - 1
                if at >= 0:
                    text = f"{line.label} {self._value_text(float(values[at]))}".strip()
            if self._legend[key].text() != text:
                self._legend[key].setText(text)

    def _nearest_step(self, at: float) -> float | None:
        longest = max((steps for steps, _ in self._data.values()), key=len, default=_NONE)
        if not len(longest):
            return None
        return float(longest[int(np.argmin(np.abs(longest - at)))])
