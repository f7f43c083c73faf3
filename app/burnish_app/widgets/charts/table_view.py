"""The values of a chart as a table in a window of its own."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QKeyEvent, QKeySequence
from PySide6.QtWidgets import QApplication, QDialog, QHeaderView, QTableView, QVBoxLayout, QWidget

from burnish_app.curves.tables import CurveTable, tab_text
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import caption

_COLUMN_PX, _ROW_PX, _HEIGHT_PX = 132, 24, 560
_Index = QModelIndex | QPersistentModelIndex


class CurveTableModel(QAbstractTableModel):
    """A Qt model of a table of curves.

    Args:
        table: values to show.
    """

    def __init__(self, table: CurveTable) -> None:
        super().__init__()
        self._table = table

    def rowCount(self, parent: _Index = QModelIndex()) -> int:  # noqa: B008  Qt's signature
        """Return the number of rows."""
        return 0 if parent.isValid() else self._table.rows

    def columnCount(self, parent: _Index = QModelIndex()) -> int:  # noqa: B008  Qt's signature
        """Return the number of columns."""
        return 0 if parent.isValid() else len(self._table.names)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return the name of a column."""
        across = orientation == Qt.Orientation.Horizontal
        return self._table.names[section] if across and role == Qt.ItemDataRole.DisplayRole else None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return the text of a cell, or its alignment."""
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return self.text(index.row(), index.column()) if role == Qt.ItemDataRole.DisplayRole else None

    def text(self, row: int, column: int) -> str:
        """Return the text of a cell; empty if it has no value."""
        value = self._table.value(row, column)
        if value is None:
            return ""
        return f"{value:,.0f}" if column < 2 else f"{value:.6g}"


class TableWindow(QDialog):
    """Shows the values that a chart has now. Selected cells can be copied.

    Args:
        name: name of the chart.
        table: values to show.
        parent: widget that the window belongs to.
    """

    def __init__(self, name: str, table: CurveTable, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("{name} as a table").format(name=name))
        self.resize(scaled(_COLUMN_PX) * len(table.names), _HEIGHT_PX)
        self.model = CurveTableModel(table)
        self.view = QTableView()
        self.view.setModel(self.model)
        self.view.setAccessibleName(self.windowTitle())
        self.view.setShowGrid(False)
        self.view.verticalHeader().hide()
        self.view.verticalHeader().setDefaultSectionSize(scaled(_ROW_PX))
        head = self.view.horizontalHeader()
        head.setMinimumSectionSize(max(head.sectionSizeHint(column) for column in range(head.count())))
        head.setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        rows = tr("{rows} rows up to now. Ctrl+C copies what is selected.").format(rows=f"{table.rows:,}")
        fill(QVBoxLayout(self), caption(rows), self.view, margins_px=2 * UNIT)
        self.view.scrollToBottom()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Copy the selected cells."""
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
        else:
            super().keyPressEvent(event)

    def copy(self) -> None:
        """Put the selected cells, with the names of their columns, on the clipboard."""
        cells = self.view.selectionModel().selectedIndexes()
        columns = sorted({cell.column() for cell in cells})
        rows = sorted({cell.row() for cell in cells})
        names = [str(self.model.headerData(column, Qt.Orientation.Horizontal)) for column in columns]
        lines = [[self.model.text(row, column).replace(",", "") for column in columns] for row in rows]
        QApplication.clipboard().setText(tab_text(names, lines))
