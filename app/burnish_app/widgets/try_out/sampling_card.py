"""The card of how models answer: system prompt, temperature, seed, longest reply, and whether all answer at once."""

from __future__ import annotations

from PySide6.QtWidgets import QDoubleSpinBox, QLabel, QPlainTextEdit, QSpinBox

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.buttons import quiet, row
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import body, caption, pad_spin
from burnish_app.widgets.basic.tick_boxes import WrappingCheckBox
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_engine.contract.serve.model_requests import ChatOptions

_DEFAULTS = ChatOptions()


class SamplingCard(Card):
    """Chooses how models answer.

    Attributes:
        system: system prompt.
        temperature: variety; 0 is greedy.
        longest: longest reply, tokens.
        seed: seed of the draw, the same for all models.
        in_turn: whether they answer one after another.
        fold: button that folds the card and opens it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fold = quiet("", self._toggle)
        self.fold.setToolTip(tr("How they answer: system prompt, temperature, seed and longest reply."))
        self.system = QPlainTextEdit()
        self.system.setFixedHeight(scaled(8 * UNIT))
        self.system.setTabChangesFocus(True)
        self.system.setPlaceholderText(tr("System prompt: who the model is and how it shall answer. May stay empty."))
        self.system.setAccessibleName(tr("System prompt"))
        self.temperature = QDoubleSpinBox()
        self.temperature.setRange(0.0, 2.0)
        self.temperature.setSingleStep(0.1)
        self.temperature.setValue(_DEFAULTS.temperature)
        self.temperature.setAccessibleName(tr("Temperature"))
        self.temperature.setToolTip(tr("0 always takes the most likely word; higher values vary more."))
        self.longest, self.seed = QSpinBox(), QSpinBox()
        self.longest.setRange(1, 32768)
        self.longest.setValue(_DEFAULTS.max_tokens)
        self.longest.setAccessibleName(tr("Longest reply, tokens"))
        self.seed.setRange(0, 2**31 - 1)
        self.seed.setAccessibleName(tr("Seed"))
        self.seed.setToolTip(tr("The same seed for every model; it matters where the temperature is above 0."))
        self.in_turn = WrappingCheckBox(tr("One after another, so that their speeds compare"))
        for box in (self.temperature, self.longest, self.seed):
            pad_spin(box)
        choices = fill(
            FlowLayout(3 * UNIT),
            row(_word(tr("Temperature (variety)")), self.temperature),
            row(_word(tr("Seed")), self.seed),
            row(_word(tr("Longest reply")), self.longest, caption(tr("tokens"))),
            self.in_turn,
        )
        fill(self.body, self.system, choices)
        self.hide()
        self._name_fold()

    @property
    def options(self) -> ChatOptions:
        """The options of a request."""
        return ChatOptions(
            max_tokens=self.longest.value(), temperature=self.temperature.value(), seed=self.seed.value()
        )

    def _toggle(self) -> None:
        self.setVisible(self.isHidden())
        self._name_fold()

    def _name_fold(self) -> None:
        folded = self.isHidden()
        text = tr("Sampling")
        self.fold.setText(f"{'▸' if folded else '▾'}  {text}")
        self.fold.setAccessibleName(f"{text}, {tr('folded') if folded else tr('open')}")


def _word(text: str) -> QLabel:
    label = body(text)
    label.setWordWrap(False)
    return label
