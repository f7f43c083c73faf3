"""Links charts: they share the horizontal axis, the range that is shown, the cursor and the pins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PySide6.QtCore import QObject, QTimer, Signal

from burnish_app.curves.run_axis import START, RunAxis, XKind
from burnish_app.widgets.charts.lines import ChartLine

MAX_PINS = 3
PIN_NAMES = "ABC"
_PACE_MS = 16
_SIDE = 0.02  # share of the range left free at each side
_WHOLE = 0.999  # share of everything above which a range is everything


@dataclass(frozen=True)
class Reading:
    """The value of a line at a step.

    Attributes:
        line: appearance of the line.
        label: name of the line.
        step: step that the value is of: the one asked for, or the newest one before it.
        value: value of the line.
        text: value as text, with its unit.
    """

    line: ChartLine
    label: str
    step: float
    value: float
    text: str


class Readable(Protocol):
    """A chart whose values can be read off."""

    name: str

    def readings(self, step: float) -> list[Reading]:
        """Return the value of each visible line at a step."""


class ChartLink(QObject):
    """Links charts of a run.

    Attributes:
        view_changed: signal without arguments: axis, unit or range changed.
        cursor_changed: signal without arguments: the cursor moved, appeared or vanished.
        pins_changed: signal without arguments: a pin was set or removed.
        charts: linked charts, in the order of the value table.
        axis: horizontal axis of the run.
        kind: unit of the horizontal axis.
        cursor: step at the cursor; None: there is no cursor.
        pins: pinned steps, in the order of pinning.
    """

    view_changed = Signal()
    cursor_changed = Signal()
    pins_changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.charts: list[Readable] = []
        self.axis: RunAxis = START
        self.kind: XKind = "step"
        self.cursor: float | None = None
        self.pins: tuple[float, ...] = ()
        self._range: tuple[float, float] | None = None
        self._latest = 0
        self._pace = QTimer(self, singleShot=True, interval=_PACE_MS)
        self._pace.setObjectName("cursor")
        self._pace.timeout.connect(self.cursor_changed)

    @property
    def zoomed(self) -> bool:
        """Whether less than the whole run is shown."""
        return self._range is not None or bool(self._latest)

    @property
    def latest(self) -> int:
        """The number of newest steps that are shown while the run continues; 0: a range or everything."""
        return self._latest

    def range(self) -> tuple[float, float]:
        """Return the range that is shown, in the axis' unit."""
        low, high = self._everything()
        if self._latest:
            steps = self.axis.steps
            begin = steps[max(len(steps) - 1 - self._latest, 0)]
            low = min(float(self.axis.x(self.kind, [begin])[0]), high - self._least())
        return self._range or (low, high)

    def set_axis(self, axis: RunAxis) -> None:
        """Take over the axis of a run that has grown, or of another run."""
        self.axis = axis
        self.view_changed.emit()

    def forget(self) -> None:
        """Drop range, cursor and pins: another run is shown."""
        self._range, self._latest, self.axis = None, 0, START
        self.set_cursor(None)
        self.set_pins(())

    def set_kind(self, kind: XKind) -> None:
        """Change the unit of the axis; the range shows the same steps as before."""
        if kind == self.kind:
            return
        if self._range is not None:
            ends = [self.axis.step(self.kind, end) for end in self._range]
            low, high = self.axis.x(kind, ends)
            self._range = (float(low), float(high)) if high > low else None
        self.kind = kind
        self.view_changed.emit()

    def zoom_to(self, low: float, high: float) -> bool:
        """Show a range and return whether anything changed."""
        first, last = self._everything()
        width = min(max(high - low, self._least()), last - first)
        low = min(max(low, first), last - width)
        before, self._latest = self.range(), 0
        self._range = None if width >= _WHOLE * (last - first) else (low, low + width)
        if self.range() == before:
            return False
        self.view_changed.emit()
        return True

    def zoom_by(self, factor: float, center: float) -> bool:
        """Widen the range around a position by a factor and return whether anything changed."""
        low, high = self.range()
        return self.zoom_to(center - (center - low) * factor, center + (high - center) * factor)

    def zoom_at_cursor(self, factor: float) -> bool:
        """Widen the range around the cursor, or around its middle without one, and return whether anything changed."""
        center = sum(self.range()) / 2
        if self.cursor is not None:
            center = float(self.axis.x(self.kind, [self.cursor])[0])
        return self.zoom_by(factor, center)

    def pan_by(self, distance: float) -> bool:
        """Move the range and return whether anything changed."""
        low, high = self.range()
        return self._range is not None and self.zoom_to(low + distance, high + distance)

    def show_latest(self, steps: int) -> None:
        """Show the newest steps, also as more come; 0: everything."""
        self._range, self._latest = None, steps
        self.view_changed.emit()

    def step_at(self, x: float) -> float:
        """Return the step that was made nearest to a position on the axis."""
        return self.axis.nearest(self.axis.step(self.kind, x))

    def set_cursor(self, step: float | None) -> None:
        """Put the cursor at a step; None: there is none. The signal follows at most every 16 ms."""
        if step != self.cursor:
            self.cursor = step
            if not self._pace.isActive():
                self._pace.start()

    def move_cursor(self, by: int) -> None:
        """Move the cursor by a number of steps that were made; from outside it comes in at the newest one."""
        steps = self.axis.steps
        at = len(steps) - 1 if self.cursor is None else int(np.searchsorted(steps, self.cursor)) + by
        step = float(steps[min(max(at, 0), len(steps) - 1)])
        self.set_cursor(step)
        low, high = self.range()
        x = float(self.axis.x(self.kind, [step])[0])
        if not low <= x <= high:
            self.pan_by(x - (low + high) / 2)

    def toggle_pin(self, step: float) -> None:
        """Pin a step, or remove its pin. The oldest pin goes when there are too many."""
        if step in self.pins:
            self.set_pins(tuple(pin for pin in self.pins if pin != step))
        else:
            self.set_pins((*self.pins, step)[-MAX_PINS:])

    def set_pins(self, pins: tuple[float, ...]) -> None:
        """Replace the pins."""
        if pins != self.pins:
            self.pins = pins
            self.pins_changed.emit()

    def _everything(self) -> tuple[float, float]:
        column = self.axis.column(self.kind)
        first, last = float(column[0]), float(column[-1])
        last = max(last, first + 1)
        side = (last - first) * _SIDE
        return first - side, last + side

    def _least(self) -> float:
        """Return the width of two steps of average width."""
        column = self.axis.column(self.kind)
        return max(2 * float(column[-1] - column[0]) / max(len(column) - 1, 1), 1e-6)
