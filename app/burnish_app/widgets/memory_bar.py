"""A bar of what a run will need, part by part, against what is free now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from burnish_app.part_colors import part_color
from burnish_app.theme import SMALL_PX, UNIT, Colors, colors_of, font
from burnish_engine.contract.units import memory_size

_BAR_PX = 24
_LEGEND_PX = 22
_SWATCH_PX = 10
_LIMIT_PX = 18


@dataclass(frozen=True)
class Part:
    """One segment of the bar."""

    name: str
    bytes: int
    note: str = ""


class MemoryBar(QWidget):
    """Segments with a legend below; a line marks what is free. Hover names each part and its size."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._parts: tuple[Part, ...] = ()
        self._free_bytes = 0
        self._places: list[tuple[QRectF, Part]] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Memory needed")

    def show_parts(self, parts: Sequence[Part], free_bytes: int) -> None:
        """Show other figures.

        Args:
            parts: Segments, in the order they are drawn.
            free_bytes: Where the limit is drawn.
        """
        self._parts = tuple(part for part in parts if part.bytes > 0)
        self._free_bytes = free_bytes
        needed = memory_size(sum(part.bytes for part in self._parts))
        self.setAccessibleDescription(f"{needed} needed, {memory_size(free_bytes)} free")
        self._place()
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        """Height depends on how many lines the legend takes."""
        return QSize(420, _LIMIT_PX + _BAR_PX + UNIT + self._legend_lines() * _LEGEND_PX)

    def minimumSizeHint(self) -> QSize:
        """As the size hint, but narrow."""
        return QSize(240, self.sizeHint().height())

    def resizeEvent(self, event: object) -> None:
        """The legend wraps anew."""
        self._place()
        self.updateGeometry()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw bar, limit and legend."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(colors.raised))
        painter.drawRoundedRect(QRectF(0, _LIMIT_PX, self.width(), _BAR_PX), 4, 4)
        for place, part in self._places:
            painter.setBrush(QColor(part_color(part.name, dark=colors.dark)))
            painter.drawRoundedRect(place, 3, 3)
        self._paint_limit(painter, colors)
        self._paint_legend(painter, colors)

    def event(self, event: QEvent) -> bool:
        """Tool tips name the segment under the pointer."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            part = next((part for place, part in self._places if place.contains(QPointF(event.pos()))), None)
            text = f"{part.name}: {memory_size(part.bytes)}\n{part.note}".strip() if part else ""
            QToolTip.showText(event.globalPos(), text, self)
            return True
        return super().event(event)

    def _scale_bytes(self) -> int:
        return max(sum(part.bytes for part in self._parts), self._free_bytes, 1)

    def _place(self) -> None:
        self._places = []
        left = 0.0
        for part in self._parts:
            width = part.bytes / self._scale_bytes() * self.width()
            self._places.append((QRectF(left, _LIMIT_PX, max(width - 1.5, 1.0), _BAR_PX), part))
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

    def _legend_places(self) -> list[QPointF]:
        """Where each entry of the legend begins: one after the other, wrapped to the width."""
        metrics = QFontMetricsF(font(SMALL_PX))
        places, x, y = [], 0.0, float(_LIMIT_PX + _BAR_PX + UNIT)
        for part in self._parts:
            width = _SWATCH_PX + UNIT + metrics.horizontalAdvance(f"{part.name}  {memory_size(part.bytes)}")
            if x > 0 and x + width > self.width():
                x, y = 0.0, y + _LEGEND_PX
            places.append(QPointF(x, y))
            x += width + 3 * UNIT
        return places

    def _legend_lines(self) -> int:
        return len({place.y() for place in self._legend_places()})

    def _paint_legend(self, painter: QPainter, colors: Colors) -> None:
        painter.setFont(font(SMALL_PX))
        metrics = QFontMetricsF(painter.font())
        for part, place in zip(self._parts, self._legend_places(), strict=True):
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(part_color(part.name, dark=colors.dark)))
            top = place.y() + (_LEGEND_PX - _SWATCH_PX) / 2
            painter.drawRoundedRect(QRectF(place.x(), top, _SWATCH_PX, _SWATCH_PX), 2, 2)
            left = place.x() + _SWATCH_PX + UNIT
            for text, color in ((f"{part.name}  ", colors.muted), (memory_size(part.bytes), colors.text)):
                painter.setPen(QColor(color))
                line = QRectF(left, place.y(), self.width(), _LEGEND_PX)
                painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, text)
                left += metrics.horizontalAdvance(text)
