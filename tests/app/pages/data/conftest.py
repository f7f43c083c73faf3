"""The page Data, a file for it, and an engine that reads it."""

import pytest
from app.facts import data_facts as facts


@pytest.fixture
def page(window):
    """The page with its details open."""
    window.go_to("data")
    made = window.page("data")
    made.details.open()
    return made


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "support.jsonl"
    made.write_text('{"text": "a"}\n', encoding="utf-8")
    return str(made)


@pytest.fixture
def readable(answers):
    """An engine that knows the columns and rows of the file, and renders any row."""
    answers.result("columns", columns=facts.chat_columns())
    answers.result("rows", rows=facts.row_page())
    answers.result("preview", preview=facts.preview())


@pytest.fixture
def inspected(qtbot, answers, window, page, file):
    """The page with an inspected file."""
    answers.result("inspect", dataset=facts.dataset())
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "done")
    return page
