"""The bars of the memory that a run will need: all of it against what is free now, and below it part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from burnish_app.look.language import tr
from burnish_app.look.part_colors import part_color
from burnish_app.look.theme import SMALL_PX, UNIT, Colors, colors_of, font
from burnish_engine.contract.units import memory_size

_TOTAL_PX = 6
_BAR_PX = 20
_BAR_TOP_PX = _TOTAL_PX + 12
_LEGEND_PX = 22
_SWATCH_PX = 10


@dataclass(frozen=True)
class MemorySegment:
    """One segment of the bar: a part of the memory, its size in bytes and a note."""

    name: str
    bytes: int
    note: str = ""


class MemoryBar(QWidget):
    """Draws what is needed of the free memory, and its segments with a legend. A tooltip has the size of a segment."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._parts: tuple[MemorySegment, ...] = ()
        self._free_bytes = 0
        self._segments: list[tuple[QRectF, MemorySegment]] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(tr("Memory needed"))

    def show_parts(self, parts: Sequence[MemorySegment], free_bytes: int) -> None:
        """Replace the segments.

        Args:
            parts: segments, in the order of drawing.
            free_bytes: free memory, which the upper bar stands for, bytes.
        """
        self._parts = tuple(part for part in parts if part.bytes > 0)
        self._free_bytes = free_bytes
        needed = memory_size(sum(part.bytes for part in self._parts))
        self.setAccessibleDescription(
            tr("{needed} needed, {free_bytes} free").format(needed=needed, free_bytes=memory_size(free_bytes))
        )
        self._lay_out()
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        """Return the preferred size; the height depends on the lines of the legend."""
        return QSize(420, _BAR_TOP_PX + _BAR_PX + UNIT + self._legend_lines() * _LEGEND_PX)

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size: the preferred height, but narrow."""
        return QSize(240, self.sizeHint().height())

    def resizeEvent(self, event: object) -> None:
        """Wrap the legend to the new width."""
        self._lay_out()
        self.updateGeometry()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the bar, the limit and the legend."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(colors.line))
        half = _TOTAL_PX / 2
        painter.drawRoundedRect(QRectF(0, 0, self.width(), _TOTAL_PX), half, half)
        needed = sum(part.bytes for part in self._parts)
        if needed and self._free_bytes:
            share = min(needed / self._free_bytes, 1.0)
            painter.setBrush(QColor(colors.error if needed > self._free_bytes else colors.accent))
            painter.drawRoundedRect(QRectF(0, 0, max(share * self.width(), _TOTAL_PX), _TOTAL_PX), half, half)
        for position, part in self._segments:
            painter.setBrush(QColor(part_color(part.name, dark=colors.dark)))
            painter.drawRoundedRect(position, 3, 3)
        self._paint_legend(painter, colors)

    def event(self, event: QEvent) -> bool:
        """Show a tooltip with the segment under the pointer."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            part = next((part for position, part in self._segments if position.contains(QPointF(event.pos()))), None)
            text = f"{part.name}: {memory_size(part.bytes)}\n{part.note}".strip() if part else ""
            QToolTip.showText(event.globalPos(), text, self)
            return True
        return super().event(event)

    def _lay_out(self) -> None:
        self._segments = []
        left, needed = 0.0, max(sum(part.bytes for part in self._parts), 1)
        for part in self._parts:
            width = part.bytes / needed * self.width()
            self._segments.append((QRectF(left, _BAR_TOP_PX, max(width - 1.5, 1.0), _BAR_PX), part))
            left += width

    def _legend_positions(self) -> list[QPointF]:
        """Return where each entry of the legend begins: one after the other, wrapped to the width."""
        metrics = QFontMetricsF(font(SMALL_PX))
        positions, x, y = [], 0.0, float(_BAR_TOP_PX + _BAR_PX + UNIT)
        for part in self._parts:
            width = _SWATCH_PX + UNIT + metrics.horizontalAdvance(f"{part.name}  {memory_size(part.bytes)}")
            if x > 0 and x + width > self.width():
                x, y = 0.0, y + _LEGEND_PX
            positions.append(QPointF(x, y))
            x += width + 3 * UNIT
        return positions

    def _legend_lines(self) -> int:
        return len({position.y() for position in self._legend_positions()})

    def _paint_legend(self, painter: QPainter, colors: Colors) -> None:
        painter.setFont(font(SMALL_PX))
        metrics = QFontMetricsF(painter.font())
        for part, position in zip(self._parts, self._legend_positions(), strict=True):
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(part_color(part.name, dark=colors.dark)))
            top = position.y() + (_LEGEND_PX - _SWATCH_PX) / 2
            painter.drawRoundedRect(QRectF(position.x(), top, _SWATCH_PX, _SWATCH_PX), 2, 2)
            left = position.x() + _SWATCH_PX + UNIT
            for text, color in ((f"{part.name}  ", colors.muted), (memory_size(part.bytes), colors.text)):
                painter.setPen(QColor(color))
                line = QRectF(left, position.y(), self.width(), _LEGEND_PX)
                painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, text)
                left += metrics.horizontalAdvance(text)
