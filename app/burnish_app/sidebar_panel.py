"""A panel over the page that a button of the sidebar opens and closes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from PySide6.QtCore import QObject, QPoint
from PySide6.QtWidgets import QAbstractButton, QWidget

from burnish_app.sidebar import Sidebar

if TYPE_CHECKING:  # panels draw with numpy, which the window's start does not wait for
    from burnish_app.widgets.activity.floating_panel import PanelFrame

Panel = TypeVar("Panel", bound="PanelFrame")
_GAP_PX = 8


class SidebarPanel(QObject, Generic[Panel]):
    """Opens and closes a panel, which `_make_panel` makes when it is first needed.

    Args:
        sidebar: sidebar of the window.
        button: button of the sidebar that opens and closes the panel; checked while it is open.
        over: widget that the panel lies over.
    """

    def __init__(self, sidebar: Sidebar, button: QAbstractButton, over: QWidget) -> None:
        super().__init__(over)
        self._sidebar, self._button, self._over = sidebar, button, over
        self._panel: Panel | None = None
        button.clicked.connect(self._toggle)

    @property
    def panel(self) -> Panel:
        """The panel. It is made on the first call."""
        if self._panel is None:
            self._panel = self._make_panel()
            self._panel.closed.connect(self.close_panel)
        return self._panel

    def _make_panel(self) -> Panel:
        """Make the panel. Each subclass overrides it."""
        raise NotImplementedError

    def close_panel(self) -> None:
        """Close the panel."""
        if self._panel is not None:
            self._panel.hide()
        self._button.setChecked(False)

    @property
    def is_open(self) -> bool:
        """Whether the panel is shown."""
        return self._panel is not None and self._panel.isVisible()

    def place_panel(self) -> None:
        """Move the panel to where it belongs, after the window changed its size."""
        if self.is_open:
            self.open_panel()

    def open_panel(self) -> None:
        """Open the panel."""
        self._button.setChecked(True)
        bottom = self._button.mapTo(self._over, QPoint(0, self._button.height())).y()
        self.panel.open_above(QPoint(self._sidebar.width() + _GAP_PX, bottom))

    def _toggle(self) -> None:
        if self.is_open:
            self.close_panel()
        else:
            self.open_panel()
