"""The graph of a machine's GPUs: arcs between GPUs and lines to the host, with specified and measured rates."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QFontMetrics,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import BODY_PX, RADIUS_PX, SMALL_PX, UNIT, Colors, colors_of, font
from burnish_app.wording.machine_text import edge_rates_text, edge_text
from burnish_engine.contract.facts.machine import HOST, EdgeFacts, GpuFacts, LinkKind

_NODE_PX, _HOST_PX, _ARCS_PX, _FALL_PX, _WIDEST_PX = (104, 44), 32, 128, 64, 176
_NAMED_PX = 64  # narrower nodes have a number only
_NEAR_PX = 8.0  # from the pointer to a line
_FAT_PX = {"nvlink": 3.5, "pcie_p2p": 2.0, "host_staged": 1.2, "pcie": 2.0}
_MOST_LABELS = 3  # GPUs of which every connection has its label; of more only the chosen one


class LinkGraph(QWidget):
    """Draws the connections of a machine; one of them is chosen by pointer or arrow keys.

    Args:
        gpus: GPUs of the machine.
        edges: connections between them and to the host.

    Attributes:
        chosen: signal with the `EdgeFacts` that is chosen.
    """

    chosen = Signal(object)

    def __init__(self, gpus: Sequence[GpuFacts], edges: Sequence[EdgeFacts]) -> None:
        super().__init__()
        self._gpus = list(gpus)
        self._pairs = [edge for edge in edges if edge.second != HOST]
        self._to_host = [edge for edge in edges if edge.second == HOST]
        self._edges = [*self._pairs, *self._to_host]
        self._at = self._edges.index(slowest_pair(edges)) if self._pairs else 0
        self._by_keyboard = False
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus if self._edges else Qt.FocusPolicy.NoFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(tr("Connections of the GPUs"))
        self.setAccessibleDescription("; ".join(edge_text(edge) for edge in self._edges))

    @property
    def chosen_edge(self) -> EdgeFacts | None:
        """The connection that is chosen; None: there is none."""
        return self._edges[self._at] if self._edges else None

    def sizeHint(self) -> QSize:
        """Return the preferred size: as high as the widest arc needs."""
        height = self._arcs_px() + _NODE_PX[1] + (_FALL_PX + _HOST_PX if self._to_host else 0) + UNIT
        return QSize(max(360, len(self._gpus) * 72), height)

    def minimumSizeHint(self) -> QSize:
        """Return the smallest size that can be read."""
        return QSize(240, self.sizeHint().height())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Choose the next or the previous connection."""
        step = {Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1, Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1}.get(
            Qt.Key(event.key())
        )
        if step is None or not self._edges:
            super().keyPressEvent(event)
        else:
            self._choose((self._at + step) % len(self._edges))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Choose the connection under the pointer."""
        at = event.position()
        distances = [(self._distance(edge, at), number) for number, edge in enumerate(self._edges)]
        near = min(distances, default=(_NEAR_PX + 1, 0))
        if near[0] <= _NEAR_PX:
            self._choose(near[1])

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Draw the focus, where it came by keyboard."""
        super().focusInEvent(event)
        self._by_keyboard = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Draw no focus any more."""
        super().focusOutEvent(event)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw lines to the host, arcs, nodes and labels; the chosen connection above all others."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        chosen = self.chosen_edge
        for edge in [*self._to_host, *self._pairs]:
            if edge is not chosen:
                self._draw_edge(painter, colors, edge, strong=False)
        if chosen is not None:
            self._draw_edge(painter, colors, chosen, strong=True)
        if self.hasFocus() and self._by_keyboard:
            painter.setPen(QPen(QColor(colors.focus), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), RADIUS_PX, RADIUS_PX)
        if self._to_host:
            self._draw_node(painter, colors, self._host_place(), tr("Processor and memory"), "")
        for number, gpu in enumerate(self._gpus):
            place = self._place(number)
            named = place.width() >= _NAMED_PX
            name, detail = (f"GPU {gpu.index}", _short(gpu.name)) if named else (str(gpu.index), "")
            self._draw_node(painter, colors, place, name, detail)
        for edge in self._edges:
            if edge is chosen or len(self._gpus) <= _MOST_LABELS:
                self._draw_label(painter, colors, edge, strong=edge is chosen)

    def _choose(self, at: int) -> None:
        if at != self._at:
            self._at = at
            self.update()
            self.chosen.emit(self._edges[at])

    def _arcs_px(self) -> int:
        return min(_ARCS_PX, 40 + 22 * max(len(self._gpus) - 1, 0)) if self._pairs else 0

    def _place(self, number: int) -> QRectF:
        """Return the place of a GPU's node."""
        cell = self._cell_px()
        left = (self.width() - cell * len(self._gpus)) / 2
        width = min(_NODE_PX[0], cell - UNIT)
        return QRectF(left + cell * number + (cell - width) / 2, self._arcs_px(), width, _NODE_PX[1])

    def _cell_px(self) -> float:
        most = _WIDEST_PX * (2 if len(self._gpus) == 2 else 1)
        return min(self.width() / max(len(self._gpus), 1), most)

    def _host_place(self) -> QRectF:
        first, last = self._place(0), self._place(len(self._gpus) - 1)
        return QRectF(first.left(), first.bottom() + _FALL_PX, last.right() - first.left(), _HOST_PX)

    def _number(self, index: int) -> int:
        return next(number for number, gpu in enumerate(self._gpus) if gpu.index == index)

    def _path(self, edge: EdgeFacts) -> QPainterPath:
        """Return the line of a connection: an arc between two GPUs, or a line down to the host."""
        first = self._place(self._number(edge.first))
        if edge.second == HOST:
            path = QPainterPath(QPointF(first.center().x(), first.bottom()))
            path.lineTo(first.center().x(), self._host_place().top())
            return path
        second = self._place(self._number(edge.second))
        apart = abs(self._number(edge.second) - self._number(edge.first)) / max(len(self._gpus) - 1, 1)
        rise = (self._arcs_px() - 18) * (0.28 + 0.72 * apart)
        path = QPainterPath(QPointF(first.center().x(), first.top()))
        middle = QPointF((first.center().x() + second.center().x()) / 2, first.top() - 2 * rise)
        path.quadTo(middle, QPointF(second.center().x(), second.top()))
        return path

    def _distance(self, edge: EdgeFacts, at: QPointF) -> float:
        path = self._path(edge)
        points = [path.pointAtPercent(step / 40) for step in range(41)]
        return min(math.hypot(point.x() - at.x(), point.y() - at.y()) for point in points)

    def _draw_edge(self, painter: QPainter, colors: Colors, edge: EdgeFacts, *, strong: bool) -> None:
        pen = QPen(QColor(_color(edge.kind, colors)), _FAT_PX[edge.kind] * (1.5 if strong else 1.0))
        if edge.kind == "host_staged":
            pen.setDashPattern([4, 3])
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        color = pen.color()
        color.setAlpha(255 if strong else 150 if len(self._gpus) <= _MOST_LABELS else 80)
        pen.setColor(color)
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPath(self._path(edge))

    @staticmethod
    def _draw_node(painter: QPainter, colors: Colors, place: QRectF, name: str, detail: str) -> None:
        painter.setPen(QPen(QColor(colors.edge), 1))
        painter.setBrush(QColor(colors.raised))
        painter.drawRoundedRect(place, RADIUS_PX, RADIUS_PX)
        center = int(Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignVCenter)
        upper = QRectF(place.left(), place.top() + 4, place.width(), 19) if detail else place
        painter.setPen(QColor(colors.text))
        painter.setFont(font(BODY_PX, bold=bool(detail)))
        painter.drawText(upper, center, name)
        if detail:
            small = font(SMALL_PX)
            painter.setFont(small)
            painter.setPen(QColor(colors.muted))
            shown = QFontMetrics(small).elidedText(detail, Qt.TextElideMode.ElideRight, int(place.width()) - 6)
            painter.drawText(QRectF(place.left(), place.top() + 22, place.width(), 17), center, shown)

    def _draw_label(self, painter: QPainter, colors: Colors, edge: EdgeFacts, *, strong: bool) -> None:
        """Draw the rates of a connection on a ground of its own."""
        text, small = edge_rates_text(edge), font(SMALL_PX, bold=strong)
        size = QFontMetrics(small).size(0, text)
        at = self._path(edge).pointAtPercent(0.5)
        left = min(max(at.x() - size.width() / 2 - 6, 0.0), self.width() - size.width() - 12.0)
        place = QRectF(left, max(at.y() - 11, 0.0), size.width() + 12, 22)
        painter.setPen(QPen(QColor(_color(edge.kind, colors)), 1) if strong else Qt.PenStyle.NoPen)
        painter.setBrush(QColor(colors.surface))
        painter.drawRoundedRect(place, 11, 11)
        painter.setFont(small)
        painter.setPen(QColor(colors.text if strong else colors.muted))
        painter.drawText(place, int(Qt.AlignmentFlag.AlignCenter), text)


def slowest_pair(edges: Sequence[EdgeFacts]) -> EdgeFacts:
    """Return the slowest connection between two GPUs, which sets the pace of all together.

    Args:
        edges: connections, at least one of them between two GPUs.
    """
    return min((edge for edge in edges if edge.second != HOST), key=lambda edge: edge.gb_s)


def _color(kind: LinkKind, colors: Colors) -> str:
    return {
        "nvlink": colors.accent,
        "pcie_p2p": colors.series[1].color,
        "host_staged": colors.warning,
        "pcie": colors.faint,
    }[kind]


def _short(name: str) -> str:
    """Shorten a GPU's name to what tells it from others."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")
