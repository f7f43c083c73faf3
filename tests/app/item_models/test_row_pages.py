"""A file's rows are read a page at a time: what is looked at now comes before what was scrolled past."""

import pytest
from app.facts import data_facts as facts
from app.facts.data_facts import DATA_FILE
from PySide6.QtCore import QObject

from burnish_app.item_models.data_rows import PAGE_ROWS, DataRowsModel
from burnish_app.item_models.row_pages import RowPages
from burnish_app.state.workbench import Workbench

pytestmark = pytest.mark.gui
TOTAL = 100_000


@pytest.fixture
def model(held):
    """A table whose file is open, with its first page."""
    made = DataRowsModel()
    held.start()
    made.owner = QObject()
    made.pages = RowPages(held, Workbench(), made, made.owner)
    made.pages.open(DATA_FILE)
    held.answer("columns", columns=facts.chat_columns())
    read(held)
    return made


def read(held):
    """Answer the page that is read."""
    held.answer("rows", rows=facts.row_page(held.requests("rows")[-1]["start"], total=TOTAL))


def test_pages_that_were_scrolled_past_are_given_up_and_the_last_one_comes_next(held, model):
    for page in range(1, 7):
        model.index(page * PAGE_ROWS, 0).data()
    for _ in range(4):
        read(held)
    assert [request["start"] // PAGE_ROWS for request in held.requests("rows")] == [0, 1, 6, 5, 4]
    assert not held.open("rows")
    model.index(2 * PAGE_ROWS, 0).data()
    assert held.requests("rows")[-1]["start"] == 2 * PAGE_ROWS, "it is wanted again when it is looked at again"


@pytest.mark.parametrize(("file", "columns"), [(DATA_FILE, 3), ("/data/other.jsonl", 1)])
def test_rows_of_a_finding_have_the_columns_of_their_own_file(held, model, file, columns):
    found = facts.row_page(7, 1, total=8, file=file, cells={"text": "a"} if columns == 1 else None)
    model.pages.show_places([])
    held.answer("rows", rows=found.model_copy(update={"total": 1}))
    assert (model.rowCount(), model.columnCount()) == (1, columns)
    model.pages.show_all()
    read(held)
    assert (model.rowCount(), model.columnCount()) == (TOTAL, 3)
