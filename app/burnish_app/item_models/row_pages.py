"""Fetches the rows of a data file for its table, a page at a time and only those that are looked at."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.item_models.data_rows import PAGE_ROWS, DataRowsModel
from burnish_app.state.workbench import Workbench
from burnish_engine.contract.facts.data_report import FileColumns, RowPlace
from burnish_engine.contract.serve.data_requests import ColumnsRequest, RowsRequest
from burnish_engine.contract.serve.messages import Failure, Result

_FEW = 3  # pages that wait while one is read; whoever scrolls on does not look at older ones


class RowPages(QObject):
    """Fills a table model with the rows of one file, or with some rows of any files.

    Args:
        client: connection to the engine.
        bench: workbench with the recipe.
        model: table model to fill.
        parent: parent in Qt's object tree.

    Attributes:
        columns_found: signal with the `FileColumns` of the file.
        page_found: signal with whether the number of rows is exact, emitted when a page is shown.
        failed: signal with the `Failure` that says why the file cannot be read.
    """

    columns_found = Signal(object)
    page_found = Signal(bool)
    failed = Signal(object)

    def __init__(self, client: EngineClient, bench: Workbench, model: DataRowsModel, parent: QObject) -> None:
        super().__init__(parent)
        self._bench, self._model = bench, model
        self._file = ""
        self._columns: list[str] = []
        self._waiting: list[int] = []
        self._heading = Question(client, self, self._columns_here, self._failed)
        self._reading = Question(client, self, self._page_here, self._failed)
        self._finding = Question(client, self, self._places_here, self._failed)
        model.wanted.connect(self._want)

    @property
    def file(self) -> str:
        """Name of the file; empty: none is open."""
        return self._file

    def open(self, file: str) -> None:
        """Read a file from its beginning.

        Args:
            file: name of a file, as facts name it.
        """
        self.stop()
        self._file = file
        self._heading.ask(ColumnsRequest, recipe=self._bench.recipe_toml, file=file)

    def show_places(self, places: Sequence[RowPlace]) -> None:
        """Show some rows in place of the file; `show_all` shows the file again."""
        self._stop_reading()
        found = [place.model_dump() for place in places]
        self._finding.ask(RowsRequest, recipe=self._bench.recipe_toml, places=found)

    def show_all(self) -> None:
        """Show the file's rows."""
        self._stop_reading()
        self._model.begin(self._columns)
        self._want(0)

    def close(self) -> None:
        """Read no file any more."""
        self.stop()
        self._file = ""

    def stop(self) -> None:
        """Give up what is being read."""
        self._stop_reading()
        self._heading.drop()

    def _stop_reading(self) -> None:
        self._reading.drop()
        self._finding.drop()
        self._waiting.clear()

    def _columns_here(self, result: Result) -> None:
        if result.columns is not None:
            found: FileColumns = result.columns
            self._columns = list(found.columns)
            self._model.begin(self._columns)
            self.columns_found.emit(found)
            self._want(0)

    def _want(self, page: int) -> None:
        """Read a page, after the one that is being read."""
        if page not in self._waiting:
            self._waiting.append(page)
        while len(self._waiting) > _FEW:
            self._model.forget(self._waiting.pop(0))
        if not (self._reading.is_waiting or self._finding.is_waiting):
            self._read()

    def _read(self) -> None:
        page = self._waiting.pop()  # the one that was looked at last
        start, count = page * PAGE_ROWS, PAGE_ROWS
        recipe = self._bench.recipe_toml
        self._reading.ask(RowsRequest, about=page, recipe=recipe, file=self._file, start=start, count=count)

    def _page_here(self, result: Result) -> None:
        if result.rows is None:
            return
        self._model.set_page(self._reading.about, result.rows.rows, result.rows.total)
        self.page_found.emit(result.rows.exact)
        if self._waiting and not self._reading.is_waiting:
            self._read()

    def _places_here(self, result: Result) -> None:
        if result.rows is None:
            return
        others = [line for line in result.rows.rows if line.file != self._file]
        names = dict.fromkeys(name for line in result.rows.rows for name in line.cells)
        self._model.begin(list(names) if others else self._columns)
        for page in range(-(-len(result.rows.rows) // PAGE_ROWS)):
            rows = result.rows.rows[page * PAGE_ROWS : (page + 1) * PAGE_ROWS]
            self._model.set_page(page, rows, result.rows.total)
        self.page_found.emit(True)

    def _failed(self, failure: Failure) -> None:
        self.stop()
        self.failed.emit(failure)
