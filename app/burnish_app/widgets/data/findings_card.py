"""The card of findings: odd rows, actions against them, and the actions that are in force."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.recipe.recipe_fields import cleaning_fields
from burnish_app.widgets.basic.buttons import ActionButton, quiet
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import body, caption
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.recipe.fields.field_row import FieldRow
from burnish_app.wording.data_text import (
    DataChange,
    action_text,
    data_changes,
    further_warnings,
    named_settings,
    rows_text,
)
from burnish_app.wording.numbers import plural
from burnish_app.wording.plain_words import plain_words
from burnish_engine.contract.facts.data_report import Finding, RowPlace, Setting
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe_data import DataSection

_WORDS_PX = 260  # at least, to have the actions beside them


class FindingsCard(Card):
    """Shows findings with their actions, dropped rows, and the changes in force, each with an undo button.

    Attributes:
        changed: signal with (field of the data section, new value).
        preference_changed: signal with (field of the preference section, new value).
        count: number of findings, those about rows that were left out among them.
        rows_wanted: signal with (list of `RowPlace`, number of all rows meant, sentence that says why these).
        message_wanted: signal without arguments, emitted to write the system message that a template writes otherwise.
    """

    rows_wanted = Signal(list, int, str)
    message_wanted = Signal()
    changed = Signal(str, object)
    preference_changed = Signal(str, object)

    def __init__(self) -> None:
        super().__init__(
            tr("Findings"),
            tr("What is done to rows is kept in the recipe; your files stay as they are."),
            icon_name="warning",
        )
        self._lines = fill(QVBoxLayout(), spacing_px=UNIT + 4)
        self._fold = quiet("", self._toggle)
        self._settings = QWidget()
        self._rows: dict[str, FieldRow] = {}
        self._facts: DatasetFacts | None = None
        self.count = 0
        self._data = DataSection()
        self._settings.hide()
        fill(QVBoxLayout(self._settings), spacing_px=UNIT)
        self.corner.addWidget(self._fold)
        fill(self.body, self._lines, self._settings)
        self._name_fold()

    def show_facts(self, facts: DatasetFacts, data: DataSection) -> None:
        """Replace the findings shown.

        Args:
            facts: facts about the data, from an inspection.
            data: data section of the recipe that the data was inspected with.
        """
        if facts is self._facts and data == self._data:
            return
        self._facts, self._data = facts, data
        clear(self._lines)
        findings = facts.report.findings if facts.report else []
        for finding in findings:
            self._lines.addWidget(self._finding(finding, facts))
        for warning in further_warnings(facts):
            self._lines.addWidget(self._line(f"!  {plain_words(warning)}", "", self._buttons(named_settings(warning))))
        reported = {finding.dropped for finding in findings}
        for reason, count in facts.dropped.items():
            if reason in reported:
                continue
            places = facts.dropped_examples.get(reason, [])
            says = tr("{count} left out: {reason}").format(count=plural(count, "row"), reason=reason)
            self._lines.addWidget(
                self._line(says, rows_text(places, count, facts), self._openers(places, count, says, facts), "muted")
            )
        self.count = self._lines.count()
        for change in data_changes(data):
            self._lines.addWidget(self._done(change))
        if not self._lines.count():
            self._lines.addWidget(body(tr("Nothing odd was found."), "success"))
        for field, shown in self._rows.items():
            shown.show_value(getattr(data, field))

    def _finding(self, finding: Finding, facts: DatasetFacts) -> QWidget:
        buttons = self._openers(finding.first, finding.rows, finding.says, facts)
        if finding.kind == "added_text":
            buttons.append(quiet(tr("Write another"), self.message_wanted.emit))
        where = rows_text(finding.first, finding.rows, facts)
        return self._line(f"!  {plain_words(finding.says)}", where, [*buttons, *self._buttons(finding.actions)])

    def _openers(self, places: list[RowPlace], count: int, says: str, facts: DatasetFacts) -> list[QPushButton]:
        """Return a button that opens the rows, if their numbers are exact."""
        if not places or (facts.report is not None and not facts.report.exact_places):
            return []
        button = quiet(tr("Show the rows"), partial(self.rows_wanted.emit, places, count, says))
        button.setAccessibleName(tr("Show the rows: {says}").format(says=says))
        return [button]

    def _line(self, text: str, where: str, buttons: Sequence[QWidget], tone: Any = "warning") -> QWidget:
        holder, texts = QWidget(), QWidget()
        texts.setMinimumWidth(_WORDS_PX)
        policy = texts.sizePolicy()
        policy.setHorizontalPolicy(policy.Policy.Expanding)
        texts.setSizePolicy(policy)
        column = fill(QVBoxLayout(texts), body(text, tone), spacing_px=2)
        if where:
            column.addWidget(caption(where))
        actions = FlowLayout(0, 0)
        for button in buttons:
            actions.addWidget(button)
        line = fill(FlowLayout(UNIT, 2), texts, actions)
        holder.setLayout(line)
        return holder

    def _buttons(self, actions: Sequence[Setting]) -> list[ActionButton]:
        buttons: list[ActionButton] = []
        for action in actions:
            buttons.append(quiet(action_text(action), partial(self._take, action)))
            buttons[-1].allow_shortening()
            buttons[-1].setToolTip(action.line + (f": {action.says}" if action.says else ""))
        return buttons

    def _done(self, change: DataChange) -> QWidget:
        holder, line = QWidget(), FlowLayout(UNIT, 2)
        text = body(f"✓  {change.text}", "success")
        text.setMinimumWidth(_WORDS_PX)
        policy = text.sizePolicy()
        policy.setHorizontalPolicy(policy.Policy.Expanding)
        text.setSizePolicy(policy)
        undo = quiet(tr("Undo"), lambda: self.changed.emit(change.field, change.default))
        undo.setAccessibleName(tr("Undo: {text}").format(text=change.text))
        line.addWidget(text)
        line.addWidget(undo)
        holder.setLayout(line)
        return holder

    def _take(self, action: Setting) -> None:
        section, _, field = action.key.rpartition(".")
        (self.preference_changed if section == "preference" else self.changed).emit(field, action.value)

    def _toggle(self) -> None:
        if not self._rows:
            for field in cleaning_fields():
                self._add_row(field.key.rpartition(".")[2], FieldRow(field))
        self._settings.setVisible(self._settings.isHidden())
        self._name_fold()

    def _add_row(self, field: str, made: FieldRow) -> None:
        made.show_value(getattr(self._data, field))
        made.edited.connect(lambda: self.changed.emit(field, made.value()))
        self._rows[field] = made
        layout = self._settings.layout()
        assert layout is not None
        layout.addWidget(made)

    def _name_fold(self) -> None:
        folded = self._settings.isHidden()
        self._fold.setText(tr("▸  All choices") if folded else tr("▾  All choices"))
        self._fold.setAccessibleName(tr("All choices, folded") if folded else tr("All choices, open"))
