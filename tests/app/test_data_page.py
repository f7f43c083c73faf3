import pytest
from app import page_facts as facts
from app.test_hardware_page import words

from burnish_engine.contract.recipe_file import parse_recipe

pytestmark = pytest.mark.gui


@pytest.fixture
def page(window):
    window.go_to("data")
    return window.page("data")


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "support.jsonl"
    made.write_text('{"text": "a"}\n', encoding="utf-8")
    return str(made)


def test_it_says_what_may_be_dropped(page):
    assert "Drop your dataset anywhere" in words(page)
    assert page.status == "empty"
    assert not page.primary.isEnabled()


def test_dropped_files_are_inspected_and_explained(qtbot, answers, window, page, bench, file):
    answers.result("inspect", dataset=facts.dataset())
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "done")
    assert parse_recipe(answers.asked("inspect")[0]["recipe"]).data.files == [file]
    qtbot.waitUntil(lambda: "38 rows are exact copies" in words(page))
    shown = words(page)
    assert "1,102 rows to learn from, 58 held out." in shown
    assert "40 rows left out: the assistant's reply is empty (rows 17, 93, 141, 288, 301 ...)" in shown
    assert "7 rows are cut at 1,024" in shown
    assert page.facts.learned.text == "62 %"
    assert "Cause: It waits" in page.rows.view.toPlainText()


def test_progress_is_shown_and_can_be_canceled(qtbot, answers, window, page, file):
    answers.set("inspect", {"type": "progress", "what": "Reading", "done": 500, "total": 1000}, {"hold": True})
    window.take([file])
    qtbot.waitUntil(lambda: "Reading  50 %" in words(page))
    assert page.status == "busy"
    page._busy.cancel.emit()
    assert page.status == "ready"


def test_a_failure_stays_until_the_files_change(qtbot, answers, window, page, bench, file):
    answers.failure("inspect", "No known shape fits.", "Name a column text.", 11)
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "attention")
    assert page.shown_banner.what == "No known shape fits."
    assert not page.primary.isEnabled()
    answers.result("inspect", dataset=facts.dataset())
    page._remove(file)
    assert bench.data_files == []
    assert page.shown_banner is None


def test_rows_can_be_leafed_through(qtbot, answers, window, page, file):
    answers.result("inspect", dataset=facts.dataset(train_rows=2))
    preview = {"row": 2, "rows": 2, "tokens": 12, "pieces": [["Second", True]], "source": "support.jsonl:9"}
    answers.result("preview", preview=preview)
    # Setting one method keeps the others.
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "done")
    assert page.rows.next.isEnabled()
    assert not page.rows.previous.isEnabled()
    page.rows.next.click()
    qtbot.waitUntil(lambda: page.rows.view.toPlainText() == "Second")
    assert answers.asked("preview")[0]["row"] == 2
    assert not page.rows.next.isEnabled()
    assert page.rows.previous.isEnabled()


def test_a_pasted_path_is_checked_before_it_is_used(qtbot, page, bench, file, tmp_path):
    page.path.setText(str(tmp_path / "no.jsonl"))
    page._take_path()
    assert "There is no file" in page.shown_banner.what
    page.path.setText(f'"{file}"')
    page._take_path()
    assert bench.data_files == [file]


def test_held_out_rows_come_from_a_share_or_a_file(qtbot, answers, window, page, bench, file):
    window.take([file])
    assert "5 % of the rows" in words(page)
    page._use_validation([file])
    assert bench.validation_files == [file]
    assert file in page._held_out_words.text()
    page._share.click()
    assert bench.validation_files == []


def test_the_sample_works_without_any_file_of_one_s_own(qtbot, answers, page, bench):
    answers.result("inspect", dataset=facts.dataset())
    page._take_sample()
    assert bench.data_files[0].endswith("bench-notes.train.jsonl")
    assert bench.validation_files[0].endswith("bench-notes.heldout.jsonl")
    qtbot.waitUntil(lambda: page.status == "done")


def test_what_was_found_is_there_again_after_a_restart(qtbot, answers, window, page, bench, file, client):
    answers.result("inspect", dataset=facts.dataset())
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "done")
    bench.save()
    again = type(page)(client, type(bench)())
    qtbot.addWidget(again)
    assert again.status == "done"
    assert "1,102 rows to learn from" in words(again)
    asked = len(answers.asked("inspect"))
    again.shown()
    qtbot.wait(100)
    assert len(answers.asked("inspect")) == asked
