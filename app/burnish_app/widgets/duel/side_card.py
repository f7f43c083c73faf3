"""The card that chooses one side of a duel: the draft, the draft with other settings, a run, or a recipe file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog, QSizePolicy

from burnish_app.comparison.titles import distinct_titles
from burnish_app.look.language import tr
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import ShorteningBox, body, set_tone
from burnish_app.widgets.sweep.settings_card import SettingsCard
from burnish_app.wording.numbers import decimal_text
from burnish_app.wording.plain_words import model_name, plain_words
from burnish_app.wording.recipe_text import changes_text
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.files import is_folder
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe, load_recipe
from burnish_engine.contract.recipe.sweep import with_values
from burnish_engine.contract.serve.replies import RunSummary

_DRAFT, _CHANGED, _FILE = "draft", "changed", "file"
_MOST_RUNS = 50


class DuelSide(NamedTuple):
    """A chosen side: its name, and its recipe as TOML."""

    name: str
    recipe: str


class SideCard(Card):
    """Chooses one side.

    Args:
        letter: letter of the side.
        recipe: the draft.
        choice: what is chosen at first: draft or changed.

    Attributes:
        changed: signal without arguments, emitted when another recipe is chosen.
    """

    changed = Signal()

    def __init__(self, letter: str, recipe: Recipe, choice: str) -> None:
        super().__init__(tr("Side {letter}").format(letter=letter), icon_name="recipe")
        self._recipe, self._loaded = recipe, Recipe()
        self._runs: list[tuple[str, str]] = []
        self._problem = ""
        self._name = ""
        self.choice = ShorteningBox()
        self.choice.setAccessibleName(tr("Recipe of side {letter}").format(letter=letter))
        self.choice.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.settings = SettingsCard(recipe, "", "", single=True)
        self.settings.setProperty("look", "")  # it stands within a card
        laid_out = self.settings.layout()
        assert laid_out is not None
        laid_out.setContentsMargins(0, 0, 0, 0)
        self.settings.changed.connect(self._settings_changed)
        self.about = body("", "muted")
        fill(self.body, self.choice, self.settings, self.about, None)
        self._fill(choice)
        self.choice.activated.connect(lambda _place: self._choose())
        self._choose()

    @property
    def is_of_draft(self) -> bool:
        """Whether the side is the draft, or the draft with other settings."""
        return self.choice.currentData() in (_DRAFT, _CHANGED)

    def side(self) -> DuelSide | None:
        """Return the chosen side; None while something is wrong with it."""
        chosen = self.choice.currentData()
        if chosen == _DRAFT:
            return DuelSide(tr("draft"), dump_recipe(self._recipe))
        if chosen == _CHANGED:
            settings = self.settings.settings()
            if settings is None:
                return None
            changes = {setting.key: setting.values[0] for setting in settings}
            try:
                changed = with_values(self._recipe, changes)
            except BurnishError:
                return None
            return DuelSide(changes_text(changes), dump_recipe(changed))
        return None if self._problem or not self._name else DuelSide(self._name, dump_recipe(self._loaded))

    def choose_run(self, folder: str) -> None:
        """Choose a run by its folder."""
        self._add(folder)
        self._choose()

    def show_draft(self, recipe: Recipe) -> None:
        """Take over the draft that changed."""
        self._recipe = recipe
        self.settings.show_recipe(recipe)
        if self.is_of_draft:
            self._show_about()
            self.changed.emit()

    def show_runs(self, runs: Sequence[RunSummary]) -> None:
        """Offer the newest runs."""
        runs = runs[:_MOST_RUNS]
        offered = list(zip(distinct_titles(runs), (run.folder for run in runs), strict=True))
        if offered != self._runs:
            self._runs = offered
            self._fill(str(self.choice.currentData()))

    def _fill(self, chosen: str) -> None:
        offered = [(tr("The draft"), _DRAFT), (tr("The draft with other settings"), _CHANGED)]
        offered += [(tr("Run {name}").format(name=name), folder) for name, folder in self._runs]
        offered.append((tr("A recipe file ..."), _FILE))
        if chosen not in [key for _, key in offered]:  # a run that is not listed any more, or a file
            offered.insert(2, (self.choice.currentText(), chosen))
        self.choice.offer(offered, chosen)

    def _choose(self) -> None:
        chosen = str(self.choice.currentData())
        self.settings.setVisible(chosen == _CHANGED)
        if chosen == _FILE:
            self._ask_file()
            return
        if chosen not in (_DRAFT, _CHANGED):
            path = RunPaths(Path(chosen)).recipe if is_folder(Path(chosen)) else Path(chosen)
            self.load(path, self.choice.currentText())
            return
        self._show_about()
        self.changed.emit()

    def load(self, path: Path, name: str) -> None:
        """Load the recipe of a run, or of a file.

        Args:
            path: recipe file.
            name: name of the side.
        """
        self._name = name
        try:
            self._loaded = load_recipe(path)
            self._show_about()
        except BurnishError as error:
            self._show_about(plain_words(f"{error.what} {error.remedy}".strip()))
        self.changed.emit()

    def _ask_file(self) -> None:
        dialog = QFileDialog(self, tr("Choose a recipe"), "", tr("Recipes (*.toml)"))
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(self.take_file)
        dialog.rejected.connect(lambda: self.choice.setCurrentIndex(0))
        dialog.open()

    def take_file(self, path: str) -> None:
        """Choose a recipe file."""
        self._add(path)
        self.load(Path(path), Path(path).stem)

    def _add(self, path: str) -> None:
        """Choose a run or a file, which is offered from now on."""
        if self.choice.findData(path) < 0:
            self.choice.insertItem(2, Path(path).name, path)
        self.choice.choose(path)

    def _settings_changed(self) -> None:
        if self.choice.currentData() == _CHANGED:
            self.changed.emit()

    def _show_about(self, problem: str = "") -> None:
        """Say what the chosen recipe is, or why it cannot be read; changed settings stand above already."""
        self._problem = problem
        chosen = self.choice.currentData()
        recipe = self._recipe if chosen == _DRAFT else self._loaded
        about = tr("{model}, learning rate {rate}").format(
            model=model_name(recipe.model.path), rate=decimal_text(recipe.train.learning_rate)
        )
        self.about.setText(problem or about)
        self.about.setVisible(chosen != _CHANGED)
        set_tone(self.about, "error" if problem else "muted")
