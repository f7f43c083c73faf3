"""A choice among a few as a card: a radio button, and what it means."""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from burnish_app.look.theme import font
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import caption, set_tone
from burnish_app.widgets.basic.tick_boxes import WrappingRadioButton

_CARD_PX = 200


class ChoiceCard(QFrame):
    """A choice: its button, and what it is for. A press anywhere chooses it.

    Args:
        name: text of the button.
        text: sentence about the choice.
        least_px: least width, device-independent pixels.
    """

    def __init__(self, name: str, text: str, *, least_px: int = _CARD_PX) -> None:
        super().__init__()
        self._least_px = least_px
        self.setProperty("look", "choice")
        self.button = WrappingRadioButton(name)
        self.button.setFont(font(bold=True))
        self.button.setAccessibleDescription(text)
        self.label = caption(text)
        self._column = fill(
            QVBoxLayout(self),
            self.button,
            self.label,
            None,
            spacing_px=4,
            margins_px=(UNIT + 4, UNIT + 2, UNIT + 4, UNIT + 4),
        )

    def set_text(self, text: str) -> None:
        """Replace the sentence about the choice."""
        self.label.setText(text)
        self.button.setAccessibleDescription(text)

    def add_line(self, widget: QWidget) -> None:
        """Put a widget below the sentence."""
        self._column.addWidget(widget)

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size: not so narrow that the text becomes a column of words."""
        hint = super().minimumSizeHint()
        return QSize(max(hint.width(), self._least_px), hint.height())

    def show_chosen(self, *, chosen: bool) -> None:
        """Show with the card's edge whether the choice is the one."""
        set_tone(self, "choice-on" if chosen else "choice")

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Choose this one, as a press on its button does."""
        if self.button.isEnabled() and not self.button.isChecked():
            self.button.click()
