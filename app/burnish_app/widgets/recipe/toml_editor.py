"""The recipe as TOML, to read and to edit."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QPlainTextEdit, QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import SMALL_PX, UNIT, font
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import caption, set_tone
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe, parse_recipe, resolve_paths

_READ_AFTER_MS = 300
_LEAST_PX = 40 * UNIT


class TomlEditor(QWidget):
    """Edits a recipe as text. The text stays as typed, with its comments, until another recipe is shown.

    Attributes:
        edited: signal without arguments, emitted once typing rests; `recipe()` is None while the text is no recipe.
        text: editor of the text.
    """

    edited = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._recipe: Recipe | None = None
        self.text = QPlainTextEdit()
        self.text.setFont(font(SMALL_PX, mono=True))
        self.text.setAccessibleName(tr("The recipe as TOML"))
        self.text.setTabChangesFocus(True)
        self.setMinimumHeight(_LEAST_PX)
        self.problem = caption("")
        self._timer = QTimer(self, singleShot=True, interval=_READ_AFTER_MS)
        self._timer.timeout.connect(self._read)
        self.text.textChanged.connect(self._timer.start)
        fill(QVBoxLayout(self), (self.text, 1), self.problem, spacing_px=UNIT)
        self._say("")

    def recipe(self) -> Recipe | None:
        """Return the recipe of the text; None while it is none."""
        return self._recipe

    def read_pending(self) -> None:
        """Read what was typed a moment ago, before typing rested."""
        if self._timer.isActive():
            self._timer.stop()
            self._read()

    def show_recipe(self, recipe: Recipe) -> None:
        """Show a recipe without emitting `edited`; its text stays if it is the text's own."""
        if recipe == self._recipe:
            return
        self._recipe = recipe
        before = self.text.blockSignals(True)
        self.text.setPlainText(dump_recipe(recipe))
        self.text.blockSignals(before)
        self._timer.stop()
        self._say("")

    def _read(self) -> None:
        try:
            self._recipe = resolve_paths(parse_recipe(self.text.toPlainText(), tr("This text")), Path.home())
            self._say("")
        except BurnishError as error:
            self._recipe = None
            self._say(f"{error.what} {error.remedy}".strip())
        self.edited.emit()

    def _say(self, problem: str) -> None:
        self.problem.setText(
            problem or tr("Edit it here: form and prediction follow. Relative paths begin at your home.")
        )
        set_tone(self.problem, "error" if problem else "muted")
        set_tone(self.text, "error" if problem else "")
        self.text.setAccessibleDescription(self.problem.text())
