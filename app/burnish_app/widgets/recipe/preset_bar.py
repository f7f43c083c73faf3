"""Three cards, side by side, to choose how long a run trains: a quick look, balanced, or the best."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QButtonGroup, QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.recipe.presets import PRESET_NAMES, PRESETS, Preset, PresetBasis, preset_text
from burnish_app.widgets.basic.choice_card import ChoiceCard
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import caption
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.wording.numbers import duration_text
from burnish_engine.contract.facts.advice import RunPlan

_CARD_PX = 128


class PresetBar(QWidget):
    """Offers the presets, each with its predicted time.

    Attributes:
        chosen: signal with the preset that the person chose.
    """

    chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.cards: dict[Preset, ChoiceCard] = {}
        self._buttons = QButtonGroup(self)
        self.times = {preset: caption("", "accent") for preset in PRESETS}
        for preset in PRESETS:
            card = ChoiceCard(PRESET_NAMES[preset], "", least_px=_CARD_PX)
            card.add_line(self.times[preset])
            card.button.clicked.connect(lambda _checked=False, preset=preset: self.chosen.emit(preset))
            self._buttons.addButton(card.button)
            self.cards[preset] = card
        fill(QVBoxLayout(self), columns_layout(list(self.cards.values()), 12, line_px=12, even=True, fill=True))
        self.setAccessibleName(tr("How long to train"))

    def show_basis(self, basis: PresetBasis | None) -> None:
        """Say what each preset does.

        Args:
            basis: suggestion that the presets are made from; None: there is none, and nothing to choose.
        """
        self.setVisible(basis is not None)
        if basis is None:
            return
        for preset, card in self.cards.items():
            card.set_text(preset_text(preset, basis))
            card.button.setEnabled(preset != "best" or basis.has_held_out)

    def show_chosen(self, preset: Preset | None) -> None:
        """Mark the preset that the recipe has; None: it has values of its own."""
        self._buttons.setExclusive(False)  # else one button would have to stay on
        for name, card in self.cards.items():
            card.button.setChecked(name == preset)
            card.show_chosen(chosen=name == preset)
        self._buttons.setExclusive(True)

    def show_plan(self, preset: Preset, plan: RunPlan | None) -> None:
        """Show how long a preset would take; None: not known now."""
        seconds = plan.total_seconds if plan is not None else None
        text = tr("about {time}").format(time=duration_text(seconds)) if seconds is not None else ""
        if text and preset == "best":
            text = tr("up to {time}").format(time=duration_text(seconds or 0.0))
        self.times[preset].setText(text)
        self.cards[preset].button.setAccessibleDescription(f"{self.cards[preset].label.text()} {text}".strip())
