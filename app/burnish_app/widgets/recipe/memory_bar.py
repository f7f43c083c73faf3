"""The bars of the memory that a run will need: all of it against what is free now, and below it part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.part_colors import part_colors
from burnish_app.look.theme import SMALL_PX, UNIT, Colors, colors_of, font
from burnish_engine.contract.units import memory_size

_TOTAL_PX = 6
_BAR_PX = 20
_BAR_TOP_PX = _TOTAL_PX + 12
_LEGEND_PX = 22
_SWATCH_PX = 10
_COLUMN_PX, _BETWEEN_PX = 184, 32  # least width of a column of the legend, and the space between two
_LEAST_SHARE = 0.03  # share of what is needed, below which a part is a sliver of the bar


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
        total = tr("{needed} needed, {free_bytes} free").format(needed=needed, free_bytes=memory_size(free_bytes))
        self.setAccessibleDescription("\n".join([total, *(f"{p.name}: {memory_size(p.bytes)}" for p in self._parts)]))
        self._lay_out()
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        """Return the preferred size; the height depends on the lines of the legend."""
        return QSize(420, _BAR_TOP_PX + _BAR_PX + UNIT + self._legend_lines() * scaled(_LEGEND_PX))

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
        inks = part_colors([part.name for part in self._parts], dark=colors.dark)
        for (position, _part), ink in zip(self._segments, inks, strict=True):
            painter.setBrush(QColor(ink))
            painter.drawRoundedRect(position, 3, 3)
        self._paint_legend(painter, colors)

    def event(self, event: QEvent) -> bool:
        """Show a tooltip with the segment under the pointer."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            part = next((part for position, part in self._segments if position.contains(QPointF(event.pos()))), None)
            text = f"{part.name}: {memory_size(part.bytes)}\n{part.note}".strip() if part else ""
            text = text or self.accessibleDescription()
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

    def _legend(self) -> list[MemorySegment]:
        """Return the entries of the legend: parts too small to be seen in the bar are one entry."""
        needed = sum(part.bytes for part in self._parts)
        small = [part for part in self._parts if part.bytes < _LEAST_SHARE * needed]
        if len(small) < 2:
            return list(self._parts)
        text = tr("{count} smaller parts").format(count=len(small))
        return [*(part for part in self._parts if part not in small), MemorySegment(text, sum(p.bytes for p in small))]

    def _legend_columns(self) -> int:
        return max(min((self.width() + _BETWEEN_PX) // (scaled(_COLUMN_PX) + _BETWEEN_PX), len(self._legend()), 3), 1)

    def _legend_lines(self) -> int:
        return -(-len(self._legend()) // self._legend_columns())

    def _paint_legend(self, painter: QPainter, colors: Colors) -> None:
        painter.setFont(font(SMALL_PX))
        inks = part_colors([part.name for part in self._parts], dark=colors.dark)
        columns, lines = self._legend_columns(), self._legend_lines()
        width = (self.width() - (columns - 1) * _BETWEEN_PX) / columns
        for number, part in enumerate(self._legend()):
            left = number // lines * (width + _BETWEEN_PX)
            top = _BAR_TOP_PX + _BAR_PX + UNIT + number % lines * scaled(_LEGEND_PX)
            if part in self._parts:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(QColor(inks[self._parts.index(part)]))
                swatch = QRectF(left, top + (scaled(_LEGEND_PX) - _SWATCH_PX) / 2, _SWATCH_PX, _SWATCH_PX)
                painter.drawRoundedRect(swatch, 2, 2)
            words = QRectF(left + _SWATCH_PX + UNIT, top, width - _SWATCH_PX - UNIT, scaled(_LEGEND_PX))
            painter.setPen(QColor(colors.muted))
            painter.drawText(words, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, part.name)
            painter.setPen(QColor(colors.text))
            painter.drawText(
                words, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, memory_size(part.bytes)
            )
