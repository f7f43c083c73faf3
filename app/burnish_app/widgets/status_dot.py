"""A small mark that says how a step stands, told apart by shape as well as color."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from burnish_app.theme import colors_of

Status = Literal["empty", "ready", "busy", "done", "attention"]
STATUS_WORDS: dict[Status, str] = {
    "empty": "nothing yet",
    "ready": "ready for you",
    "busy": "working",
    "done": "done",
    "attention": "needs a look",
}


class StatusDot(QWidget):
    """empty: a faint ring; ready: a ring in the accent; busy: a full dot; done: a check; attention: a triangle."""

    def __init__(self, status: Status = "empty") -> None:
        super().__init__()
        self._status: Status = status
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.set_status(status)

    @property
    def status(self) -> Status:
        """What it shows."""
        return self._status

    def set_status(self, status: Status) -> None:
        """Show another status."""
        self._status = status
        self.setToolTip(STATUS_WORDS[status])
        self.setAccessibleName(STATUS_WORDS[status])
        self.update()

    def sizeHint(self) -> QSize:
        """Twelve pixels square."""
        return QSize(12, 12)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the mark."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self._status in ("empty", "ready"):
            color, width = (colors.faint, 1.2) if self._status == "empty" else (colors.accent, 1.8)
            painter.setPen(QPen(QColor(color), width))
            painter.drawEllipse(QRectF(2.5, 2.5, 7, 7))
        elif self._status == "busy":
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colors.accent))
            painter.drawEllipse(QRectF(1.5, 1.5, 9, 9))
        elif self._status == "done":
            painter.setPen(QPen(QColor(colors.success), 1.8, c=Qt.PenCapStyle.RoundCap))
            painter.drawPolyline(QPolygonF([QPointF(2, 6.5), QPointF(5, 9.5), QPointF(10, 3)]))
        else:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colors.error))
            painter.drawPolygon(QPolygonF([QPointF(6, 1), QPointF(11.5, 11), QPointF(0.5, 11)]))
