"""The card that offers what can be learned from the rows, each objective with its reason."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QButtonGroup, QRadioButton

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.state.objectives import task_of
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.choice_card import ChoiceCard
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import caption
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.wording.data_text import objective_reason, objective_title, recognized_text
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe_preference import Objective


class ObjectiveCard(Card):
    """Offers objectives and shows which one is chosen. It is hidden where the data leaves no choice.

    Attributes:
        chosen: signal with the value of the recipe's preference.objective.
    """

    chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__(tr("What it shall learn from them"), icon_name="scale")
        self._shown: tuple[object, ...] = ()
        self.buttons: dict[str, QRadioButton] = {}
        self._recognized = caption("")
        self._choices = columns_layout((), UNIT + 4, line_px=UNIT + 4, even=True)
        fill(self.body, self._recognized, self._choices)
        self.hide()

    def show_objectives(self, offered: Sequence[Objective], current: Objective, dataset: DatasetFacts) -> None:
        """Show the objectives to choose from.

        Args:
            offered: objectives, the usual one first; empty hides the card.
            current: objective of the recipe.
            dataset: facts about the rows.
        """
        shape, recognized = dataset.shape, recognized_text(dataset.shape, task_of(dataset))
        self.setVisible(bool(offered))
        if (tuple(offered), current, recognized) == self._shown or not offered:
            return
        self._shown = tuple(offered), current, recognized
        clear(self._choices)
        group, self.buttons = QButtonGroup(self), {}
        self._recognized.setText(recognized)
        for objective in offered:
            card = ChoiceCard(objective_title(objective, shape), objective_reason(objective, shape))
            card.button.setChecked(objective == current)
            card.button.toggled.connect(lambda on, card=card: card.show_chosen(chosen=on))
            card.button.clicked.connect(lambda _checked=False, name=objective: self.chosen.emit(name))
            card.show_chosen(chosen=objective == current)
            group.addButton(card.button)
            self.buttons[objective] = card.button
            self._choices.addWidget(card)
