"""The recipe form, built from the recipe's schema: the main settings, those for this case, and all others, searched."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit, QScrollArea, QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.recipe.offers import follow_strategy, offered_settings
from burnish_app.recipe.recipe_fields import (
    PLACE,
    RecipeField,
    folded_sections,
    main_fields,
    problem_of_row,
    problems_by_field,
    recipe_fields,
)
from burnish_app.recipe.recipe_relevance import (
    fitting_choices,
    is_relevant,
    not_applicable_text,
    note_text,
    reason_text,
    without_effect_text,
)
from burnish_app.recipe.search import found_fields
from burnish_app.recipe.value_reasons import value_reason
from burnish_app.state.objectives import OBJECTIVE, choose_objective, known_objective, task_of
from burnish_app.widgets.basic.buttons import FoldedContent
from burnish_app.widgets.basic.layouts import fill, lay_out_now
from burnish_app.widgets.basic.text import body, caption
from burnish_app.widgets.recipe.fields.field_group import FieldGroup, not_as_suggested
from burnish_app.widgets.recipe.fields.field_row import FieldRow, leave_to_page
from burnish_app.wording.numbers import plural
from burnish_engine.contract.facts.advice import ModelFacts, RunPlan
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import recipe_problems

_ROWS_AT_ONCE = 1


class RecipeForm(QWidget):
    """Edits a recipe.

    Rows are made a few at a time, and a section's rows when it is opened or searched, so that the window stays
    responsive.

    Attributes:
        edited: signal with the field's key, emitted with every change; `recipe()` is None while a value is invalid.
        search: line that searches all settings.
        all_settings: title that unfolds the search and all settings by section.
        differing: number of settings that are not as suggested.
    """

    edited = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._fields = {field.key: field for field in recipe_fields()}
        self._values: dict[str, Any] = Recipe().model_dump()
        self._suggested: dict[str, Any] | None = None
        self._reasons: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._recipe: Recipe | None = Recipe()
        self._model: ModelFacts | None = None
        self._dataset: DatasetFacts | None = None
        self._machine: MachineFacts | None = None
        self._plan: RunPlan | None = None
        self._offers: dict[str, str] = {}
        self._places: Sequence[str] = ()
        self.found: set[str] | None = None
        self.rows: dict[str, FieldRow] = {}
        self.other_problems = body("", "error")
        self.other_problems.hide()
        self._main = FieldGroup("", main_fields())
        self._offered = FieldGroup(tr("For this model, these rows and this machine"), [])
        self._offered.hide()
        self.folds = {title: FieldGroup(title, fields, folds=True) for title, fields in folded_sections()}
        self._groups = [self._main, self._offered, *self.folds.values()]
        self._all = {group: list(group.fields) for group in self._groups}
        self._home = {field.key: group for group in self._groups for field in group.fields}
        self.search = _SearchLine()
        self.search.textChanged.connect(self._search)
        self._hits = caption("")
        self._hits.hide()
        self.differing = 0
        self.all_settings = FoldedContent()
        self.all_settings.set_title(tr("All settings"))
        fill(self.all_settings.lines, self.search, self._hits, spacing_px=UNIT)
        for fold in self.folds.values():
            fold.opened.connect(self._fill_soon)
            self.all_settings.lines.addWidget(fold)
        fill(
            QVBoxLayout(self), self.other_problems, self._main, UNIT, self._offered, self.all_settings, None,
            spacing_px=UNIT,
        )  # fmt: skip
        self._layout_timer = QTimer(self, singleShot=True, interval=0)
        self._layout_timer.timeout.connect(self._lay_out)
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._fill)
        self._timer.start()

    def recipe(self) -> Recipe | None:
        """Return the edited recipe; None while it is invalid."""
        return self._recipe

    def problems(self) -> dict[str, str]:
        """Return dotted key to what is wrong there."""
        return dict(self._problems)

    def show_recipe(self, recipe: Recipe) -> None:
        """Show a recipe without emitting `edited`."""
        self._values = recipe.model_dump()
        for key, row in self.rows.items():
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
        self._check()

    def show_case(
        self,
        model: ModelFacts | None,
        dataset: DatasetFacts | None,
        machine: MachineFacts | None,
        plan: RunPlan | None,
    ) -> None:
        """Take what is known of model, data, machine and plan, by which settings are offered and explained.

        Args:
            model: facts about the model; None: not known.
            dataset: facts about the data; None: not known.
            machine: facts about this machine; None: not known.
            plan: newest plan of the recipe; None keeps the former one.
        """
        self._model, self._dataset, self._machine = model, dataset, machine
        self._plan = plan or self._plan
        self._check()

    def show_places(self, places: Sequence[str]) -> None:
        """Offer places to train at.

        Args:
            places: places as a recipe names them.
        """
        self._places = places
        if PLACE in self.rows:
            self.rows[PLACE].show_places(places)

    def row(self, key: str) -> FieldRow:
        """Return the row of a field and open its section.

        Args:
            key: dotted key of the field.
        """
        group = self._group_of(key)
        if group.button is not None:
            self.all_settings.open()
            group.open()
        if key not in self.rows:
            self._make_row(self._fields[key], group)
        return self.rows[key]

    def _group_of(self, key: str) -> FieldGroup:
        return self._offered if key in self._offers else self._home[key]

    def _lay_out(self) -> None:
        """Lay out everything from the rows to the page at once, so that no row is seen with too little room."""
        outer: QWidget | None = self
        around = []
        while outer is not None and not isinstance(outer, QScrollArea):
            around.append(outer)
            outer = outer.parentWidget()
        rows = [widget for row in self.rows.values() if row.isVisible() for widget in row.inner_widgets()]
        groups = [widget for group in self._groups for widget in group.inner_widgets()]
        lay_out_now([*rows, *groups, self.all_settings.content, self.all_settings, *around])

    def _fill_soon(self) -> None:
        self._timer.start()

    def _fill(self) -> None:
        """Make a few of the rows that are to be seen."""
        missing = [
            (field, group)
            for group in self._groups
            for field in group.fields
            if field.key not in self.rows and (group.is_open or field.key in (self.found or ()))
        ]
        for field, group in missing[:_ROWS_AT_ONCE]:
            self._make_row(field, group)
        if len(missing) <= _ROWS_AT_ONCE:
            self._timer.stop()

    def _make_row(self, field: RecipeField, group: FieldGroup) -> None:
        row = FieldRow(field)
        row.show_places(self._places)
        row.show_value(field.read(self._values))
        row.edited.connect(lambda: self._on_edited(row))
        group.add_row(row)
        self.rows[field.key] = row
        self._judge(field.key, row)
        self._layout_timer.start()

    def _on_edited(self, row: FieldRow) -> None:
        key, before = row.field.key, deepcopy(self._values)
        if key == OBJECTIVE:
            shape = self._dataset.shape if self._dataset is not None else ""
            choose_objective(self._values, known_objective(row.value()), shape, task_of(self._dataset))
        else:
            row.field.write(self._values, row.value())
        if key == "devices.strategy":
            follow_strategy(self._values, self._machine)
        for other, its_row in self.rows.items():
            if other != key and its_row.field.read(self._values) != its_row.field.read(before):
                its_row.show_value(its_row.field.read(self._values))
        self._check()
        self.edited.emit(key)

    def _check(self) -> None:
        self._problems = problems_by_field(recipe_problems(self._values))
        self._recipe = None if self._problems else Recipe.model_validate(self._values)
        self._offer()
        for key in self._problems:  # a field that is folded away says what is wrong with it
            if key in self._home and key not in self.rows:
                self._make_row(self._fields[key], self._group_of(key))
        elsewhere = [text for key, text in self._problems.items() if key not in self.rows]
        self.other_problems.setText("\n".join(elsewhere))
        self.other_problems.setVisible(bool(elsewhere))
        for key, row in self.rows.items():
            self._judge(key, row)
        for fold in self.folds.values():
            fold.show_changed(sum(self._differs(field) for field in fold.fields))
            if any(field.key in self._problems for field in fold.fields):
                self.all_settings.open()
                fold.open()
        self._name_all()
        self._layout_timer.start()

    def _name_all(self) -> None:
        """Say in the title of all settings how many of those that are folded are not as suggested."""
        self.differing = sum(self._differs(field) for field in self._fields.values())
        folded = sum(self._differs(field) for fold in self.folds.values() for field in fold.fields)
        self.all_settings.set_title(not_as_suggested(tr("All settings"), folded))

    def _differs(self, field: RecipeField) -> bool:
        return self._suggested is not None and field.read(self._values) != field.read(self._suggested)

    def _offer(self) -> None:
        """Move the rows of settings that are now offered, or no longer, from group to group."""
        offers = {}
        if self._recipe is not None:
            offers = offered_settings(self._values, self._model, self._dataset, self._machine, self._plan)
            offers = {key: reason for key, reason in offers.items() if key in self._home}
        elif self._offers:
            offers = self._offers  # while a value is invalid nothing moves under the pointer
        if list(offers) != list(self._offers):
            moved = set(offers) ^ set(self._offers)
            self._offers = offers
            for key in moved:
                self._move(key)
            self._offered.setVisible(bool(offers))
            self._fill_soon()
        self._offers = offers

    def _move(self, key: str) -> None:
        home = self._home[key]
        order = list(self._offers)
        self._offered.fields = [self._fields[one] for one in order]
        before, after = (home, self._offered) if key in self._offers else (self._offered, home)
        before.forget_row(key)
        home.fields = [one for one in self._all[home] if one.key not in order]
        if key in self.rows:
            after.add_row(self.rows[key])

    def _judge(self, key: str, row: FieldRow) -> None:
        """Show a row's problem, reason and note, and hide or disable the row if its field does not apply."""
        problem, applies = self._problems.get(key, ""), is_relevant(key, self._values)
        searched = self.found is not None
        idle = not_applicable_text(key, self._values)
        if not idle and not applies and not problem:
            idle = without_effect_text(key, self._values)
        row.show_problem(problem_of_row(key, problem) if problem else "")
        row.show_idle(idle)
        row.show_note(note_text(key, self._values))
        row.show_choices(fitting_choices(row.field, self._values))
        offer = self._offers.get(key, "")
        if self._suggested is None or key == "name":  # nobody suggests how to call a run
            row.forget_suggestion(offer)
        else:
            row.show_suggestion(row.field.read(self._suggested), offer or self._reason(key, self._suggested))
        shown = key in (self.found or ()) if searched else applies or bool(problem)
        if not shown or row.isHidden():  # showing lays out the whole form anew, even what is seen already
            row.setVisible(shown)

    def _reason(self, key: str, suggested: dict[str, Any]) -> str:
        """Return the reason of the suggested value while it is the value, else a sentence on the value that is."""
        reason = reason_text(key, self._values, suggested, self._reasons.get(key, ""))
        if self._fields[key].read(self._values) == self._fields[key].read(suggested):
            return reason or value_reason(key, self._values, suggested, self._dataset)
        other = value_reason(key, self._values, suggested, self._dataset)
        return other if reason == self._reasons.get(key, "") else reason

    def _search(self, text: str) -> None:
        self.found = found_fields(self._fields.values(), text)
        if text:
            self.all_settings.open()
        for group in self._groups:
            hits = None if self.found is None else sum(field.key in self.found for field in group.fields)
            group.show_found(hits)
        for key, row in self.rows.items():
            self._judge(key, row)
        self._hits.setVisible(self.found is not None)
        count = len(self.found or ())
        self._hits.setText(
            tr("{settings} found").format(settings=plural(count, "setting"))
            if count
            else tr("No setting has these words in its name or help.")
        )
        self._layout_timer.start()
        self.search.setAccessibleDescription(self._hits.text() if self.found is not None else "")
        self._fill_soon()


class _SearchLine(QLineEdit):
    """A line to search in; Escape empties it. Undo and redo are the page's, as in all fields of the form."""

    def __init__(self) -> None:
        super().__init__()
        self.setPlaceholderText(tr("Search all settings (Ctrl+F)"))
        self.setAccessibleName(tr("Search all settings"))
        self.setClearButtonEnabled(True)

    def event(self, event: QEvent) -> bool:
        """Leave undo and redo to the page."""
        return leave_to_page(self, event) or super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Empty the line by Escape."""
        if event.key() == Qt.Key.Key_Escape and self.text():
            self.clear()
        else:
            super().keyPressEvent(event)
