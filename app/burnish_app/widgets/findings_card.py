"""What is odd in the data: which rows, what can be done about it, and what is done already."""

from __future__ import annotations

from functools import partial
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from burnish_app.data_words import (
    Change,
    action_words,
    changes,
    further_warnings,
    named_settings,
    rows_in_words,
)
from burnish_app.recipe_fields import cleaning_fields
from burnish_app.theme import UNIT
from burnish_app.widgets.buttons import quiet, row
from burnish_app.widgets.card import Card
from burnish_app.widgets.field_row import FieldRow
from burnish_app.widgets.layouts import clear
from burnish_app.widgets.text import body, caption
from burnish_app.widgets.wrapping import Flow
from burnish_app.words import plural
from burnish_engine.contract.data_report import Finding, Setting
from burnish_engine.contract.facts import DatasetFacts
from burnish_engine.contract.recipe_data import DataSection

_WORDS_PX = 260  # at least, to have the actions beside them


class FindingsCard(Card):
    """Findings with their actions, what was left out, and the changes in force with a way back.

    Attributes:
        changed: Emits (field of the data section, value).
    """

    changed = Signal(str, object)

    def __init__(self) -> None:
        super().__init__("Worth a look", "What is done to rows is kept in the recipe; your files stay as they are.")
        self._lines = QVBoxLayout()
        self._lines.setSpacing(UNIT + 4)
        self._fold = quiet("", self._toggle)
        self._settings = QWidget()
        self._rows: dict[str, FieldRow] = {}
        self._facts: DatasetFacts | None = None
        self._data = DataSection()
        self._settings.hide()
        column = QVBoxLayout(self._settings)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(UNIT)
        self.corner.addWidget(self._fold)
        self.body.addLayout(self._lines)
        self.body.addWidget(self._settings)
        self._name_fold()

    def show_facts(self, facts: DatasetFacts, data: DataSection) -> None:
        """Show what was found.

        Args:
            facts: As inspected.
            data: The recipe's settings, which it was inspected with.
        """
        if facts is self._facts and data == self._data:
            return
        self._facts, self._data = facts, data
        clear(self._lines)
        for finding in facts.report.findings if facts.report else []:
            self._lines.addWidget(self._finding(finding, facts))
        for warning in further_warnings(facts):
            self._lines.addWidget(self._line(f"!  {warning}", "", named_settings(warning)))
        said = [finding.says for finding in facts.report.findings] if facts.report else []
        for reason, count in facts.dropped.items():
            if any(reason in words for words in said):
                continue
            where = rows_in_words(facts.dropped_examples.get(reason, []), count, facts)
            self._lines.addWidget(self._line(f"{plural(count, 'row')} left out: {reason}", where, [], look="muted"))
        for change in changes(data):
            self._lines.addWidget(self._done(change))
        if not self._lines.count():
            self._lines.addWidget(body("Nothing odd was found.", "success"))
        for field, shown in self._rows.items():
            shown.show_value(getattr(data, field))

    def _finding(self, finding: Finding, facts: DatasetFacts) -> QWidget:
        return self._line(f"!  {finding.says}", rows_in_words(finding.first, finding.rows, facts), finding.actions)

    def _line(self, words: str, where: str, actions: list[Setting], *, look: Any = "warning") -> QWidget:
        holder, texts = QWidget(), QWidget()
        texts.setMinimumWidth(_WORDS_PX)
        policy = texts.sizePolicy()
        policy.setHorizontalPolicy(policy.Policy.Expanding)
        texts.setSizePolicy(policy)
        column = QVBoxLayout(texts)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(body(words, look))
        if where:
            column.addWidget(caption(where))
        line = Flow(UNIT, 2)
        line.addWidget(texts)
        if actions:
            line.addWidget(row(*(self._button(action) for action in actions), spacing_px=0))
        holder.setLayout(line)
        return holder

    def _button(self, action: Setting) -> QPushButton:
        button = quiet(action_words(action), partial(self._take, action))
        button.setToolTip(f'{action.key} = "{action.value}"' + (f": {action.says}" if action.says else ""))
        return button

    def _done(self, change: Change) -> QWidget:
        holder, line = QWidget(), Flow(UNIT, 2)
        words = body(f"✓  {change.says}", "success")
        words.setMinimumWidth(_WORDS_PX)
        policy = words.sizePolicy()
        policy.setHorizontalPolicy(policy.Policy.Expanding)
        words.setSizePolicy(policy)
        undo = quiet("Undo", lambda: self.changed.emit(change.field, change.usual))
        undo.setAccessibleName(f"Undo: {change.says}")
        line.addWidget(words)
        line.addWidget(undo)
        holder.setLayout(line)
        return holder

    def _take(self, action: Setting) -> None:
        self.changed.emit(action.key.rpartition(".")[2], action.value)

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
        self._fold.setText("▸  All choices" if folded else "▾  All choices")
        self._fold.setAccessibleName(f"All choices, {'folded' if folded else 'open'}")
