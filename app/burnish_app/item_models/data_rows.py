"""The table model of a data file's first rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()


class DataRowsModel(QAbstractTableModel):
    """A table with one row per row of the file and one column per column."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._columns: list[str] = []
        self._rows: Sequence[Mapping[str, str]] = ()

    def show(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Replace the rows shown."""
        self.beginResetModel()
        self._columns = list(dict.fromkeys(name for row in rows for name in row))
        self._rows = rows
        self.endResetModel()

    def rowCount(self, parent: Index = _ROOT) -> int:
        """Return the number of rows."""
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = _ROOT) -> int:
        """Return the number of columns."""
        return 0 if parent.isValid() else len(self._columns)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's text, on hover too, or its alignment."""
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return self._rows[index.row()].get(self._columns[index.column()], "")
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a column's name or its alignment."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return self._columns[section]
        return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter if role == _ALIGNMENT else None


_ALIGNMENT = Qt.ItemDataRole.TextAlignmentRole
