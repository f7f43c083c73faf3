"""The card with all settings of a recipe: presets, the form or its TOML, and what was changed."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut

from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.recipe.history import RecipeHistory
from burnish_app.recipe.presets import PresetBasis, chosen_preset
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.pill import Segmented
from burnish_app.widgets.page.banner import BusyLine
from burnish_app.widgets.page.page import Page
from burnish_app.widgets.recipe.change_bar import ChangeBar
from burnish_app.widgets.recipe.preset_bar import PresetBar
from burnish_app.widgets.recipe.recipe_form import RecipeForm
from burnish_app.widgets.recipe.toml_editor import TomlEditor
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe


class RecipeEditor(Card):
    """Edits a recipe as a form or as TOML.

    Args:
        history: changes of the recipe.
        page: page of the card, on which its shortcuts work.

    Attributes:
        edited: signal with the key of the field that was edited; empty: the whole text.
        wanted_all: signal without arguments, emitted to take all suggestions.
        view: choice between form and TOML; the page shows what is chosen by `show_as`.
    """

    edited = Signal(str)
    wanted_all = Signal()

    def __init__(self, history: RecipeHistory, page: Page) -> None:
        super().__init__(tr("Settings"), icon_name="recipe")
        self.busy = BusyLine(tr("Choosing a recipe for machine and data ..."), can_cancel=True)
        self.busy.hide()
        self.presets = PresetBar()
        self.form, self.toml = RecipeForm(), TomlEditor()
        self.form.edited.connect(lambda _key: self._offer_all())
        self.form.edited.connect(self.edited)
        self.toml.edited.connect(lambda: self.edited.emit(""))
        self.toml.hide()
        self.changes = ChangeBar(history)
        self.corner.addWidget(self.changes)
        self.take_all = quiet(tr("Take all suggestions"), self.wanted_all.emit)
        self.corner.addWidget(self.take_all)
        self.view = Segmented(tr("Settings as"), [("form", tr("Form")), ("toml", tr("TOML"))])
        self.view.choose("form")
        self.corner.addWidget(self.view)
        fill(self.body, self.busy, self.presets, self.toml, self.form, spacing_px=2 * UNIT)
        for keys, slot in (
            ("Ctrl+Z", self.changes.undo),
            ("Ctrl+Y", self.changes.redo),
            ("Ctrl+Shift+Z", self.changes.redo),
            ("Ctrl+F", self._search),
        ):
            QShortcut(QKeySequence(keys), page, slot, context=Qt.ShortcutContext.WidgetWithChildrenShortcut)

    @property
    def is_toml(self) -> bool:
        """Whether the recipe is shown as TOML, not as a form."""
        return not self.toml.isHidden()

    def recipe(self) -> Recipe | None:
        """Return the recipe as edited; None while it is invalid."""
        return self.toml.recipe() if self.is_toml else self.form.recipe()

    def shows(self, recipe: Recipe) -> bool:
        """Whether a recipe is what is shown."""
        shown = self.recipe()
        return shown is not None and (shown == recipe or dump_recipe(shown) == dump_recipe(recipe))

    def show_recipe(self, recipe: Recipe, suggested: Recipe | None, reasons: dict[str, str]) -> None:
        """Show a recipe.

        Args:
            recipe: recipe.
            suggested: suggested recipe; None: nothing is suggested.
            reasons: dotted key to the reason of the suggestion.
        """
        self.form.show_recipe(recipe)
        self.form.show_suggestion(suggested, reasons)
        self._offer_all()
        if self.is_toml:
            self.toml.show_recipe(recipe)

    def show_presets(self, recipe: Recipe, basis: PresetBasis | None) -> None:
        """Show which preset a recipe has.

        Args:
            recipe: recipe.
            basis: suggestion that presets are made from; None: there are none.
        """
        self.presets.show_basis(basis)
        if basis is not None:
            self.presets.show_chosen(chosen_preset(recipe, basis))

    def show_as(self, recipe: Recipe, *, toml: bool) -> None:
        """Show a recipe as TOML or as a form. A text that is no recipe is not kept."""
        self.toml.show_recipe(recipe)
        self.view.choose("toml" if toml else "form")
        self.toml.setVisible(toml)
        self.form.setVisible(not toml)

    def _offer_all(self) -> None:
        """Offer to take all suggestions where a setting is not as suggested."""
        self.take_all.setVisible(self.form.differing > 0)

    def _search(self) -> None:
        if not self.is_toml:
            self.form.all_settings.open()
            self.form.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.form.search.selectAll()
