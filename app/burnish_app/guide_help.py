"""F1 and "?": open the guide at the place that fits what has the focus, or the page that is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QWidget

from burnish_app.page_list import IMPORTING
from burnish_app.state.guide_pages import FIRST, PLACE_PROPERTY, PLACES

if TYPE_CHECKING:  # the guide is loaded when it is first asked for
    from burnish_app.widgets.guide.guide_window import GuideWindow


class GuideHelp(QObject):
    """Opens the guide for a window.

    Args:
        window: window whose shortcuts open it.
        shown_page: function that returns the key of the page that is shown.
    """

    def __init__(self, window: QWidget, shown_page: Callable[[], str]) -> None:
        super().__init__(window)
        self._window, self._shown_page = window, shown_page
        self._guide: GuideWindow | None = None
        for keys in (QKeySequence(QKeySequence.StandardKey.HelpContents), QKeySequence("?")):
            QShortcut(keys, window, self.open)

    @property
    def guide(self) -> GuideWindow | None:
        """The guide's window; None before it is first opened."""
        return self._guide

    def open(self) -> None:
        """Show the guide at the place that fits."""
        if self._guide is None:
            with IMPORTING:
                from burnish_app.widgets.guide.guide_window import GuideWindow

            self._guide = GuideWindow(self._window)
        self._guide.show()
        self._guide.show_place(place_of(QApplication.focusWidget(), self._shown_page()))
        self._guide.raise_()
        self._guide.activateWindow()


def place_of(focused: QWidget | None, page: str) -> str:
    """Return the place of the guide that explains a widget, else the one that explains the page that it is on.

    Args:
        focused: widget with the keyboard focus; None: none has it.
        page: key of the page that is shown.
    """
    widget = focused
    while widget is not None:
        place = widget.property(PLACE_PROPERTY)
        if place:
            return str(place)
        widget = widget.parentWidget()
    return PLACES.get(page, FIRST)
