"""The recipe form, built from the recipe's schema: basic fields first, the others folded by section."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.look.motion import unfold
from burnish_app.look.theme import UNIT
from burnish_app.recipe.recipe_fields import (
    RecipeField,
    advanced_sections,
    basic_fields,
    problems_by_field,
    recipe_fields,
)
from burnish_app.recipe.recipe_relevance import is_relevant, not_applicable_text, note_text, reason_text
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.text import body
from burnish_app.widgets.recipe.field_row import FieldRow
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import recipe_problems

_ROWS_AT_ONCE = 3


class RecipeForm(QWidget):
    """Edits a recipe.

    Basic rows are made a few at a time, and a section's rows when it is opened, so that the window stays responsive.

    Attributes:
        edited: signal without arguments, emitted with every change; `recipe()` is None while a value is invalid.
    """

    edited = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._fields = {field.key: field for field in recipe_fields()}
        self._values: dict[str, Any] = Recipe().model_dump()
        self._suggested: dict[str, Any] | None = None
        self._reasons: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._recipe: Recipe | None = Recipe()
        self._rows: dict[str, FieldRow] = {}
        self._folds: dict[str, _Fold] = {}
        self._whole = body("", "error")
        self._whole.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(UNIT)
        layout.addWidget(self._whole)
        self._basic = QVBoxLayout()
        self._basic.setSpacing(UNIT)
        layout.addLayout(self._basic)
        self._missing = list(basic_fields())
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(lambda: self._make_basic(_ROWS_AT_ONCE))
        self._timer.start()
        layout.addSpacing(UNIT)
        for title, fields in advanced_sections():
            fold = _Fold(title, fields, self._make_row)
            self._folds[title] = fold
            layout.addWidget(fold)
        layout.addStretch(1)

    def recipe(self) -> Recipe | None:
        """Return the edited recipe; None while it is invalid."""
        return self._recipe

    def problems(self) -> dict[str, str]:
        """Return dotted key to what is wrong there."""
        return dict(self._problems)

    def show_recipe(self, recipe: Recipe) -> None:
        """Show a recipe without emitting `edited`."""
        self._values = recipe.model_dump()
        for key, row in self._rows.items():
            row.show_value(self._fields[key].read(self._values))
        self._check()

    def show_suggestion(self, recipe: Recipe | None, reasons: dict[str, str]) -> None:
        """Mark the values that differ from a suggestion.

        Args:
            recipe: suggested recipe; None: nothing is suggested.
            reasons: dotted key to the reason in one sentence.
        """
        self._suggested = recipe.model_dump() if recipe else None
        self._reasons = reasons
        for row in self._rows.values():
            self._mark(row)

    def row(self, key: str) -> FieldRow:
        """Return the row of a field and open its section.

        Args:
            key: dotted key of the field.
        """
        if any(field.key == key for field in self._missing):
            self._make_basic(len(self._missing))
        if key not in self._rows:
            fold = next(fold for fold in self._folds.values() if any(field.key == key for field in fold.fields))
            fold.open()
        return self._rows[key]

    def _make_basic(self, count: int) -> None:
        for field in self._missing[:count]:
            self._basic.addWidget(self._make_row(field))
        del self._missing[:count]
        if not self._missing:
            self._timer.stop()

    def _make_row(self, field: RecipeField) -> FieldRow:
        row = FieldRow(field)
        row.show_value(field.read(self._values))
        self._mark(row)
        self._judge(field.key, row)
        row.edited.connect(lambda: self._on_edited(row))
        self._rows[field.key] = row
        return row

    def _mark(self, row: FieldRow) -> None:
        if self._suggested is None:
            row.forget_suggestion()
        else:
            key = row.field.key
            reason = reason_text(key, self._values, self._suggested, self._reasons.get(key, ""))
            row.show_suggestion(row.field.read(self._suggested), reason)

    def _judge(self, key: str, row: FieldRow) -> None:
        """Show a row's problem and note, and hide or disable the row if its field does not apply."""
        problem = self._problems.get(key, "")
        row.show_problem(problem)
        row.show_idle(not_applicable_text(key, self._values))
        row.show_note(note_text(key, self._values))
        if not problem and not is_relevant(key, self._values):
            row.hide()
        elif row.isHidden() and row.parentWidget() is not None:  # without one it would be a window
            row.show()  # showing lays out the whole form anew, even what is seen already

    def _on_edited(self, row: FieldRow) -> None:
        row.field.write(self._values, row.value())
        self._check()
        self.edited.emit()

    def _check(self) -> None:
        self._problems = problems_by_field(recipe_problems(self._values))
        self._recipe = None if self._problems else Recipe.model_validate(self._values)
        elsewhere = [text for key, text in self._problems.items() if key not in self._rows]
        self._whole.setText("\n".join(elsewhere))
        self._whole.setVisible(bool(elsewhere))
        for key, row in self._rows.items():
            self._judge(key, row)
            self._mark(row)  # a reason may depend on other fields


class _Fold(QWidget):
    """A section that unfolds below its title; its rows are made when it is first opened."""

    def __init__(self, title: str, fields: list[RecipeField], make_row: Any) -> None:
        super().__init__()
        self.fields = fields
        self._title = title
        self._make_row = make_row
        self._body: QWidget | None = None
        self._button = quiet("", self._toggle)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(UNIT)
        self._layout.addWidget(self._button, alignment=Qt.AlignmentFlag.AlignLeft)
        self._name_button(is_open=False)

    def open(self) -> None:
        """Unfold the section."""
        if self._body is None:
            self._body = QWidget()
            body = QVBoxLayout(self._body)
            body.setContentsMargins(0, 0, 0, UNIT)
            body.setSpacing(UNIT)
            for field in self.fields:
                body.addWidget(self._make_row(field))
            self._layout.addWidget(self._body)
        unfold(self._body, show=True)
        self._name_button(is_open=True)

    def _toggle(self) -> None:
        if self._body is not None and not self._body.isHidden():
            unfold(self._body, show=False)
            self._name_button(is_open=False)
        else:
            self.open()

    def _name_button(self, *, is_open: bool) -> None:
        self._button.setText(f"{'▾' if is_open else '▸'}  {self._title}")
        self._button.setAccessibleName(f"{self._title}, {'open' if is_open else 'folded'}")
