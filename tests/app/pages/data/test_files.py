"""Files of the page Data: dropped, pasted, held out, mixed; and what was found in them."""

from pathlib import Path

import pytest
from app.facts import data_facts as facts
from app.pages.test_hardware import words
from PySide6.QtCore import QPointF
from PySide6.QtWidgets import QApplication, QPushButton

from burnish_app.widgets.basic.drop import typed_path
from burnish_engine.contract.facts.data_report import FileStatus
from burnish_engine.contract.recipe.recipe_file import parse_recipe

pytestmark = pytest.mark.gui


@pytest.mark.full
def test_it_says_what_may_be_dropped(page):
    assert "Drop your dataset anywhere" in words(page)
    assert page.status == "empty"
    assert not page.primary.isEnabled()


@pytest.mark.full
def test_dropped_files_are_inspected_and_explained(qtbot, answers, window, page, bench, file):
    answers.result("inspect", dataset=facts.dataset())
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "done")
    assert parse_recipe(answers.asked("inspect")[0]["recipe"]).data.files == [file]
    qtbot.waitUntil(lambda: "38 rows are the same as an earlier row." in words(page))
    shown = words(page)
    assert "1,102 rows to learn from, 58 held out." in shown
    assert "40 rows left out: the assistant's reply is empty" in shown
    assert "Lines 17, 93, 141, 288, 301, 412 ... of support.jsonl" in shown
    assert (page.facts.learned.text, page.facts.lost.text) == ("62 %", "0.9 %")
    assert page.lengths.cut.text().startswith("Cut at 1,024: 7 rows, 1.0 %")


def test_progress_is_shown_and_can_be_canceled(qtbot, answers, window, page, file):
    answers.set("inspect", {"type": "progress", "what": "Reading", "done": 500, "total": 1000}, {"hold": True})
    window.take([file])
    qtbot.waitUntil(lambda: "Reading  50 %" in words(page))
    assert page.status == "busy"
    page.files.busy.cancel.emit()
    assert page.status == "ready"


@pytest.mark.full
def test_a_failure_stays_until_the_files_change(qtbot, answers, window, page, bench, file):
    answers.failure("inspect", "No known shape fits.", "Name a column text.", 11)
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "attention")
    assert page.shown_banner.what == "No known shape fits."
    assert not page.primary.isEnabled()
    assert "recipe" not in page.primary.text(), "it says what comes before that"
    answers.result("inspect", dataset=facts.dataset())
    page.files.removed.emit(file)
    assert bench.data_files == []
    assert page.shown_banner is None


def test_more_dropped_files_are_added_aloud_and_can_take_the_place_of_the_others(
    qtbot, answers, window, page, bench, file, tmp_path
):
    answers.result("inspect", dataset=facts.dataset())
    other = str(tmp_path / "other.jsonl")
    Path(other).write_text("{}\n")
    window.take([file])
    window.take([other])
    assert bench.data_files == [file, other]
    assert "other.jsonl" in page.shown_banner.what
    press(page, "Use only other.jsonl")
    assert bench.data_files == [other]


