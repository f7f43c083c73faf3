"""A view box that reports what the mouse does, so that all linked charts can follow."""

from __future__ import annotations

from typing import Any, Protocol

import pyqtgraph as pg
from PySide6.QtCore import QPointF, Qt

_STEEP, _STEEP_PX = 2.0, 24  # a drag so much higher than wide, and so high, selects values instead of steps
_LEAST_PX = 6
_WHEEL = 1.0015  # factor for each unit of the wheel; one notch has 120
ZOOM_KEYS = {Qt.Key.Key_Plus: 0.5, Qt.Key.Key_Equal: 0.5, Qt.Key.Key_Minus: 2.0}
"""Keys to the factor that they widen the range by."""
MOVE_KEYS = {
    Qt.Key.Key_Left: -1,
    Qt.Key.Key_Right: 1,
    Qt.Key.Key_PageUp: -100,
    Qt.Key.Key_PageDown: 100,
    Qt.Key.Key_Home: -(2**40),
    Qt.Key.Key_End: 2**40,
}
"""Keys to the number of steps that they move the cursor by."""


class MarkItem(pg.ScatterPlotItem):  # type: ignore[misc]  # pyqtgraph has no types
    """Points that let clicks through: pyqtgraph's own would keep those that hit a point."""

    def mouseClickEvent(self, event: Any) -> None:
        """Leave the click to the view box."""
        event.ignore()


class GestureTarget(Protocol):
    """The chart that acts on gestures. Positions are in the units of its axes."""

    def zoom_to(self, low: float, high: float) -> None:
        """Show a range of the horizontal axis."""

    def zoom_values_to(self, low: float, high: float) -> None:
        """Show a range of the vertical axis."""

    def zoom_by(self, factor: float, center: float) -> bool:
        """Widen the range around a position by a factor and return whether anything changed."""

    def zoom_values_by(self, factor: float, center: float) -> None:
        """Widen the range of the vertical axis around a position by a factor."""

    def pan_by(self, x: float, y: float) -> None:
        """Move both ranges."""

    def show_all(self) -> None:
        """Show everything."""

    def click_at(self, x: float) -> None:
        """Handle a click."""

    @property
    def takes_wheel(self) -> bool:
        """Whether the wheel zooms without Ctrl."""


class GestureBox(pg.ViewBox):  # type: ignore[misc]  # pyqtgraph has no types
    """A view box whose gestures go to a chart.

    Args:
        target: chart that acts on the gestures.
    """

    def __init__(self, target: GestureTarget) -> None:
        super().__init__(enableMenu=False, enableMouse=False)
        self._target = target

    def wheelEvent(self, event: Any, axis: int | None = None) -> None:
        """Zoom around the pointer where that was asked for, with Shift or over the vertical axis the values.

        The page scrolls otherwise.
        """
        factor = _WHEEL ** -event.delta()
        center = self.mapToView(event.pos())
        is_asked = event.modifiers() & Qt.KeyboardModifier.ControlModifier or self._target.takes_wheel
        if is_asked and (axis == 1 or event.modifiers() & Qt.KeyboardModifier.ShiftModifier):
            self._target.zoom_values_by(factor, center.y())
            event.accept()
        elif is_asked and self._target.zoom_by(factor, center.x()):
            event.accept()
        else:
            event.ignore()

    def mouseDragEvent(self, event: Any, axis: int | None = None) -> None:
        """Select a range to zoom to; with Shift or the middle button move what is shown."""
        event.accept()
        shift = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        if axis is not None or shift or event.button() == Qt.MouseButton.MiddleButton:
            before, now = self.mapToView(event.lastPos()), self.mapToView(event.pos())
            self._target.pan_by(before.x() - now.x() if axis != 1 else 0.0, before.y() - now.y() if axis != 0 else 0.0)
        elif event.button() == Qt.MouseButton.LeftButton:
            self._select(event.buttonDownPos(), event.pos(), done=event.isFinish())

    def mouseClickEvent(self, event: Any) -> None:
        """Report a click; a double click shows everything."""
        if event.button() == Qt.MouseButton.LeftButton:
            event.accept()
            if event.double():
                self._target.show_all()
            else:
                self._target.click_at(self.mapToView(event.pos()).x())

    def _select(self, begin: QPointF, end: QPointF, *, done: bool) -> None:
        frame = self.rect()
        width, height = abs(end.x() - begin.x()), abs(end.y() - begin.y())
        steep = height > _STEEP * width and height > _STEEP_PX
        first, second = QPointF(begin), QPointF(end)
        if steep:
            first.setX(frame.left())
            second.setX(frame.right())
        else:
            first.setY(frame.top())
            second.setY(frame.bottom())
        if not done:
            self.updateScaleBox(first, second)
            return
        self.rbScaleBox.hide()
        one, other = self.mapToView(first), self.mapToView(second)
        if steep:
            self._target.zoom_values_to(*sorted((one.y(), other.y())))
        elif width > _LEAST_PX:
            self._target.zoom_to(*sorted((one.x(), other.x())))
