"""The chart of sizes: each type as a point, size against gain kept, larger where it is faster; a press chooses it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QColor,
    QFocusEvent,
    QFontMetricsF,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from burnish_app.curves.export_points import ExportPoint, axis_ranges, limit_in_view, point_text, shows_gain
from burnish_app.curves.ticks import linear_ticks, size_ticks
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import RING_PX, SMALL_PX, SMALL_RADIUS_PX, UNIT
from burnish_app.wording.numbers import percent
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES

_HEIGHT_PX, _LEAST_PX, _LEFT_PX = 260, 260, 62
_DOT_PX, _FASTER_PX = 4.5, 5.0  # radius of the slowest point, and what the fastest one has more
_REACH_PX = 24.0  # distance from a point within which a press takes it
_TICK_PX, _APART_TICKS_PX = 60, 40
_APART_PX = 4  # between two names beside each other
_GROUND_ALPHA = 0.8  # opacity of what is behind the name of a chosen type
_GB = 1e9


def _share_text(share: float, decimals: int) -> str:
    """Format a tick of shares, with the decimals that tell it from the next."""
    return percent(share, max(decimals - 2, 0))


class SizeChart(QWidget):
    """Draws types as points: hollow predicted, filled measured, crossed out refused, ringed chosen.

    Attributes:
        toggled: signal with the GGUF type whose point was pressed.
        points: points shown, smallest file first.
        chosen: types that are chosen.
        current: index of the point that the keyboard or the pointer is at; -1: none.
    """

    toggled = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.points: list[ExportPoint] = []
        self.chosen: frozenset[str] = frozenset()
        self.current = -1
        self._message = ""
        self._limit_bytes = 0
        self._ranges = ((0.0, 1.0), (0.0, 1.0))
        self.setAccessibleName(tr("Size, gain kept and speed of each type"))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_points(self, points: Sequence[ExportPoint], limit_bytes: int) -> None:
        """Replace the points.

        Args:
            points: points, smallest file first.
            limit_bytes: largest file that the target runs; 0: not known.
        """
        here = self.points[self.current].quant if self.current >= 0 else ""
        self.points, self._limit_bytes = list(points), limit_bytes
        self.current = next((at for at, point in enumerate(self.points) if point.quant == here), -1)
        if points:
            self._ranges = axis_ranges(points, limit_bytes)
        self._describe()
        self.update()

    def show_message(self, text: str) -> None:
        """Show a sentence while there are no points."""
        self._message = text
        self._describe()
        self.update()

    def show_chosen(self, quants: Collection[str]) -> None:
        """Ring the chosen types."""
        self.chosen = frozenset(quants)
        self._describe()
        self.update()

    def sizeHint(self) -> QSize:
        """Return the preferred size."""
        return QSize(2 * _LEAST_PX, scaled(_HEIGHT_PX))

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size."""
        return QSize(_LEAST_PX, scaled(_HEIGHT_PX))

    def place_of(self, quant: str) -> QPointF:
        """Return where a type's point is drawn."""
        return self._place(next(point for point in self.points if point.quant == quant))

    # Keys and pointer

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move between the points by size, and choose the one that it is at."""
        last, at = len(self.points) - 1, self.current
        moves = {
            Qt.Key.Key_Right: min(at + 1, last),
            Qt.Key.Key_Left: max(at - 1, 0),
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: last,
        }
        key = Qt.Key(event.key())
        if key in moves and self.points:
            self._go_to(moves[key])
        elif key in (Qt.Key.Key_Space, Qt.Key.Key_Return, Qt.Key.Key_Enter) and at >= 0 and not event.modifiers():
            self._toggle(at)
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Choose the point under the pointer."""
        at = self._nearest(event.position())
        if event.button() == Qt.MouseButton.LeftButton and at >= 0:
            self._go_to(at)
            self._toggle(at)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Mark the point under the pointer."""
        at = self._nearest(event.position())
        self.setCursor(Qt.CursorShape.PointingHandCursor if at >= 0 else Qt.CursorShape.ArrowCursor)
        if at != self.current and not self.hasFocus():
            self.current = at
            self.update()

    def event(self, event: QEvent) -> bool:
        """Say what a point is while the pointer rests on it."""
        if isinstance(event, QHelpEvent):
            at = self._nearest(QPointF(event.pos()))
            QToolTip.showText(event.globalPos(), point_text(self.points[at]) if at >= 0 else "", self)
            return True
        return super().event(event)

    def leaveEvent(self, event: QEvent) -> None:
        """Unmark the point of a pointer that is gone."""
        super().leaveEvent(event)
        if not self.hasFocus():
            self.current = -1
            self.update()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Begin at the first chosen point."""
        super().focusInEvent(event)
        if self.current < 0 and self.points:
            chosen = (at for at, point in enumerate(self.points) if point.quant in self.chosen)
            self._go_to(next(chosen, 0))

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Unmark the point that the keyboard was at."""
        super().focusOutEvent(event)
        self.current = -1
        self._describe()
        self.update()

    def _go_to(self, at: int) -> None:
        self.current = at
        self._describe()
        if QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, self.accessibleDescription()))
        self.update()

    def _toggle(self, at: int) -> None:
        self.toggled.emit(self.points[at].quant)

    def _describe(self) -> None:
        if self.current >= 0:
            point = self.points[self.current]
            state = tr("chosen") if point.quant in self.chosen else tr("not chosen")
            self.setAccessibleDescription(f"{point_text(point)}, {state}")
        else:
            self.setAccessibleDescription("; ".join(map(point_text, self.points)) or self._message)

    # Geometry

    def _plot(self) -> QRectF:
        line = scaled(SMALL_PX) + UNIT
        left = scaled(_LEFT_PX)
        return QRectF(left, line, self.width() - left - UNIT, self.height() - 2 * line - UNIT // 2)

    def _x(self, size: float) -> float:
        (low, high), plot = self._ranges[0], self._plot()
        return plot.left() + plot.width() * (math.log(size) - low) / (high - low)

    def _y(self, height: float) -> float:
        (low, high), plot = self._ranges[1], self._plot()
        return plot.bottom() - plot.height() * (height - low) / (high - low)

    def _place(self, point: ExportPoint) -> QPointF:
        return QPointF(self._x(point.bytes), self._y(point.height(by_gain=shows_gain(self.points))))

    def _nearest(self, where: QPointF) -> int:
        """Return the index of the point nearest to a position; -1: none is near."""
        gaps = [math.hypot(*(self._place(point) - where).toTuple()) for point in self.points]
        at = min(range(len(gaps)), key=gaps.__getitem__, default=-1)
        return at if at >= 0 and gaps[at] <= _REACH_PX else -1

    def _radius(self, point: ExportPoint) -> float:
        fastest = max((one.tokens_per_s or 0.0 for one in self.points), default=0.0)
        return _DOT_PX + _FASTER_PX * ((point.tokens_per_s or 0.0) / fastest if fastest else 0.0)

    # Drawing

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw axes, the target's line, points and labels."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(font(SMALL_PX))
        if self.hasFocus():
            painter.setPen(QPen(QColor(colors_of(self).focus), RING_PX))
            edge = QRectF(self.rect()).adjusted(1, 1, -1, -1)
            painter.drawRoundedRect(edge, SMALL_RADIUS_PX, SMALL_RADIUS_PX)
        if not self.points:
            painter.setPen(QColor(colors_of(self).muted))
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, self._message)
            return
        self._draw_axes(painter)
        self._draw_limit(painter)
        marked = self.points[self.current : self.current + 1] if self.current >= 0 else []
        for point in (*self.points, *marked):  # the marked one lies above the others
            self._draw_point(painter, point)
        self._draw_labels(painter)

    def _draw_axes(self, painter: QPainter) -> None:
        colors, plot, by_gain = colors_of(self), self._plot(), shows_gain(self.points)
        line = scaled(SMALL_PX) + UNIT // 2
        (left, right), (low, high) = self._ranges
        for height, share in linear_ticks(low, min(high, 1.0) if by_gain else high, 5, _share_text):
            y = self._y(height)
            painter.setPen(QPen(QColor(colors.line), 1))
            painter.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
            painter.setPen(QColor(colors.muted))
            text = share if by_gain else f"{abs(height):.2g}"
            place = QRectF(0, y - line / 2, plot.left() - UNIT / 2, line)
            painter.drawText(place, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, text)
        painter.setPen(QColor(colors.muted))
        for size, text in size_ticks(math.exp(left) / _GB, math.exp(right) / _GB, plot.width() / _APART_TICKS_PX):
            place = QRectF(self._x(size * _GB) - _TICK_PX / 2, plot.bottom() + 2, _TICK_PX, line)
            if place.right() < plot.right():
                painter.drawText(place, Qt.AlignmentFlag.AlignCenter, text)
        corner = QRectF(plot.right() - _TICK_PX / 2, plot.bottom() + 2, _TICK_PX / 2, line)
        painter.drawText(corner, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, tr("GB"))
        name = tr("Gain kept") if by_gain else tr("Difference from the trained model; higher is nearer")
        above = QRectF(UNIT / 2, 0, self.width() - UNIT, plot.top() - 2)
        if self.current >= 0:
            painter.setPen(QColor(colors.text))
            name = point_text(self.points[self.current])
        name = painter.fontMetrics().elidedText(name, Qt.TextElideMode.ElideRight, int(above.width()))
        painter.drawText(above, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, name)

    def _draw_limit(self, painter: QPainter) -> None:
        if not limit_in_view(self.points, self._limit_bytes):
            return
        colors, plot, x = colors_of(self), self._plot(), self._x(self._limit_bytes)
        beyond = QColor(colors.error_soft)
        beyond.setAlphaF(0.5)
        painter.fillRect(QRectF(QPointF(max(x, plot.left()), plot.top()), plot.bottomRight()), beyond)
        painter.setPen(QPen(QColor(colors.error), 1.4, Qt.PenStyle.DashLine))
        painter.drawLine(QPointF(x, plot.top()), QPointF(x, plot.bottom()))

    def _draw_point(self, painter: QPainter, point: ExportPoint) -> None:
        colors, place, radius = colors_of(self), self._place(point), self._radius(point)
        marked = self.current >= 0 and point is self.points[self.current]
        fits = not self._limit_bytes or point.bytes <= self._limit_bytes
        ink = QColor(colors.error if not point.passed else colors.success if fits else colors.faint)
        if point.quant in self.chosen:
            painter.setPen(QPen(QColor(colors.accent), 2.4))
            painter.setBrush(QColor(colors.accent_soft))
            painter.drawEllipse(place, radius + 4.5, radius + 4.5)
        painter.setPen(QPen(QColor(colors.text) if marked else ink, 2.0))
        if not point.passed:
            for way in (1, -1):
                painter.drawLine(place + QPointF(-radius, -way * radius), place + QPointF(radius, way * radius))
            return
        painter.setBrush(ink if point.measured else QColor(colors.surface))
        painter.drawEllipse(place, radius, radius)

    def label_places(self) -> dict[str, QRectF]:
        """Return where the names of points are drawn; those of others have no room.

        The point it is at comes first, then chosen and measured ones, which have their names even over other points,
        then usual types, then others.
        """
        metrics, plot = QFontMetricsF(font(SMALL_PX, bold=True)), self._plot()
        found: dict[str, QRectF] = {}
        labels: list[QRectF] = []
        others = [self._around(point, 1.0) for point in self.points]
        if limit_in_view(self.points, self._limit_bytes):
            others.append(QRectF(self._x(self._limit_bytes) - 2, plot.top(), 4, plot.height()))

        def rank(at: int) -> tuple[bool, bool, bool, bool]:
            point = self.points[at]
            known = point.quant in self.chosen, point.measured, GGUF_TYPES[point.quant].in_chart
            return at != self.current, not known[0], not known[1], not known[2]

        for at in sorted(range(len(self.points)), key=rank):
            point = self.points[at]
            taken = labels if self._is_known(at) else [*labels, *others]
            around = self._around(point, 4.0)
            width, height = metrics.horizontalAdvance(point.quant) + 2, metrics.height()
            rooms = (
                QRectF(around.right(), around.center().y() - height / 2, width, height),
                QRectF(around.left() - width, around.center().y() - height / 2, width, height),
                QRectF(around.center().x() - width / 2, around.top() - height, width, height),
                QRectF(around.center().x() - width / 2, around.bottom(), width, height),
            )
            inside = [room for room in rooms if plot.contains(room) and not any(map(room.intersects, taken))]
            if inside:
                room = found[point.quant] = min(inside, key=lambda room: covered(room, others))
                labels.append(room.adjusted(-_APART_PX, 0, _APART_PX, 0))
        return found

    def _draw_labels(self, painter: QPainter) -> None:
        colors, places = colors_of(self), self.label_places()
        for at, point in enumerate(self.points):
            room = places.get(point.quant)
            if room is None:
                continue
            if self._is_known(at):  # it may lie over other points
                ground = QColor(colors.surface)
                ground.setAlphaF(_GROUND_ALPHA)
                painter.fillRect(room, ground)
            painter.setFont(font(SMALL_PX, bold=at == self.current or point.quant in self.chosen))
            painter.setPen(QColor(colors.text if self._is_known(at) else colors.muted))
            painter.drawText(room, Qt.AlignmentFlag.AlignCenter, point.quant)

    def _is_known(self, at: int) -> bool:
        """Whether a point has its name wherever it is: the one it is at, and chosen and measured ones."""
        return at == self.current or self.points[at].quant in self.chosen or self.points[at].measured

    def _around(self, point: ExportPoint, gap_px: float) -> QRectF:
        radius = self._radius(point) + gap_px + (4.5 if point.quant in self.chosen else 0.0)
        place = self._place(point)
        return QRectF(place.x() - radius, place.y() - radius, 2 * radius, 2 * radius)


def covered(room: QRectF, others: list[QRectF]) -> float:
    """Return how much of others a place for a label covers, square pixels."""
    parts = [room.intersected(other) for other in others]
    return sum(part.width() * part.height() for part in parts)
