"""The foot of a page: a note at the left, secondary actions and the primary one at the right."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QSizePolicy, QWidget

from burnish_app.look.tokens import MARGIN_PX, SCROLL_BAR_PX, UNIT
from burnish_app.page_states.page_state import ButtonState, PageState
from burnish_app.widgets.basic.buttons import ActionButton, Slot, primary, secondary
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import caption
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.page.column import put_in_the_middle, set_line

_NOTE_PX = 260


class Foot(QFrame):
    """The bar at the foot of a page. It is hidden until something stands in it.

    Attributes:
        note: label of the note.
        primary: button of the primary action; None: there is none.
        secondary: buttons of the other actions by name, of those that come and go.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("footbar")
        self.note = caption("")
        self.note.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.note.hide()
        self.primary: ActionButton | None = None
        self.secondary: dict[str, ActionButton] = {}
        self._others, self._actions = FlowLayout(to_right=True), QHBoxLayout()
        inner = QWidget()
        line = FlowLayout(2 * UNIT, to_right=True)
        inner.setLayout(line)
        line.setContentsMargins(MARGIN_PX, UNIT + 2, MARGIN_PX, UNIT + 2)
        inner.setMinimumHeight(7 * UNIT)  # with and without the primary button, which is taller
        line.addWidget(self.note)
        buttons = fill(QHBoxLayout(), self._others, self._actions, spacing_px=UNIT)
        buttons.setAlignment(self._actions, Qt.AlignmentFlag.AlignBottom)  # beside the last line of the others
        line.addLayout(buttons)
        put_in_the_middle(self, inner, SCROLL_BAR_PX)
        self.hide()

    def set_primary(self, text: str, slot: Slot, icon_name: str) -> ActionButton:
        """Set the primary action; it replaces the one before."""
        if self.primary is not None:
            self.primary.deleteLater()
        self.primary = primary(text, slot, icon_name)
        self._actions.addWidget(self.primary)
        self.show()
        return self.primary

    def add_secondary(self, text: str, slot: Slot, icon_name: str, name: str) -> ActionButton:
        """Add a secondary action, left of the primary one."""
        button = secondary(text, slot, icon_name)
        if name:
            self.secondary[name] = button
        self._others.addWidget(button)
        self.show()
        return button

    def set_note(self, text: str) -> None:
        """Set the note; empty: none."""
        set_line(self.note, text, _NOTE_PX)  # with less room it goes above the buttons
        self.show()

    def apply(self, state: PageState) -> None:
        """Show the buttons and the note of a state."""
        if self.primary is not None:
            _show(self.primary, state.primary)
        for name, button in self.secondary.items():
            _show(button, state.buttons.get(name))
        if state.note is not None:
            self.set_note(state.note)
        self.fit()

    def fit(self) -> None:
        """Hide the foot if it has neither a note nor a visible button."""
        shown = any(not button.isHidden() for button in self.findChildren(QPushButton))
        self.setVisible(bool(self.note.text()) or shown)


def _show(button: ActionButton, state: ButtonState | None) -> None:
    button.setVisible(state is not None)
    if state is not None:
        button.setEnabled(state.is_enabled)
        button.setText(state.text or button.text())
        if state.hint is not None:
            button.setToolTip(state.hint)
        if state.icon:
            button.set_icon(state.icon)
