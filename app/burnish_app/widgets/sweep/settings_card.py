"""The card in which up to three settings and their values are chosen."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout

from burnish_app.comparison.swept import offered_settings
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.buttons import link, row
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.sweep.setting_row import SettingRow
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.sweep import MAX_SETTINGS, SweepSetting


class SettingsCard(Card):
    """Chooses settings and values.

    Args:
        recipe: recipe that they change.
        heading_text: heading of the card.
        hint: small text under the heading.
        single: whether each setting takes one value instead of a list.

    Attributes:
        changed: signal without arguments, emitted when settings or values changed.
    """

    changed = Signal()

    def __init__(self, recipe: Recipe, heading_text: str, hint: str, *, single: bool = False) -> None:
        super().__init__(heading_text, hint, icon_name="sweep")
        self._recipe, self._single = recipe, single
        self._rows: list[SettingRow] = []
        self._list = QVBoxLayout()
        self._list.setSpacing(UNIT + 4)
        self.body.addLayout(self._list)
        self.add = link(tr("Add a setting"), self._add, "add")
        self.body.addWidget(row(self.add, None))
        self._add()

    @property
    def rows(self) -> Sequence[SettingRow]:
        """The rows, in order."""
        return self._rows

    def settings(self) -> list[SweepSetting] | None:
        """Return the settings with their values; None while something is wrong with one."""
        found = [row.setting() for row in self._rows]
        keys = [row.key for row in self._rows]
        if len(set(keys)) < len(keys):
            return None
        return None if None in found else [setting for setting in found if setting is not None]

    def show_recipe(self, recipe: Recipe) -> None:
        """Show the values of another recipe beside."""
        self._recipe = recipe
        for one in self._rows:
            one.show_recipe(recipe)

    def _add(self) -> None:
        taken = {row.key for row in self._rows}
        key = next(key for key in offered_settings() if key not in taken)
        made = SettingRow(self._recipe, key, single=self._single)
        made.changed.connect(self.changed)
        made.removed.connect(lambda: self._remove(made))
        self._rows.append(made)
        self._list.addWidget(made)
        self._offer()

    def _remove(self, gone: SettingRow) -> None:
        self._rows.remove(gone)
        self._list.removeWidget(gone)
        gone.hide()
        gone.deleteLater()
        self._offer()

    def _offer(self) -> None:
        self.add.setVisible(len(self._rows) < MAX_SETTINGS)
        for one in self._rows:
            one.remove.setVisible(len(self._rows) > 1)
        self.changed.emit()
