"""A choice among a few as a card: a radio button, and what it means."""

from __future__ import annotations

from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QFrame, QRadioButton, QVBoxLayout

from burnish_app.look.theme import font
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.text import caption, set_tone

_CARD_PX = 200


class ChoiceCard(QFrame):
    """A choice: its button, and what it is for. A press anywhere chooses it.

    Args:
        name: text of the button.
        text: sentence about the choice.
        card_px: minimum width, device-independent pixels.
    """

    def __init__(self, name: str, text: str, card_px: int = _CARD_PX) -> None:
        super().__init__()
        self.setProperty("look", "choice")
        self.setMinimumWidth(card_px)
        self.button = QRadioButton(name)
        self.button.setFont(font(bold=True))
        self.button.setAccessibleDescription(text)
        self.label = caption(text)
        column = QVBoxLayout(self)
        column.setContentsMargins(UNIT + 4, UNIT + 2, UNIT + 4, UNIT + 4)
        column.setSpacing(4)
        column.addWidget(self.button)
        column.addWidget(self.label)
        column.addStretch(1)

    def show_chosen(self, *, chosen: bool) -> None:
        """Show with the card's edge whether the choice is the one."""
        set_tone(self, "choice-on" if chosen else "choice")

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Choose this one, as a press on its button does."""
        if self.button.isEnabled() and not self.button.isChecked():
            self.button.click()
