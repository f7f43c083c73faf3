"""The model of a file's rows: it wants the pages that are looked at, once, and keeps the last ones."""

import pytest
from app.facts import data_facts as facts
from PySide6.QtCore import Qt

from burnish_app.item_models import data_rows
from burnish_app.item_models.data_rows import PAGE_ROWS, DataRowsModel

pytestmark = pytest.mark.gui


@pytest.fixture
def model(qapp):
    made = DataRowsModel()
    made.asked = []
    made.wanted.connect(made.asked.append)
    made.begin(["messages", "ticket"])
    made.set_page(0, facts.row_page().rows, 100_000)
    return made


@pytest.mark.full
def test_it_is_a_model(model, qtmodeltester):
    qtmodeltester.check(model)


def test_a_page_is_wanted_once_when_it_is_looked_at(model):
    assert model.rowCount() == 100_000
    assert model.index(7, 1).data() == "4718"
    assert model.asked == []
    far = model.index(99_950, 0)
    assert far.data() == far.data() == "..."
    assert model.asked == [999]
    assert model.headerData(99_950, Qt.Orientation.Vertical) == "99,951"
    model.set_page(999, facts.row_page(99_900, total=100_000).rows, 100_000)
    assert far.data().startswith("user:")
    assert model.headerData(99_950, Qt.Orientation.Vertical) == "99,951"
    assert model.asked == [999]


def test_old_pages_are_given_up_and_wanted_again(model, monkeypatch):
    monkeypatch.setattr(data_rows, "_KEPT_PAGES", 2)
    for page in (1, 2):
        model.set_page(page, facts.row_page(page * PAGE_ROWS, total=100_000).rows, 100_000)
    assert model.line(0) is None
    model.index(0, 0).data()
    model.forget(0)
    model.index(0, 0).data()
    assert model.asked == [0, 0]


def test_the_number_of_rows_becomes_exact(model, qtbot):
    with qtbot.waitSignal(model.rowsRemoved):
        model.set_page(0, facts.row_page().rows, 98_000)
    with qtbot.waitSignal(model.rowsInserted):
        model.set_page(0, facts.row_page().rows, 99_000)
    assert model.rowCount() == 99_000
    model.set_page(0, facts.row_page().rows, 10**12)
    assert model.rowCount() == data_rows.MOST_ROWS


def test_rows_that_cannot_be_read_and_columns_that_do_not_count_look_otherwise(model):
    broken = facts.row_page().rows[0].model_copy(update={"problem": "No JSON.", "cells": {}})
    model.set_page(0, [broken, *facts.row_page().rows[1:]], 100)
    assert (model.index(0, 0).data(), model.index(0, 1).data()) == ("No JSON.", "")
    assert model.index(0, 1).data(Qt.ItemDataRole.UserRole) == "warning"
    model.set_ignored(["ticket"])
    assert model.index(1, 1).data(Qt.ItemDataRole.UserRole) == "faint"
    assert model.index(1, 0).data(Qt.ItemDataRole.UserRole) is None
