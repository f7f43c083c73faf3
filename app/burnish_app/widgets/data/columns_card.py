"""The card that shows how the columns of the data are read, with an example, and lets the person change it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.text import ElidedLabel, body, heading
from burnish_app.widgets.data.columns_editor import ColumnsEditor
from burnish_app.wording.data_text import MEANINGS, confidence_text, shape_text
from burnish_engine.contract.facts.data_report import ColumnReading, FileColumns
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe_data import DataSection

_FEW = 2  # columns whose examples have room for several lines each
_MIDDLE, _TOP = Qt.AlignmentFlag(0), Qt.AlignmentFlag.AlignTop
_CARD_PX = 400  # at least, so that the examples can be read


class ColumnsCard(Card):
    """Shows the column reading in use, or an editor for another one.

    Attributes:
        asked: signal without arguments, emitted when the person wants to change the reading; `ask` shall follow.
        chosen: signal with (shape, ["meaning=column", ...]); shape "auto" and no pairs: recognize again.
    """

    asked = Signal()
    chosen = Signal(str, list)

    def __init__(self) -> None:
        super().__init__(tr("How it is read"), icon_name="layers")
        self.setMinimumWidth(_CARD_PX)
        self._reading: ColumnReading | None = None
        self._facts: DatasetFacts | None = None
        self.change = quiet(tr("Change ..."), self.asked.emit)
        self.again = quiet(tr("Recognize it again"), lambda: self.chosen.emit("auto", []))
        for button in (self.again, self.change):
            self.corner.addWidget(button)
        self.headline = heading("")
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(2 * UNIT)
        self._grid.setColumnStretch(2, 1)
        self._several = body("", "muted")
        self.editor = ColumnsEditor()
        self.editor.hide()
        self.editor.chosen.connect(self._choose)
        self.editor.left.connect(self._show_reading)
        for widget in (self.again, self._several):
            widget.hide()
        self.body.addWidget(self.headline)
        self.body.addLayout(self._grid)
        self.body.addWidget(self._several)
        self.body.addWidget(self.editor)
        self.body.addStretch(1)

    def show_facts(self, facts: DatasetFacts, data: DataSection) -> None:
        """Show how the inspected data was read.

        Args:
            facts: facts about the data, from an inspection.
            data: data section of the recipe.
        """
        if facts is self._facts:
            return
        self._facts = facts
        report = facts.report
        self._reading = report.readings[0] if report and report.readings else None
        chosen_by_hand = bool(data.columns) or data.shape != "auto"
        self.again.setVisible(chosen_by_hand)
        how = (
            tr("as you said") if chosen_by_hand else confidence_text(self._reading.confidence) if self._reading else ""
        )
        words = f"{shape_text(facts.shape)}, {facts.format.upper()}"
        self.headline.setText(words[:1].upper() + words[1:] + (f"  ·  {how}" if how else ""))
        clear(self._grid)
        if self._reading is not None:
            roomy = len(self._reading.columns) <= _FEW
            for line, (meaning, column) in enumerate(self._reading.columns.items()):
                self._add_line(line, meaning, column, self._reading.example.get(meaning, ""), roomy=roomy)
        parts = report.parts - len(data.validation_files) if report else 1
        self._several.setText(tr("Of the first of {parts:,} files.").format(parts=parts) if parts > 1 else "")
        self._several.setVisible(parts > 1)
        self._show_reading()

    def ask(self, file: FileColumns) -> None:
        """Show the editor for the columns of a file."""
        self.editor.ask(file, self._reading)
        self._show_parts(editing=True)

    def forget(self) -> None:
        """Forget the reading, because the data could not be inspected."""
        self._reading = self._facts = None

    def _add_line(self, line: int, meaning: str, column: str, example: str, *, roomy: bool) -> None:
        name, label = body(MEANINGS.get(meaning, meaning), "muted"), body(column)
        for one in (name, label):
            one.setWordWrap(False)
        shown = body(example, "muted") if roomy else ElidedLabel(example, Qt.TextElideMode.ElideRight, tone="muted")
        label.setToolTip(tr("The column {column} is the {meaning}.").format(column=column, meaning=meaning))
        for place, widget in enumerate((name, label, shown)):
            self._grid.addWidget(widget, line, place, _TOP if roomy else _MIDDLE)

    def _choose(self, shape: str, pairs: list[str]) -> None:
        self._show_reading()
        self.chosen.emit(shape, pairs)

    def _show_reading(self) -> None:
        self._show_parts(editing=False)

    def _show_parts(self, *, editing: bool) -> None:
        self.editor.setVisible(editing)
        self.headline.setVisible(not editing and bool(self.headline.text()))
        self.change.setVisible(not editing)
        for at in range(self._grid.count()):
            item = self._grid.itemAt(at)
            if item is not None and (widget := item.widget()) is not None:
                widget.setVisible(not editing)