def test_one_bad_file_does_not_stop_the_others(qtbot, answers, readable, window, page, bench, file, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    problem = 'bad.jsonl is no JSON. Or set data.broken_rows = "drop".'
    status = [
        FileStatus(file=file, entry=0, rows=1204),
        FileStatus(file=str(bad), entry=1, problem="bad.jsonl is no JSON.", remedy=problem),
    ]
    answers.result("inspect", dataset=facts.dataset(report=facts.dataset_report(files=status)))
    bench.set_data_files([file, str(bad)])
    qtbot.waitUntil(lambda: "bad.jsonl is no JSON." in words(page.files))
    assert "1,204 rows" in words(page.files)
    qtbot.waitUntil(page.findings.isVisible)
    qtbot.waitUntil(lambda: page.status == "attention")
    press(page.files, "Continue without such rows")
    assert bench.recipe.data.broken_rows == "drop"
    qtbot.waitUntil(lambda: page.status == "attention")
    press(page.files, "Look at it")
    qtbot.waitUntil(lambda: answers.asked("columns")[-1]["file"] == str(bad))
    asked = len(answers.asked("inspect"))
    press(page, "Leave out 1 file and continue")
    assert bench.data_files == [file]
    qtbot.waitUntil(lambda: window.shown_key == "recipe")
    qtbot.waitUntil(lambda: len(answers.asked("inspect")) > asked)


@pytest.mark.full
def test_files_are_dropped_beside_the_others_or_in_their_place(qtbot, window, page, bench, file, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "b"}\n', encoding="utf-8")
    window.take([file])
    overlay = window._drop_overlay
    overlay.cover(choice=True)
    places = (QPointF(10, 10), QPointF(window.width() - 10, 10))
    assert [overlay.is_instead(place) for place in places] == [False, True]
    overlay.cover()
    assert not overlay.is_instead(places[1]), "nothing is there that could be replaced"
    overlay.hide()
    window.take([str(other)], instead=True)
    assert bench.data_files == [str(other)]
    assert page.shown_banner is None


def test_a_pasted_path_is_checked_before_it_is_used(qtbot, page, bench, file, tmp_path):
    page.files.path.setText(str(tmp_path / "no.jsonl"))
    page._take_path()
    assert "There is no file" in page.shown_banner.what
    page.files.path.setText(f'"{file}"')
    page._take_path()
    assert bench.data_files == [file]


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        (" /data/a.jsonl ", "/data/a.jsonl"),
        ('"/data/my rows.jsonl"', "/data/my rows.jsonl"),
        ("file:///data/my%20rows.jsonl", "/data/my rows.jsonl"),
        ("~/a.jsonl", str(Path.home() / "a.jsonl")),
        ("~nobody-of-this-name/a.jsonl", str(Path.cwd() / "~nobody-of-this-name/a.jsonl")),
        (' "" ', ""),
        ("hf://datasets/ada/parcels@main", "hf://datasets/ada/parcels@main"),
        ("https://somewhere.example/rows.jsonl", "https://somewhere.example/rows.jsonl"),
    ],
)
def test_a_path_is_taken_however_it_was_pasted(typed, path):
    assert typed_path(typed) == path


@pytest.mark.full
def test_held_out_rows_come_from_a_share_or_a_file(qtbot, answers, window, page, bench, file):
    window.take([file])
    assert "5 % of the rows" in words(page)
    page._use_validation([file])
    assert bench.validation_files == [file]
    lines = page.held_out.files
    assert [lines.itemAt(at).widget().text() for at in range(lines.count())] == [file]
    assert "5 % of the rows" not in words(page)
    page.held_out.share.click()
    assert bench.validation_files == []
    assert "5 % of the rows" in words(page)


@pytest.mark.full
def test_the_sample_works_without_any_file_of_one_s_own(qtbot, answers, page, bench):
    answers.result("inspect", dataset=facts.dataset())
    page._take_sample()
    assert bench.data_files[0].endswith("bench-notes.train.jsonl")
    assert bench.validation_files[0].endswith("bench-notes.heldout.jsonl")
    qtbot.waitUntil(lambda: page.status == "done")


@pytest.mark.full
def test_what_was_found_is_there_again_after_a_restart(qtbot, answers, answered, window, page, bench, file, client):
    answers.result("inspect", dataset=facts.dataset())
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "done")
    bench.save()
    again = type(page)(client, type(bench)())
    qtbot.addWidget(again)
    qtbot.waitUntil(lambda: again.status == "done")
    assert "1,102 rows to learn from" in words(again)
    asked = len(answers.asked("inspect"))
    again.shown()
    answered()
    assert len(answers.asked("inspect")) == asked


def press(page, text):
    """Click the first visible button that says so."""
    QApplication.processEvents()  # what was made just now comes into sight
    next(button for button in page.findChildren(QPushButton) if button.text() == text and button.isVisible()).click()


def test_files_are_mixed_by_weights_that_stay_with_them(qtbot, answers, inspected, bench, file, tmp_path):
    page = inspected
    assert page.files.weights == [], "one file needs none"
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "a"}\n', encoding="utf-8")
    page.take_drop([str(other)])
    page.files.weights[1].setValue(0.25)
    assert bench.recipe.data.weights == [1.0, 0.25]
    assert parse_recipe(bench.recipe_toml) == bench.recipe
    page.files.removed.emit(file)
    assert (bench.data_files, bench.recipe.data.weights) == ([str(other)], [0.25])
    page.take_drop([file])
    assert bench.recipe.data.weights == [0.25, 1.0]
    page.files.weights[0].setValue(1.0)
    assert bench.recipe.data.weights == []
