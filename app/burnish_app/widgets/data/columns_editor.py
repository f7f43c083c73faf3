"""The editor of column meanings: the possible readings of a file, a shape, and a column for each meaning."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QComboBox, QGridLayout, QRadioButton, QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.buttons import quiet, row, secondary
from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.text import ElidedLabel, body, caption
from burnish_app.wording.data_text import MEANINGS, SHAPES, confidence_text, meanings_of, shape_text
from burnish_app.wording.numbers import plural
from burnish_engine.contract.facts.data_report import ColumnReading, FileColumns

_MAX_READINGS = 5
_COMBO_PX = 128
_NONE = "–"


class ColumnsEditor(QWidget):
    """Offers the possible readings of a file; choosing one fills the boxes below, which can be changed by hand.

    Attributes:
        chosen: signal with (shape, ["meaning=column", ...]).
        left: signal without arguments, emitted when the person leaves the reading as it is.
    """

    chosen = Signal(str, list)
    left = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._file = FileColumns(file="", columns={}, needs={}, may_have=[])
        self._readings = QButtonGroup(self)
        self._readings.idClicked.connect(lambda number: self._fill(self._file.readings[number]))
        self.boxes: dict[str, QComboBox] = {}
        self._examples: dict[str, ElidedLabel] = {}
        self._question = body("")
        self._ways = QVBoxLayout()
        self._ways.setSpacing(UNIT // 2)
        self.shape = QComboBox()
        self.shape.setAccessibleName(tr("Kind of rows"))
        self.shape.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.shape.activated.connect(lambda _: self._show_boxes({}))
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(2 * UNIT)
        self._grid.setColumnStretch(2, 1)
        self._missing = caption("")
        self.use = secondary(tr("Read it so"), self._use)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(UNIT)
        column.addWidget(self._question)
        column.addLayout(self._ways)
        column.addWidget(row(body(tr("Kind of rows"), "muted"), self.shape, None))
        column.addLayout(self._grid)
        column.addWidget(self._missing)
        self._leave = quiet(tr("Leave it as it is"), self.left.emit)
        column.addWidget(row(self.use, self._leave, None))

    def ask(self, file: FileColumns, current: ColumnReading | None) -> None:
        """Offer a file's readings.

        Args:
            file: columns of the file and their possible readings.
            current: reading in use; None: unknown.
        """
        self._file = file
        self._question.setText(question(file))
        self._leave.setVisible(current is not None)
        self._show_ways(current)
        self.shape.clear()
        for shape in file.needs:
            self.shape.addItem(SHAPES.get(shape, shape), shape)
        start = current or (file.readings[0] if file.readings and not file.question else None)
        if start is not None:
            self._fill(start)
        else:
            self.shape.setCurrentIndex(self.shape.findData(file.readings[0].shape if file.readings else "text"))
            self._show_boxes({})

    def pairs(self) -> dict[str, str]:
        """Return meaning to column, as chosen."""
        return {meaning: box.currentData() for meaning, box in self.boxes.items() if box.currentData()}

    def _show_ways(self, current: ColumnReading | None) -> None:
        clear(self._ways)
        for button in self._readings.buttons():
            self._readings.removeButton(button)
        for number, reading in enumerate(self._file.readings[:_MAX_READINGS]):
            button = QRadioButton(f"{reading.says[:1].upper()}{reading.says[1:]}")
            sure = "" if self._file.question else f", {confidence_text(reading.confidence)}"
            button.setToolTip(f"{shape_text(reading.shape)}{sure}")
            button.setChecked(
                current is not None and (reading.shape, reading.columns) == (current.shape, current.columns)
            )
            self._readings.addButton(button, number)
            self._ways.addWidget(button)

    def _fill(self, reading: ColumnReading) -> None:
        self.shape.setCurrentIndex(self.shape.findData(reading.shape))
        self._show_boxes(reading.columns)

    def _show_boxes(self, columns: Mapping[str, str]) -> None:
        clear(self._grid)
        self.boxes, self._examples = {}, {}
        shape = self.shape.currentData()
        needs = self._file.needs.get(shape, [])
        for line, meaning in enumerate(meanings_of(shape, needs)):
            box = QComboBox()
            box.setFixedWidth(_COMBO_PX)
            box.addItem(_NONE, "")
            for at, (name, example) in enumerate(self._file.columns.items(), start=1):
                box.addItem(name, name)
                box.setItemData(at, example, Qt.ItemDataRole.ToolTipRole)
            box.setCurrentIndex(max(box.findData(columns.get(meaning, "")), 0))
            box.setAccessibleName(MEANINGS[meaning])
            box.activated.connect(lambda _: self._show_state())
            label = body(MEANINGS[meaning], "" if meaning in needs else "muted")
            label.setWordWrap(False)
            label.setToolTip(meaning)
            self.boxes[meaning] = box
            self._examples[meaning] = ElidedLabel("", Qt.TextElideMode.ElideRight, tone="muted")
            for place, widget in enumerate((label, box, self._examples[meaning])):
                self._grid.addWidget(widget, line, place)
        self._show_state()

    def _show_state(self) -> None:
        chosen, shape = self.pairs(), self.shape.currentData()
        for meaning, label in self._examples.items():
            label.setText(self._file.columns.get(chosen.get(meaning, ""), ""))
        missing = [MEANINGS[meaning].lower() for meaning in self._file.needs.get(shape, []) if meaning not in chosen]
        twice = len(set(chosen.values())) < len(chosen)
        words = (
            tr("Still to say: {missing}.").format(missing=", ".join(missing))
            if missing
            else tr("One column has two meanings.")
            if twice
            else ""
        )
        self._missing.setText(words)
        self._missing.setVisible(bool(words))
        self.use.setEnabled(not words)

    def _use(self) -> None:
        pairs = [f"{meaning}={name}" for meaning, name in self.pairs().items()]
        self.chosen.emit(self.shape.currentData(), pairs)


def question(file: FileColumns) -> str:
    """Return the question to ask about a file's columns."""
    if not file.question:
        return tr("How shall the columns be read?")
    if not file.readings:
        return tr("No known kind of rows fits these columns. Say what each one means.")
    if len(file.readings) == 1:
        return tr("This is a guess, so it is yours to say: is it read rightly?")
    return tr("The columns can be read in {plural}. Which one is it?").format(plural=plural(len(file.readings), "way"))
