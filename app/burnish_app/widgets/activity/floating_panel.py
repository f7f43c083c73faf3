"""The bases of panels that lie over the page: their frame, and one that stands above the button that opened it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QKeyEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget
from typing_extensions import override

from burnish_app.look.theme import colors_of
from burnish_app.widgets.basic.layouts import fill

EDGE_PX = 12
"""Distance of the content from the panel's edge, and of the panel from the window's."""
_RADIUS_PX, _LEAST_PX = 12, 280


class PanelFrame(QFrame):
    """A frame over the page; Escape closes it.

    Args:
        parent: widget that the panel lies over.
        ground: name of the color of `theme.Colors` behind the content.

    Attributes:
        closed: signal without arguments, emitted when the person closes the panel.
    """

    closed = Signal()

    def __init__(self, parent: QWidget, ground: str = "surface") -> None:
        super().__init__(parent)
        self._over, self._ground = parent, ground
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.hide()

    def open_above(self, corner: QPoint) -> None:
        """Show the panel.

        Args:
            corner: lower left corner of a panel that is as high as its content, in the parent.
        """
        raise NotImplementedError

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Close on Escape."""
        if event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        else:
            super().keyPressEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        """Repaint when the palette changes."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the surface and its edge."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(colors.edge), 1))
        painter.setBrush(QColor(getattr(colors, self._ground)))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), _RADIUS_PX, _RADIUS_PX)


class FloatingPanel(PanelFrame):
    """Shows its content over the page, as large as it needs and there is room; Escape closes it.

    Args:
        parent: widget that the panel lies over.
        width_px: widest that it gets.

    Attributes:
        content: widget for the content, inside a scroll area.
    """

    def __init__(self, parent: QWidget, width_px: int) -> None:
        super().__init__(parent)
        self._corner, self._widest_px = QPoint(), width_px
        self.content = QWidget()
        self._scroll = QScrollArea()
        self._scroll.setWidgetResizable(True)
        self._scroll.setWidget(self.content)
        fill(QVBoxLayout(self), self._scroll, margins_px=EDGE_PX // 2)

    @override
    def open_above(self, corner: QPoint) -> None:
        """Show the panel with its lower left corner at a point of the parent, as large as there is room."""
        self._corner = corner
        self.fit()
        self.raise_()
        self.show()
        self.setFocus(Qt.FocusReason.PopupFocusReason)
        self.fit_soon()

    def fit_soon(self) -> None:
        """Fit once what was added knows its size."""
        QTimer.singleShot(0, self, self.fit)

    def fit(self) -> None:
        """Take as much height as the content needs, within the parent."""
        room, corner = self._over.size(), self._corner
        width = max(min(self._widest_px, room.width() - corner.x() - EDGE_PX), _LEAST_PX)
        self.arrange(width)
        layout = self.content.layout()
        wraps = layout is not None and layout.hasHeightForWidth()
        needed = layout.heightForWidth(width - EDGE_PX) if layout and wraps else self.content.sizeHint().height()
        wanted = needed + EDGE_PX + 2 * self._scroll.frameWidth()
        height = min(wanted, room.height() - 2 * EDGE_PX)
        top = max(EDGE_PX, min(corner.y(), room.height() - EDGE_PX) - height)
        self.setGeometry(corner.x(), top, width, height)

    def arrange(self, width_px: int) -> None:
        """Arrange the content for a width of the panel; where it has nothing to arrange, nothing is done."""
