"""The table model of a sweep: a row for each run, with its settings, status and held-out loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from burnish_app.comparison.best_run import delta_text
from burnish_app.comparison.swept import SweepRow, setting_name
from burnish_app.item_models.runs import loss_cell_text, steps_text, took_text
from burnish_app.look.language import tr
from burnish_app.wording.run_text import RUN_STATUS_TEXT
from burnish_engine.contract.facts.sweeps import SweepFile

Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()
_STATUS = tr("Status")
_DELTA = tr("To best")
_AFTER: tuple[tuple[str, Callable[[SweepRow], str]], ...] = (
    (_STATUS, lambda row: RUN_STATUS_TEXT[row.run.standing]),
    (tr("Step"), lambda row: steps_text(row.run)),
    (tr("Curve"), lambda _row: ""),
    (tr("Held out"), lambda row: loss_cell_text(row.run.state.evaluation_loss)),
    (_DELTA, lambda row: delta_text(row.delta)),
    (tr("Took"), lambda row: took_text(row.run)),
)
STATUS_AFTER, CURVE_AFTER = 0, 2
"""Places of the status and of the curve behind the settings."""


class SweepModel(QAbstractTableModel):
    """A table of a sweep's runs. While only values change, rows stay, so that a selection stays."""

    def __init__(self, sweep: SweepFile, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._names = [setting_name(setting.key) for setting in sweep.settings]
        self._rows: list[SweepRow] = []

    def set_rows(self, rows: Sequence[SweepRow]) -> None:
        """Replace the runs shown."""
        if [row.run.folder for row in rows] != [row.run.folder for row in self._rows]:
            self.beginResetModel()
            self._rows = list(rows)
            self.endResetModel()
            return
        for place, row in enumerate(rows):
            if row != self._rows[place]:
                self._rows[place] = row
                self.dataChanged.emit(self.index(place, 0), self.index(place, self.columnCount() - 1))

    def row(self, place: int) -> SweepRow | None:
        """Return a run; None if there is no such row."""
        return self._rows[place] if 0 <= place < len(self._rows) else None

    def rowCount(self, parent: Index = _ROOT) -> int:
        """Return the number of runs."""
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = _ROOT) -> int:
        """Return the number of columns."""
        return 0 if parent.isValid() else len(self._names) + len(_AFTER)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's text, hint or alignment, or the name of its color (UserRole)."""
        row = self.row(index.row())
        if row is None:
            return None
        place = index.column() - len(self._names)
        if role == Qt.ItemDataRole.DisplayRole:
            return row.values[index.column()] if place < 0 else _AFTER[place][1](row)
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.run.state.message or row.run.folder
        if role == Qt.ItemDataRole.UserRole:
            return "success" if place >= 0 and _AFTER[place][0] == _DELTA and row.delta == 0 else ""
        return self._alignment(index.column()) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a column's heading or its alignment."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            place = section - len(self._names)
            return self._names[section] if place < 0 else _AFTER[place][0]
        return self._alignment(section) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def _alignment(self, column: int) -> Qt.AlignmentFlag:
        left = column - len(self._names) in (*range(-len(self._names), 0), STATUS_AFTER, CURVE_AFTER)
        return (Qt.AlignmentFlag.AlignLeft if left else Qt.AlignmentFlag.AlignRight) | Qt.AlignmentFlag.AlignVCenter
