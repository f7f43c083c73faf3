"""The card in which up to three settings of the recipe, and the values that they shall take, are chosen."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.comparison.swept import draft_value, offered_settings, usual_values
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.buttons import link, quiet, row
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import ShorteningBox, caption, set_tone
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.wording.plain_words import plain_words
from burnish_app.wording.recipe_text import setting_name, setting_term, setting_text
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.sweep import MAX_SETTINGS, SweepSetting, parse_values, value_text

_FIELD_PX = 150


class SettingRow(QWidget):
    """Chooses a setting and its values.

    Args:
        recipe: recipe whose values are shown beside.
        key: dotted key that is chosen at first.
        single: whether it takes one value instead of a list.

    Attributes:
        changed: signal without arguments, emitted when setting or values changed.
        removed: signal without arguments, emitted when the row shall go.
    """

    changed = Signal()
    removed = Signal()

    def __init__(self, recipe: Recipe, key: str, *, single: bool = False) -> None:
        super().__init__()
        self._recipe, self._single = recipe, single
        self._proposed = ""
        self.name = ShorteningBox()
        self.name.setAccessibleName(tr("Setting"))
        self.name.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.name.setMaxVisibleItems(16)
        for offered in offered_settings():
            self.name.addItem(setting_term(offered), offered)
            hint = f"{setting_name(offered)}: {offered}"
            self.name.setItemData(self.name.count() - 1, hint, Qt.ItemDataRole.ToolTipRole)
        self.name.setCurrentIndex(self.name.findData(key))
        self.name.currentIndexChanged.connect(self._key_changed)
        self.values = QLineEdit()
        self.values.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.values.setPlaceholderText(tr("A value") if single else tr("Values, separated by commas"))
        self.values.setAccessibleName(tr("Value") if single else tr("Values"))
        self.values.textChanged.connect(self._changed)
        self.remove = quiet("", self.removed.emit, "close")
        self.remove.setAccessibleName(tr("Remove this setting"))
        self.remove.setToolTip(tr("Remove this setting"))
        self._note = caption("")
        fields = columns_layout(
            (self.name, self.values), UNIT, line_px=UNIT // 2, even=True, fill=True, least_px=scaled(_FIELD_PX)
        )
        line = fill(QHBoxLayout(), (fields, 1), spacing_px=UNIT)
        line.addWidget(self.remove, alignment=Qt.AlignmentFlag.AlignVCenter)  # it must not bound the fields' height
        fill(QVBoxLayout(self), line, self._note, spacing_px=4)
        self._key_changed()

    @property
    def key(self) -> str:
        """The dotted key of the chosen setting."""
        return str(self.name.currentData())

    def setting(self) -> SweepSetting | None:
        """Return the setting with its values; None while something is wrong with them."""
        try:
            values = parse_values(self.key, self.values.text())
        except BurnishError:
            return None
        return SweepSetting(key=self.key, values=values) if len(values) == 1 or not self._single else None

    def show_recipe(self, recipe: Recipe) -> None:
        """Show another recipe's value beside, and propose values around it unless the person typed some."""
        self._recipe = recipe
        if self.values.text() == self._proposed:
            self._propose()
        self._show_note()

    def _key_changed(self) -> None:
        self._propose()
        self._changed()

    def _propose(self) -> None:
        proposed = usual_values(self._recipe, self.key)
        if self._single:
            own = setting_text(self.key, draft_value(self._recipe, self.key))
            proposed = next((part for part in reversed(proposed.split(", ")) if part != own), proposed)
        self._proposed = proposed
        with QSignalBlocker(self.values):
            self.values.setText(proposed)
            self.values.setCursorPosition(0)

    def _changed(self) -> None:
        self._show_note()
        self.changed.emit()

    def _show_note(self) -> None:
        problem = ""
        try:
            count = len(parse_values(self.key, self.values.text()))
            if self._single and count != 1:
                problem = tr("One value is wanted.")
        except BurnishError as error:
            problem = plain_words(error.what)
        own = draft_value(self._recipe, self.key)
        shown = tr("not set") if own is None else setting_text(self.key, own)
        self._note.setText(problem or tr("In the draft: {value}").format(value=shown))
        set_tone(self._note, "error" if problem else "muted")
        set_tone(self.values, "error" if problem else "")


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
        self._list = fill(QVBoxLayout(), spacing_px=UNIT + 4)
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
        settings = [setting for row in self._rows if (setting := row.setting()) is not None]
        return settings if len({setting.key for setting in settings}) == len(self._rows) else None

    @property
    def problem(self) -> str:
        """The problem to show while there are no settings."""
        is_twice = len({row.key for row in self._rows}) < len(self._rows)
        return tr("One setting is there twice.") if is_twice else tr("Mend the value in red.")

    def show_recipe(self, recipe: Recipe) -> None:
        """Show the values of another recipe beside."""
        self._recipe = recipe
        for setting_row in self._rows:
            setting_row.show_recipe(recipe)

    def choose(self, setting: SweepSetting) -> None:
        """Choose a setting and its values in the first row."""
        first = self._rows[0]
        first.name.setCurrentIndex(first.name.findData(setting.key))
        first.values.setText(", ".join(map(value_text, setting.values)))

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
        for setting_row in self._rows:
            setting_row.remove.setVisible(len(self._rows) > 1)
        self.changed.emit()
