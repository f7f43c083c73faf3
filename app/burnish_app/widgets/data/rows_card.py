"""The card with the rows of the data as a table: roles on column heads, and the chosen row as the model reads it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QSizePolicy, QTableView, QVBoxLayout, QWidget

from burnish_app.engine.engine_client import EngineClient
from burnish_app.item_models.data_rows import DataRowsModel
from burnish_app.item_models.row_pages import RowPages
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX, UNIT
from burnish_app.state.column_roles import column_pairs, meanings_of, missing_roles, roles_of, with_role
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import quiet, row, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.tables import TextColorDelegate
from burnish_app.widgets.basic.text import ShorteningBox, body, caption
from burnish_app.widgets.basic.wrapping import FlowLayout, columns_layout
from burnish_app.widgets.data.role_header import RoleHeader
from burnish_app.widgets.data.row_preview import RowPreview
from burnish_app.wording.data_text import confidence_text, role_text, shape_text
from burnish_app.wording.numbers import plural, sentence_list
from burnish_engine.contract.facts.data_report import ColumnReading, FileColumns, RowPlace
from burnish_engine.contract.serve.messages import Failure

_ROW_PX = 52  # two lines
_TABLE_PX, _PREVIEW_PX = 416, 340  # at least, to stand side by side
_HEIGHT_PX, _LOW_PX = 440, 300  # the latter of the preview below the table
_COLUMN_PX, _IGNORED_PX = 128, 96
_FILE_PX = 280  # greatest width of the choice of a file
_MOST_READINGS = 5


class RowsCard(Card):
    """Shows the rows of one file at a time, and what the model learns of the chosen one.

    Args:
        client: connection to the engine.
        bench: workbench with the recipe.

    Attributes:
        columns_chosen: signal with the recipe's `data.columns` that say what was chosen; empty: recognize them again.
        found: signal without arguments, emitted when the columns of the file are here.
    """

    columns_chosen = Signal(list)
    found = Signal()

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(tr("Rows"), icon_name="runs")
        self._bench = bench
        self._columns: FileColumns | None = None
        self._roles: dict[str, str] = {}
        self._version: object = None
        self.rows = DataRowsModel(self)
        self.pages = RowPages(client, bench, self.rows, self)
        self.preview = RowPreview(client, bench)
        self.header = RoleHeader(self)
        self.table = self._make_table()
        self.files = ShorteningBox(by_content=True)
        self.files.setAccessibleName(tr("File whose rows are shown"))
        self.files.setMaximumWidth(_FILE_PX)  # a long name is in its tooltip
        self.files.activated.connect(lambda at: self.open_file(self.files.itemData(at)))
        self.again = quiet(tr("Recognize it again"), lambda: self.columns_chosen.emit([]))
        self.corner.addWidget(self.again)
        self.corner.addWidget(self.files)
        self.reading = body("", "muted")
        self._ways = FlowLayout(UNIT, UNIT // 2)
        self._filter = body("")
        self._show_all = secondary(tr("Show all rows"), self.show_all)
        self._filter.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._filtered = row(self._filter, self._show_all)
        self._count = caption("")
        self._place_widgets()
        self.pages.columns_found.connect(self._columns_here)
        self.pages.page_found.connect(self._page_here)
        self.pages.failed.connect(self._failed)
        self.header.role_chosen.connect(self._choose_role)
        self.table.room_changed.connect(self._fit_columns)

    def show_files(self, files: Sequence[str], version: object) -> None:
        """Offer the files to choose from, and show the first one unless one of them is shown.

        Args:
            files: names of the files, as facts name them.
            version: value that differs once the content of a file, or how it is decoded, does.
        """
        if [self.files.itemData(at) for at in range(self.files.count())] != list(files):
            self.files.clear()
            for file in files:
                self.files.addItem(Path(file).name, file)
                self.files.setItemData(self.files.count() - 1, file, Qt.ItemDataRole.ToolTipRole)
            self.files.setVisible(len(files) > 1)
        if self.pages.file not in files:
            self.open_file(files[0])
        elif version != self._version:
            self.open_file(self.pages.file)
        self._version = version

    def open_file(self, file: str) -> None:
        """Show a file's rows from the first one."""
        self.files.setCurrentIndex(max(self.files.findData(file), 0))
        self.files.setToolTip(self.files.currentText())
        self._empty()
        self.pages.open(file)

    def forget(self) -> None:
        """Show nothing, because there are no files, or others."""
        self.pages.close()
        self.files.clear()
        self._empty()
        self.hide()

    def _empty(self) -> None:
        self._columns = None
        self._filtered.hide()
        self._count.clear()
        self.header.show_columns([])
        self.rows.begin([])
        self.preview.show_row(None)

    def show_places(self, places: Sequence[RowPlace], count: int, says: str) -> None:
        """Show some rows in place of the file.

        Args:
            places: the rows, or the first of them.
            count: number of all rows that are meant.
            says: sentence that says why these.
        """
        shown = plural(len(places), "row")
        if count > len(places):
            shown = tr("The first {shown} of {count:,}").format(shown=len(places), count=count)
        self._filter.setText(f"{shown}: {says}")
        self._filtered.show()
        self.pages.show_places(places)

    def show_all(self) -> None:
        """Show all rows of the file again."""
        self._filtered.hide()
        self.pages.show_all()

    def refresh(self) -> None:
        """Show how the rows are read by the recipe as it is now."""
        if self._columns is None:
            return
        pairs, reading = meanings_of(self._bench.recipe.data.columns), self._recognized()
        self._roles = roles_of(self._meanings())
        self.again.setVisible(bool(pairs) and not self._columns.question)
        self._show_reading(reading, chosen=bool(pairs))
        self._show_roles()
        self.preview.refresh()

    @property
    def is_open(self) -> bool:
        """Whether a person has to say what the columns mean."""
        return self._columns is not None and bool(missing_roles(self._roles))

    def _recognized(self) -> ColumnReading | None:
        """Return the reading that the engine uses by itself; None where it asks."""
        shape = self._bench.recipe.data.shape
        if self._columns is None or (shape == "auto" and self._columns.question):
            return None
        return next((one for one in self._columns.readings if shape in ("auto", one.shape)), None)

    def _meanings(self) -> dict[str, str]:
        """Return meaning to column as the rows are read now; what the recipe does not say is recognized."""
        pairs, reading = meanings_of(self._bench.recipe.data.columns), self._recognized()
        if reading is not None and (not pairs or missing_roles(roles_of(pairs))):
            return {**reading.columns, **pairs}
        return pairs

    def _columns_here(self, found: FileColumns) -> None:
        self._columns = found
        self.show()
        self.header.show_columns(list(found.columns))
        self.refresh()
        self.found.emit()

    def _page_here(self, exact: bool) -> None:
        total = self.rows.rowCount()
        rows = plural(total, "row") if exact else tr("about {rows}").format(rows=plural(total, "row"))
        self._count.setText(rows)
        self.header.show_columns(self.rows.columns)
        self._show_roles()
        if not self.table.currentIndex().isValid():
            self.table.setCurrentIndex(self.rows.index(0, 0))
        elif self.preview.row is None:
            self._current_changed(self.table.currentIndex())

    def _failed(self, failure: Failure) -> None:
        self._say(failure.what, "error")
        clear(self._ways)
        if self._columns is None:
            self.setVisible(self.files.count() > 1)  # the page tells the problem of a single file

    def _current_changed(self, current: QModelIndex, _before: QModelIndex | None = None) -> None:
        line = self.rows.line(current.row()) if current.isValid() else None
        if line != self.preview.row:
            self.preview.show_row(line)

    def _choose_role(self, column: str, role: str) -> None:
        self._roles = with_role(self._roles, column, role)
        if missing_roles(self._roles):
            self._show_roles()
            return
        self.columns_chosen.emit(column_pairs(self._roles, self._meanings()))

    def _show_roles(self) -> None:
        missing = missing_roles(self._roles)
        self.header.show_roles(self._roles, is_sure=not missing)
        self._fit_columns()
        self.rows.set_ignored([] if missing else [name for name in self.rows.columns if name not in self._roles])
        if missing:
            roles = sentence_list([role_text(role) for role in missing])
            if self._roles:
                self._say(tr("Still to choose: {roles}.").format(roles=roles), "warning")

    def _show_reading(self, reading: ColumnReading | None, *, chosen: bool) -> None:
        """Say how the rows are read, or offer the possible readings."""
        clear(self._ways)
        if chosen or (reading is not None and not missing_roles(self._roles)):
            reading_text = tr("you said")
            if not chosen and reading is not None:
                reading_text = f"{shape_text(reading.shape)} ({confidence_text(reading.confidence)})"
            self._say(tr("Read as {reading}. A chip on a column changes its role.").format(reading=reading_text))
            return
        readings = self._columns.readings[:_MOST_READINGS] if self._columns is not None else []
        self._say(tr("What do the columns mean? Choose a reading, or each column's role by its chip."), "warning")
        for one in readings:
            pairs = [f"{meaning}={column}" for meaning, column in one.columns.items()]
            button = secondary(f"{one.says[:1].upper()}{one.says[1:]}", partial(self.columns_chosen.emit, pairs))
            button.setToolTip(shape_text(one.shape))
            self._ways.addWidget(button)

    def _say(self, text: str, tone: str = "muted") -> None:
        self.reading.setText(text)
        self.reading.setProperty("look", tone)
        self.reading.style().polish(self.reading)

    def _make_table(self) -> _RowsTable:
        table = _RowsTable()
        table.setModel(self.rows)
        table.setHorizontalHeader(self.header)
        table.setItemDelegate(TextColorDelegate(table))
        table.setAccessibleName(tr("Rows of the data"))
        table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        table.setShowGrid(False)
        table.setWordWrap(True)
        table.setTextElideMode(Qt.TextElideMode.ElideRight)
        table.setTabKeyNavigation(False)
        table.setCornerButtonEnabled(False)
        numbers = table.verticalHeader()
        numbers.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        numbers.setDefaultSectionSize(scaled(_ROW_PX))
        numbers.setHighlightSections(False)
        numbers.setSectionsClickable(False)
        table.selectionModel().currentRowChanged.connect(self._current_changed)
        return table

    def _place_widgets(self) -> None:
        left = QWidget()
        fill(QVBoxLayout(left), (self.table, 1), self._count, spacing_px=UNIT // 2)
        left.setFixedHeight(scaled(_HEIGHT_PX))
        for widget, width in ((left, _TABLE_PX), (self.preview, _PREVIEW_PX)):
            widget.setMinimumWidth(width)
            widget.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        fill(
            self.body,
            self.reading,
            self._ways,
            self._filtered,
            columns_layout((left, self.preview), GAP_PX, line_px=UNIT, even=True, fill=True),
        )
        self.hide()
        self.again.hide()
        self.files.hide()
        self._filtered.hide()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Make the preview lower where it is below the table."""
        super().resizeEvent(event)
        beside = self.contentsRect().width() - 2 * GAP_PX >= _TABLE_PX + _PREVIEW_PX + GAP_PX
        self.preview.setFixedHeight(scaled(_HEIGHT_PX if beside else _LOW_PX))

    def _fit_columns(self) -> None:
        """Share the table's width among its columns, less for those that are ignored; many scroll sideways."""
        if self.header.was_resized:
            return
        names = self.rows.columns
        counted = [name for name in names if name in self._roles] or names
        ignored = scaled(_IGNORED_PX)
        left = self.table.viewport().width() - ignored * (len(names) - len(counted))
        for place, name in enumerate(names):
            wide = max(left // len(counted), scaled(_COLUMN_PX))
            self.header.resizeSection(place, wide if name in counted else ignored)


class _RowsTable(QTableView):
    """A table that tells when its columns have another width to share.

    Attributes:
        room_changed: signal without arguments, emitted with every size of what scrolls: the table's own size, a scroll
            bar that comes or goes, and the width of the row numbers change it.
    """

    room_changed = Signal()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Tell that the room changed."""
        super().resizeEvent(event)
        self.room_changed.emit()
