"""The Data page over the real engine: what is ambiguous is asked, findings are acted on, rows are read and rendered."""

import json

import pytest
from app.measures.handler_budget import assert_within_budget
from app.pages.data.test_files import press
from app.pages.test_hardware import words
from app.real.studio import make_tiny
from PySide6.QtWidgets import QApplication, QPushButton

from burnish_engine.contract.recipe.recipe_file import parse_recipe

pytestmark = [pytest.mark.gui, pytest.mark.slow, pytest.mark.measured]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory, shared_folder):
    """Folder of a tiny model and an ambiguous data file with copies and an overlong row."""
    folder = make_tiny(tmp_path_factory.mktemp("tiny"), shared_folder)
    rows = [
        {
            "question": f"What is lamp {n}?",
            "prompt": f"Explain lamp {n}.",
            "answer": f"Lamp {n} is a lamp — ünique {n}.",
        }
        for n in range(60)
    ]
    rows += rows[:4]
    (folder / "faq.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


@pytest.mark.full
def test_from_a_question_to_cleaned_rows(studio, tiny):
    window = studio.open()
    bench = window.bench
    bench.set_model_path(str(tiny / "model"))
    studio.drop(window, tiny / "faq.jsonl")
    studio.wait(lambda: window.shown_key == "data")
    page = window.page("data")
    studio.wait(lambda: page.shown_banner is not None and "It is not clear what" in page.shown_banner.what)
    assert bench.dataset is None
    assert "faq.jsonl" in page.shown_banner.what
    ways = [button for button in page.rows.findChildren(QPushButton) if "asked, answer replied" in button.text()]
    assert len(ways) == 2
    studio.press(next(button for button in ways if "Question" in button.text()))
    studio.wait(lambda: bench.dataset is not None)
    assert "What is lamp 0?" in bench.dataset.report.readings[0].example["prompt"]
    studio.wait(lambda: "What is lamp 0?" in page.rows.preview.view.toPlainText())
    another_role_is_rendered_at_once(studio, page, bench)
    leave_out_copies(studio, page, bench)
    suggestion_reads_it_the_same(studio, window, bench)


def another_role_is_rendered_at_once(studio, page, bench):
    chips = page.rows.header.chips
    chips["question"].chosen.emit("question", "context")
    assert "Still to choose" in words(page.rows)
    chips["prompt"].chosen.emit("prompt", "prompt")
    studio.wait(lambda: "Explain lamp 0." in page.rows.preview.view.toPlainText())
    assert "What is lamp 0?" in page.rows.preview.view.toPlainText(), "the context"
    chips["prompt"].chosen.emit("prompt", "")
    chips["question"].chosen.emit("question", "prompt")
    studio.wait(lambda: "Explain lamp 0." not in page.rows.preview.view.toPlainText())
    studio.wait(lambda: bench.dataset is not None)
    assert bench.recipe.data.columns == ["completion=answer", "prompt=question"]


def leave_out_copies(studio, page, bench):
    finding = next(one for one in bench.dataset.report.findings if one.kind == "duplicates")
    studio.press(page.details.button)
    assert finding.rows == 4
    studio.wait(lambda: "Lines 61, 62, 63, 64 of faq.jsonl" in words(page))
    used = bench.dataset.report.used_rows
    studio.press(next(one for one in page.findings.findChildren(QPushButton) if one.accessibleName().endswith("row.")))
    studio.wait(lambda: page.rows.table.model().rowCount() == 4)
    assert "What is lamp 0?" in page.rows.table.model().index(0, 0).data()
    studio.wait(lambda: page.rows.preview.row is not None and page.rows.preview.row.row == 61)
    press(page, "Show all rows")
    studio.wait(lambda: page.rows.table.model().rowCount() == 64)
    press(page, "Leave out copies")
    studio.wait(lambda: bench.dataset is not None and bench.dataset.report.used_rows == used - 4)
    studio.wait(lambda: "4 rows left out: the same as an earlier row" in words(page))
    press(page, "Undo")
    studio.wait(lambda: bench.dataset is not None and bench.dataset.report.used_rows == used)


def suggestion_reads_it_the_same(studio, window, bench):
    studio.visit(window, "recipe")
    studio.wait(lambda: bench.suggestion is not None)
    assert bench.recipe.data.columns == ["completion=answer", "prompt=question"]
    window.page("recipe")._take_all()
    assert bench.recipe.data.columns == ["completion=answer", "prompt=question"], "what was said about the data stays"
    assert parse_recipe(bench.recipe_toml) == bench.recipe


@pytest.fixture(scope="module")
def many(tiny):
    """A file of 100,000 rows, a bad file and a small good one."""
    big = tiny / "big.csv"
    lines = "".join(f"What is number {n}?,It is the number {n}.,{n}\n" for n in range(100_000))
    big.write_text(f"frage,antwort,nummer\n{lines}", encoding="utf-8")
    bad = tiny / "bad.jsonl"
    bad.write_text('{"question": "Why?", "answer": "So."}\n{"question": \n', encoding="utf-8")
    good = tiny / "good.csv"
    good.write_text("frage,antwort\nWhy?,Because.\n", encoding="utf-8")
    return big, bad, good


@pytest.mark.full
def test_a_hundred_thousand_rows_are_scrolled_within_the_budget(studio, tiny, many, qapp):
    window = studio.open()
    window.bench.set_model_path(str(tiny / "model"))
    studio.drop(window, many[0])
    studio.wait(lambda: window.shown_key == "data")
    page = window.page("data")
    model, table = page.rows.table.model(), page.rows.table
    studio.wait(lambda: 150_000 > model.rowCount() > 70_000)
    for column, role in (("frage", "prompt"), ("antwort", "reply")):
        page.rows.header.chips[column].chosen.emit(column, role)
    studio.wait(lambda: "It is the number 0." in page.rows.preview.view.toPlainText())

    def scroll(_attempt):
        bar = table.verticalScrollBar()
        for share in range(0, 101, 2):
            bar.setValue(bar.maximum() * share // 100)
            QApplication.processEvents()
        studio.wait(lambda: model.index(model.rowCount() - 1, 0).data() == "What is number 99999?")
        for row in (99_999, 50_000):
            table.selectRow(row)
            studio.wait(lambda at=row: f"It is the number {at}." in page.rows.preview.view.toPlainText())
        bar.setValue(0)
        studio.wait(lambda: model.index(0, 0).data() == "What is number 0?")

    assert_within_budget(qapp, scroll)
    assert model.rowCount() == 100_000
    assert len(model._pages) <= 40, "what was looked at is not kept for ever"


@pytest.mark.full
def test_a_bad_file_is_left_out_and_the_others_are_trained_on(studio, tiny, many):
    window = studio.open()
    bench = window.bench
    bench.set_model_path(str(tiny / "model"))
    studio.drop(window, many[2], many[1])
    studio.wait(lambda: bench.data_files)
    page = window.page("data")
    bench.change_data(columns=["prompt=frage", "completion=antwort"])
    studio.wait(lambda: "bad.jsonl" in words(page.files) and page.status == "attention")
    studio.press(page.primary)
    studio.wait(lambda: window.shown_key == "recipe")
    assert bench.data_files == [str(many[2])]
