"""A small button with three dots, for further options."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QSizePolicy

from burnish_app.look.theme import colors_of
from burnish_app.look.tokens import RING_PX, SMALL_RADIUS_PX

_EDGE_PX = 24


class MoreButton(QAbstractButton):
    """A button with three dots.

    Args:
        name: what it opens, for the tooltip and screen readers.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setToolTip(name)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        """Return the size of the button."""
        return QSize(_EDGE_PX, _EDGE_PX)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the dots, on a ground while the pointer is over them."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        area = QRectF(self.rect())
        if self.underMouse() or self.isDown():
            painter.setBrush(QColor(colors.raised))
            painter.drawRoundedRect(area, SMALL_RADIUS_PX, SMALL_RADIUS_PX)
        painter.setBrush(QColor(colors.text if self.underMouse() else colors.muted))
        for away in (-6, 0, 6):
            painter.drawEllipse(QPointF(area.center().x() + away, area.center().y()), 1.7, 1.7)
        if self.hasFocus():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(QColor(colors.focus), RING_PX))
            painter.drawRoundedRect(area.adjusted(1, 1, -1, -1), SMALL_RADIUS_PX, SMALL_RADIUS_PX)
