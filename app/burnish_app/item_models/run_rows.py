"""The base of table models with a row for each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex

from burnish_engine.contract.serve.replies import RunSummary

Index = QModelIndex | QPersistentModelIndex
ROOT = QModelIndex()


class HasRun(Protocol):
    """A row's content: a run, and what is shown about it."""

    @property
    def run(self) -> RunSummary:
        """The summary of the run."""


Row = TypeVar("Row", bound=HasRun)


class RunRowsModel(QAbstractTableModel, Generic[Row]):
    """A table with a row for each run. While only values change, rows stay, so that a selection stays."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[Row] = []

    def set_rows(self, rows: Sequence[Row]) -> None:
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

    def row(self, place: int) -> Row | None:
        """Return the content of a row; None if there is no such row."""
        return self._rows[place] if 0 <= place < len(self._rows) else None

    def rowCount(self, parent: Index = ROOT) -> int:
        """Return the number of runs."""
        return 0 if parent.isValid() else len(self._rows)
