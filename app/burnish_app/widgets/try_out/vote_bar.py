"""The line of the blind vote: which reply is best, who wrote which once that is said, and the count."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.buttons import secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import heading, set_tone
from burnish_app.widgets.basic.wrapping import FlowLayout


class VoteBar(Card):
    """Asks for the best of several replies whose writers are hidden.

    Attributes:
        voted: signal with the index of the best pane; -1: equally good.
        buttons: button of each pane, then the one for equally good.
    """

    voted = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.buttons: list[QPushButton] = []
        self._text = heading(tr("Which reply is best?"))
        self._line = FlowLayout(UNIT)
        fill(self.body, self._text, self._line)
        for place, letter in enumerate("ABC"):
            self._add(letter, tr("Reply {letter} is best").format(letter=letter), place)
        self._add(tr("Equally good"), tr("Equally good"), -1)
        self.hide()

    def ask(self, letters: Sequence[str]) -> None:
        """Ask which reply is best.

        Args:
            letters: letter of each pane.
        """
        self._text.setText(tr("Which reply is better?") if len(letters) == 2 else tr("Which reply is best?"))
        set_tone(self._text, "")
        for place, button in enumerate(self.buttons):
            button.setVisible(place < len(letters) or place == len(self.buttons) - 1)
        self.show()

    def show_result(self, text: str) -> None:
        """Show what the votes add up to, or why the vote was not kept.

        Args:
            text: sentence.
        """
        self._text.setText(text)
        for button in self.buttons:
            button.hide()
        self.show()

    @property
    def text(self) -> str:
        """The sentence that is shown."""
        return self._text.text()

    def _add(self, text: str, name: str, place: int) -> None:
        button = secondary(text, lambda: self.voted.emit(place))
        button.setAccessibleName(name)
        self.buttons.append(button)
        self._line.addWidget(button)
