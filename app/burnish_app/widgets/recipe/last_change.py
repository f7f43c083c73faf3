"""The box that says what the last change of the recipe did to the plan."""

from __future__ import annotations

from PySide6.QtWidgets import QFrame, QVBoxLayout

from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.recipe.plan_text import Effect, effects_text
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.pill import Pill, PillTone
from burnish_app.widgets.basic.text import body, caption
from burnish_app.widgets.basic.wrapping import FlowLayout

_TONES: dict[bool | None, PillTone] = {True: "success", False: "warning", None: "plain"}


class LastChange(QFrame):
    """Shows a change and its effects, better ones in green; hidden while there is none."""

    def __init__(self) -> None:
        super().__init__()
        self._is_elsewhere = False
        self.setProperty("look", "inset")
        self.setAccessibleName(tr("Last change"))
        self.what = body("")
        self._none = caption(effects_text([]))
        self._effects = FlowLayout(UNIT // 2, UNIT // 2)
        fill(
            QVBoxLayout(self),
            caption(tr("Last change")),
            self.what,
            self._effects,
            self._none,
            spacing_px=UNIT // 2,
            margins_px=(UNIT + 4, UNIT, UNIT + 4, UNIT + 2),
        )
        self.hide()

    @property
    def text(self) -> str:
        """The effects in one line."""
        return self.accessibleDescription()

    def show_change(self, what: str, effects: list[Effect]) -> None:
        """Show a change.

        Args:
            what: sentence on the change, such as "Rank: 16 → 32".
            effects: differences that it made.
        """
        self.what.setText(what)
        clear(self._effects)
        for effect in effects:
            pill = Pill()
            self._effects.addWidget(pill)  # first: shown without a parent it would be a window
            pill.set(effect.text, _TONES[effect.better])
        self._none.setVisible(not effects)
        self.setAccessibleDescription(f"{what}: {effects_text(effects)}")
        self.setVisible(not self._is_elsewhere)

    def set_elsewhere(self, *, is_elsewhere: bool) -> None:
        """Hide the box while its text is shown elsewhere."""
        self._is_elsewhere = is_elsewhere
        self.setVisible(bool(self.text) and not is_elsewhere)

    def forget(self) -> None:
        """Show no change."""
        self.setAccessibleDescription("")
        self.hide()
