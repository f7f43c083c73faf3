"""The table model of a data file's rows: it asks for the pages that are looked at, and keeps the last ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt, Signal

from burnish_app.look.language import tr
from burnish_engine.contract.facts.data_report import RowLine

Index = QModelIndex | QPersistentModelIndex
PAGE_ROWS = 100
MOST_ROWS = 1_000_000
"""Most rows that the table has; a view has a length of pixels at most."""
_ROOT = QModelIndex()
_KEPT_PAGES = 40
_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter


class DataRowsModel(QAbstractTableModel):
    """A table with a row for each row of a file and a column for each of its columns.

    Attributes:
        wanted: signal with the number of a page, from 0, that is looked at and not here. `set_page` shall follow, or
            `forget`.
    """

    wanted = Signal(int)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._columns: list[str] = []
        self._ignored: Collection[str] = ()
        self._pages: OrderedDict[int, Sequence[RowLine]] = OrderedDict()
        self._asked: set[int] = set()
        self._total = 0

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self._columns)

    def begin(self, columns: Sequence[str], total: int = 0) -> None:
        """Show another file.

        Args:
            columns: names of its columns.
            total: number of its rows, as far as it is known; 0: the first page says it.
        """
        self.beginResetModel()
        self._columns, self._total = list(columns), min(total, MOST_ROWS)
        self._pages.clear()
        self._asked.clear()
        self.endResetModel()

    def set_page(self, page: int, rows: Sequence[RowLine], total: int) -> None:
        """Show a page of rows.

        Args:
            page: number of the page, from 0.
            rows: its rows: `PAGE_ROWS`, or fewer on the last one.
            total: number of all rows.
        """
        self._asked.discard(page)
        self._set_total(min(total, MOST_ROWS))
        self._pages[page] = rows
        self._pages.move_to_end(page)
        while len(self._pages) > _KEPT_PAGES:
            self._pages.popitem(last=False)
        first, last = page * PAGE_ROWS, min(page * PAGE_ROWS + len(rows), self._total) - 1
        if last >= first and self._columns:
            self.dataChanged.emit(self.index(first, 0), self.index(last, len(self._columns) - 1))
            self.headerDataChanged.emit(Qt.Orientation.Vertical, first, last)

    def forget(self, page: int) -> None:
        """Want a page anew when it is looked at again."""
        self._asked.discard(page)

    def set_ignored(self, columns: Collection[str]) -> None:
        """Mute the columns that do not count."""
        if set(columns) != set(self._ignored):
            self._ignored = set(columns)
            if self._total and self._columns:
                self.dataChanged.emit(self.index(0, 0), self.index(self._total - 1, len(self._columns) - 1))

    def line(self, row: int) -> RowLine | None:
        """Return a row; None where there is none, or it is not here."""
        page, at = divmod(row, PAGE_ROWS)
        rows = self._pages.get(page, ()) if 0 <= row < self._total else ()
        return rows[at] if at < len(rows) else None

    def rowCount(self, parent: Index = _ROOT) -> int:
        """Return the number of rows."""
        return 0 if parent.isValid() else self._total

    def columnCount(self, parent: Index = _ROOT) -> int:
        """Return the number of columns."""
        return 0 if parent.isValid() else len(self._columns)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's text, on hover too, its alignment, or its color's name."""
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _LEFT
        if role not in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.UserRole):
            return None
        line = self._looked_at(index.row())
        if role == Qt.ItemDataRole.UserRole:
            if line is not None and line.problem:
                return "warning"
            return "faint" if line is None or self._columns[index.column()] in self._ignored else None
        if line is None:
            return "..." if index.column() == 0 and role == Qt.ItemDataRole.DisplayRole else ""
        if line.problem:
            return line.problem if index.column() == 0 else ""
        return line.cells.get(self._columns[index.column()], "")

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a column's name or a row's number in its file, or the alignment of either."""
        if role == Qt.ItemDataRole.TextAlignmentRole:
            right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            return _LEFT if orientation == Qt.Orientation.Horizontal else right
        if orientation == Qt.Orientation.Horizontal:
            return self._columns[section] if role == Qt.ItemDataRole.DisplayRole else None
        line = self.line(section)
        if role == Qt.ItemDataRole.DisplayRole:
            return f"{line.row if line is not None else section + 1:,}"
        if role == Qt.ItemDataRole.ToolTipRole and line is not None:
            return tr("Row or line {row:,} of {file}").format(row=line.row, file=line.file)
        return None

    def _looked_at(self, row: int) -> RowLine | None:
        """Return a row that is looked at; None where its page is not here, which is wanted then."""
        page = row // PAGE_ROWS
        if page in self._pages:
            return self.line(row)
        if page not in self._asked:
            self._asked.add(page)
            self.wanted.emit(page)
        return None

    def _set_total(self, total: int) -> None:
        if total > self._total:
            self.beginInsertRows(_ROOT, self._total, total - 1)
            self._total = total
            self.endInsertRows()
        elif total < self._total:
            self.beginRemoveRows(_ROOT, total, self._total - 1)
            self._total = total
            self.endRemoveRows()
