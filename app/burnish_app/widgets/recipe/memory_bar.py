"""The bar of the memory that a run will need, part by part, against the memory that is free now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from burnish_app.look.part_colors import part_color
from burnish_app.look.theme import SMALL_PX, UNIT, Colors, colors_of, font
from burnish_engine.contract.units import memory_size

_BAR_PX = 24
_LEGEND_PX = 22
_SWATCH_PX = 10
_LIMIT_PX = 18


@dataclass(frozen=True)
class MemorySegment:
    """One segment of the bar: a part of the memory, its size in bytes and a note."""

    name: str
    bytes: int
    note: str = ""


class MemoryBar(QWidget):
    """Draws the segments with a legend below and a line at the free memory. A tooltip names each part and its size."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._parts: tuple[MemorySegment, ...] = ()
        self._free_bytes = 0
        self._segments: list[tuple[QRectF, MemorySegment]] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Memory needed")

    def show_parts(self, parts: Sequence[MemorySegment], free_bytes: int) -> None:
        """Replace the segments.

        Args:
            parts: segments, in the order of drawing.
            free_bytes: free memory, where the limit is drawn, bytes.
        """
        self._parts = tuple(part for part in parts if part.bytes > 0)
        self._free_bytes = free_bytes
        needed = memory_size(sum(part.bytes for part in self._parts))
        self.setAccessibleDescription(f"{needed} needed, {memory_size(free_bytes)} free")
        self._lay_out()
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        """Return the preferred size; the height depends on the lines of the legend."""
        return QSize(420, _LIMIT_PX + _BAR_PX + UNIT + self._legend_lines() * _LEGEND_PX)

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
        painter.setBrush(QColor(colors.raised))
        painter.drawRoundedRect(QRectF(0, _LIMIT_PX, self.width(), _BAR_PX), 4, 4)
        for position, part in self._segments:
            painter.setBrush(QColor(part_color(part.name, dark=colors.dark)))
            painter.drawRoundedRect(position, 3, 3)
        self._paint_limit(painter, colors)
        self._paint_legend(painter, colors)

    def event(self, event: QEvent) -> bool:
        """Show a tooltip with the segment under the pointer."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            part = next((part for position, part in self._segments if position.contains(QPointF(event.pos()))), None)
            text = f"{part.name}: {memory_size(part.bytes)}\n{part.note}".strip() if part else ""
            QToolTip.showText(event.globalPos(), text, self)
            return True
        return super().event(event)

    def _scale_bytes(self) -> int:
        return max(sum(part.bytes for part in self._parts), self._free_bytes, 1)

    def _lay_out(self) -> None:
        self._segments = []
        left = 0.0
        for part in self._parts:
            width = part.bytes / self._scale_bytes() * self.width()
            self._segments.append((QRectF(left, _LIMIT_PX, max(width - 1.5, 1.0), _BAR_PX), part))
            left += width

    def _paint_limit(self, painter: QPainter, colors: Colors) -> None:
        if not self._free_bytes:
            return
        x = self._free_bytes / self._scale_bytes() * self.width()
        over = sum(part.bytes for part in self._parts) > self._free_bytes
        color = QColor(colors.text if over else colors.muted)
        painter.setPen(QPen(color, 2 if over else 1))
        painter.drawLine(QPointF(x - 1, _LIMIT_PX - 3), QPointF(x - 1, _LIMIT_PX + _BAR_PX + 3))
        painter.setFont(font(SMALL_PX))
        text = f"{memory_size(self._free_bytes)} free now"
        width = painter.fontMetrics().horizontalAdvance(text)
        painter.drawText(
            QRectF(max(0.0, x - width - 6), 0, width + 2, _LIMIT_PX - 2), Qt.AlignmentFlag.AlignRight, text
        )

    def _legend_positions(self) -> list[QPointF]:
        """Return where each entry of the legend begins: one after the other, wrapped to the width."""
        metrics = QFontMetricsF(font(SMALL_PX))
        positions, x, y = [], 0.0, float(_LIMIT_PX + _BAR_PX + UNIT)
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
