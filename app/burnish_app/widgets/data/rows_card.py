"""The card with the first rows of the data as a table."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

from burnish_app.item_models.data_rows import DataRowsModel
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.widgets.basic.card import Card
from burnish_app.wording.numbers import plural
from burnish_engine.contract.facts.data_report import FileColumns

_ROW_PX, _ROWS_SEEN = 44, 6  # a row has two lines


class RowsCard(Card):
    """Shows the first rows of the first file, as they are in it."""

    def __init__(self) -> None:
        super().__init__(
            tr("The first rows"), tr("As they are in the file, before a template is put around them."), icon_name="runs"
        )
        self.rows = DataRowsModel(self)
        self.table = QTableView()
        self.table.setModel(self.rows)
        self.table.setAccessibleName(tr("First rows of the data"))
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setShowGrid(False)
        self.table.setWordWrap(True)
        self.table.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.table.setTabKeyNavigation(False)
        self.table.verticalHeader().hide()
        self.table.horizontalHeader().setHighlightSections(False)
        self.table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        self.table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.body.addWidget(self.table)

    def show_rows(self, file: FileColumns) -> None:
        """Replace the rows shown.

        Args:
            file: columns and first rows of a data file.
        """
        self.set_heading(tr("The first {rows} of {file}").format(rows=plural(len(file.rows), "row"), file=file.file))
        self.rows.show(file.rows)
        height = scaled(_ROW_PX)
        self.table.verticalHeader().setDefaultSectionSize(height)
        self.table.setFixedHeight(height * (min(len(file.rows), _ROWS_SEEN) + 1))
        self.setVisible(bool(file.rows))
