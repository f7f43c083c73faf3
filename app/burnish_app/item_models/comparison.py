"""The table model of a comparison: a row for each outcome and each difference, a column for each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from burnish_app.look.theme import font
from burnish_app.wording.comparison_text import ComparedRow

Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()


class ComparisonModel(QAbstractTableModel):
    """A table with a column for the names of rows, and one for each run.

    Args:
        parent: parent in Qt's object tree.
        swatch: function that returns the small picture of a run's line, by its place.
    """

    def __init__(self, parent: QObject | None = None, swatch: Callable[[int], Any] = lambda _place: None) -> None:
        super().__init__(parent)
        self._rows: list[ComparedRow] = []
        self._titles: list[str] = []
        self._swatch = swatch

    def show(self, titles: Sequence[str], rows: Sequence[ComparedRow]) -> None:
        """Replace runs and rows.

        Args:
            titles: title of each run.
            rows: rows, each with a cell for each run.
        """
        if (list(titles), list(rows)) == (self._titles, self._rows):
            return
        self.beginResetModel()
        self._titles, self._rows = list(titles), list(rows)
        self.endResetModel()

    def row(self, number: int) -> ComparedRow:
        """Return a row."""
        return self._rows[number]

    def rowCount(self, parent: Index = _ROOT) -> int:
        """Return the number of rows."""
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = _ROOT) -> int:
        """Return the number of columns."""
        return 0 if parent.isValid() else 1 + len(self._titles)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's text, hint or alignment, or the name of its color (UserRole)."""
        row, place = self._rows[index.row()], index.column() - 1
        if role == Qt.ItemDataRole.DisplayRole:
            return row.label if place < 0 else row.cells[place] if row.cells else ""
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.hint or (row.label if place < 0 else row.cells[place] if row.cells else "")
        if role == Qt.ItemDataRole.UserRole:
            return "success" if place in row.best else "muted" if place < 0 and row.cells else ""
        if role == Qt.ItemDataRole.FontRole:
            return font(bold=True) if row.is_heading else font(medium=True) if place in row.best else None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a run's title, and the picture of its line."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return self._titles[section - 1] if section else ""
        if role == Qt.ItemDataRole.DecorationRole and section:
            return self._swatch(section - 1)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        return None
