"""The panel with the page Hardware, which lies over the page that is shown."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget
from typing_extensions import override

from burnish_app.look.fonts import scaled_width
from burnish_app.look.language import tr
from burnish_app.widgets.activity.floating_panel import EDGE_PX, PanelFrame
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.page.page import Page

_WIDTH_PX = 1240
_NARROW_PX = 540  # room in which the panel reaches the edges


class HardwarePanel(PanelFrame):
    """Shows a page over another one, from top to bottom.

    Args:
        parent: widget that the panel lies over.
        page: page to show.
    """

    def __init__(self, parent: QWidget, page: Page) -> None:
        super().__init__(parent, "window")
        self._page = page
        self.setAccessibleName(page.title)
        self.close_button = quiet(tr("Close"), self.closed.emit)
        page.corner.addWidget(self.close_button, 0, Qt.AlignmentFlag.AlignTop)
        fill(QVBoxLayout(self), page, margins_px=(1, 1, 1, EDGE_PX))  # the corners are round

    @override
    def open_above(self, corner: QPoint) -> None:
        room = self._over.size()
        is_narrow = room.width() - corner.x() < scaled_width(_NARROW_PX)
        left, right = (corner.x() - EDGE_PX // 2, 0) if is_narrow else (corner.x(), EDGE_PX)
        width = min(scaled_width(_WIDTH_PX), room.width() - left - right)
        self.setGeometry(left, EDGE_PX, width, room.height() - 2 * EDGE_PX)
        self.raise_()
        self.show()

    def showEvent(self, event: QShowEvent) -> None:
        """Tell the page that it is shown."""
        super().showEvent(event)
        if not event.spontaneous():
            self._page.shown()
            self.setFocus(Qt.FocusReason.PopupFocusReason)

    def hideEvent(self, event: QHideEvent) -> None:
        """Tell the page that it is left."""
        super().hideEvent(event)
        if not event.spontaneous():
            self._page.leave()
