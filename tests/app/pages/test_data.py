from pathlib import Path

import pytest
from app import page_facts as facts
from app.pages.test_hardware import words
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QApplication, QPushButton

from burnish_app.widgets.basic.drop import typed_path
from burnish_app.widgets.data.columns_editor import ColumnsEditor
from burnish_engine.contract.facts.data_report import Finding
from burnish_engine.contract.recipe.recipe_file import parse_recipe

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
    qtbot.waitUntil(lambda: "38 rows are the same as an earlier row." in words(page))
    shown = words(page)
    assert "1,102 rows to learn from, 58 held out." in shown
    assert "40 rows left out: the assistant's reply is empty" in shown
    assert "Lines 17, 93, 141, 288, 301, 412 ... of support.jsonl" in shown
    assert "7 rows are cut at 1,024" in shown
    assert (page.facts.learned.text, page.facts.fill.text, page.facts.lost.text) == ("62 %", "91 %", "0.9 %")
    qtbot.waitUntil(lambda: "Cause: It waits" in page.rows.view.toPlainText())


def test_a_reason_is_told_once_and_only_by_the_finding_that_is_of_it(qtbot, answers, window, page, file):
    found = facts.dataset()
    report = found.report.model_copy(
        update={
            "findings": [
                Finding(kind="masks", says="4 rows left out: no reply.", rows=4, dropped="no reply"),
                Finding(kind="control_tokens", says="One row holds not valid JSON at all.", rows=1),
            ]
        }
    )
    dropped = {"no reply": 4, "not valid JSON": 2}
    answers.result("inspect", dataset=found.model_copy(update={"report": report, "dropped": dropped}))
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "done")
    qtbot.waitUntil(lambda: "2 rows left out: not valid JSON" in words(page.findings))
    assert words(page.findings).count("left out: no reply") == 1


def test_progress_is_shown_and_can_be_canceled(qtbot, answers, window, page, file):
    answers.set("inspect", {"type": "progress", "what": "Reading", "done": 500, "total": 1000}, {"hold": True})
    window.take([file])
    qtbot.waitUntil(lambda: "Reading  50 %" in words(page))
    assert page.status == "busy"
    page.files.busy.cancel.emit()
    assert page.status == "ready"


def test_a_failure_stays_until_the_files_change(qtbot, answers, window, page, bench, file):
    answers.failure("inspect", "No known shape fits.", "Name a column text.", 11)
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "attention")
    assert page.shown_banner.what == "No known shape fits."
    assert not page.primary.isEnabled()
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


def test_the_first_rows_are_a_table(qtbot, answers, window, page, file):
    answers.result("columns", columns=facts.file_columns())
    answers.result("inspect", dataset=facts.dataset())
    window.take([file])
    qtbot.waitUntil(page.table.isVisible)
    assert page.table.rows.rowCount() == 20
    assert "customs paper" in page.table.rows.index(0, 0).data()
    assert page.table.rows.headerData(1, Qt.Orientation.Horizontal) == "system_prompt"
    page.files.removed.emit(file)
    assert not page.table.isVisible()


def test_one_bad_file_of_several_can_be_left_out(qtbot, answers, window, page, bench, file, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    answers.failure("inspect", "bad.jsonl holds no rows.", "Look at it.", 11)
    bench.set_data_files([file, str(bad)])
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    answers.result("inspect", dataset=facts.dataset())
    press(page, "Leave out bad.jsonl")
    assert bench.data_files == [file]


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


def test_the_sample_works_without_any_file_of_one_s_own(qtbot, answers, page, bench):
    answers.result("inspect", dataset=facts.dataset())
    page._take_sample()
    assert bench.data_files[0].endswith("bench-notes.train.jsonl")
    assert bench.validation_files[0].endswith("bench-notes.heldout.jsonl")
    qtbot.waitUntil(lambda: page.status == "done")


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


@pytest.fixture
def inspected(qtbot, answers, window, page, file):
    """The page with an inspected file."""
    answers.result("inspect", dataset=facts.dataset())
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "done")
    return page


def test_the_reading_is_shown_and_can_be_changed(qtbot, answers, inspected, bench):
    page = inspected
    assert "Conversations, JSONL  ·  sure" in words(page)
    assert "You answer for a parcel service." in words(page)
    answers.result("columns", columns=facts.file_columns(question=""))
    press(page, "Change ...")
    qtbot.waitUntil(page.columns.editor.isVisible)
    assert not page.columns.headline.isVisible()
    press(page, "Leave it as it is")
    assert page.columns.headline.isVisible()
    assert bench.recipe.data.columns == []
    press(page, "Change ...")
    qtbot.waitUntil(page.columns.editor.isVisible)
    editor = page.columns.editor
    editor._readings.button(1).click()
    assert editor.pairs() == {"prompt": "prompt", "completion": "answer"}
    assert editor._examples["prompt"].text().startswith("Explain to the customer")
    asked = len(answers.asked("inspect"))
    press(page, "Read it so")
    assert (bench.recipe.data.shape, bench.recipe.data.columns) == (
        "prompt_completion",
        ["prompt=prompt", "completion=answer"],
    )
    qtbot.waitUntil(lambda: page.status == "done" and len(answers.asked("inspect")) == asked + 1)
    assert "as you said" in page.columns.headline.text()
    press(page, "Recognize it again")
    assert (bench.recipe.data.shape, bench.recipe.data.columns) == ("auto", [])


def test_what_is_ambiguous_is_asked_in_plain_words(qtbot, answers, window, page, bench, file):
    answers.failure("inspect", "faq.csv can be read in 2 ways.", "Say which.", 11)
    answers.result("columns", columns=facts.file_columns())
    window.take([file])
    qtbot.waitUntil(page.columns.editor.isVisible)
    assert "It is not clear what the columns of faq.csv mean." in page.shown_banner.what
    editor = page.columns.editor
    assert "in 2 ways. Which one is it?" in words(editor)
    assert editor.pairs() == {}, "nothing is guessed"
    assert not editor.use.isEnabled()
    assert "Still to say: what is asked, what is replied." in words(editor)
    editor.shape.setCurrentIndex(editor.shape.findData("text"))
    editor.shape.activated.emit(0)
    assert list(editor.boxes) == ["text"]
    editor._readings.button(0).click()
    answers.result("inspect", dataset=facts.dataset())
    press(page, "Read it so")
    qtbot.waitUntil(lambda: page.status == "done")
    assert bench.recipe.data.columns == ["prompt=question", "completion=answer"]
    assert page.shown_banner is None


def test_a_file_that_could_not_be_read_is_not_offered_the_reading_of_the_one_before(
    qtbot, answers, inspected, tmp_path
):
    page = inspected
    other = tmp_path / "faq.csv"
    other.write_text("question,answer\n", encoding="utf-8")
    answers.failure("inspect", "faq.csv can be read in 2 ways.", "Say which.", 11)
    answers.result("columns", columns=facts.file_columns())
    page._use([str(other)])
    qtbot.waitUntil(page.columns.editor.isVisible)
    assert "Still to say: what is asked, what is replied." in words(page.columns.editor), "of this file's own columns"
    offered = [button.text() for button in page.findChildren(QPushButton) if button.isVisible()]
    assert "Read it so" in offered
    assert "Leave it as it is" not in offered, "there is no reading of this file to leave"


def test_one_column_cannot_mean_two_things(qtbot, theme):
    editor = ColumnsEditor()
    qtbot.addWidget(editor)
    editor.ask(facts.file_columns(), None)
    for box in (editor.boxes["prompt"], editor.boxes["completion"]):
        box.setCurrentIndex(box.findData("answer"))
        box.activated.emit(0)
    assert not editor.use.isEnabled()
    assert "One column has two meanings." in words(editor)


def test_an_action_is_kept_in_the_recipe_and_can_be_undone(qtbot, answers, inspected, bench):
    page = inspected
    assert "Lines 44, 45, 102, 103, 230, 231, 340, 341 ... of support.jsonl" in words(page)
    for text, field, value in (("Leave out copies", "duplicates", "drop"), ("Split them", "overlong", "split")):
        press(page, text)
        assert getattr(bench.recipe.data, field) == value
        qtbot.waitUntil(lambda: page.status == "done")
    assert parse_recipe(answers.asked("inspect")[-1]["recipe"]).data.duplicates == "drop"
    qtbot.waitUntil(lambda: "Copies of earlier rows are left out." in words(page))
    press(page, "Undo")
    assert bench.recipe.data.duplicates == "keep"
    assert bench.recipe.data.overlong == "split", "only that one"
    qtbot.waitUntil(lambda: "Copies of earlier rows are left out." not in words(page.findings))


def test_every_choice_about_rows_can_be_made_without_a_finding(qtbot, inspected, bench):
    page = inspected
    page.findings._fold.click()
    row = page.findings._rows["secrets"]
    assert row._editor.currentText() == "stay"
    row._editor.setCurrentText("are left out")
    assert bench.recipe.data.secrets == "drop"


def test_rows_that_cannot_be_read_offer_to_go_on_without_them(qtbot, answers, window, page, bench, file):
    answers.failure("inspect", "Line 3 is no JSON.", 'Correct it. Or set data.broken_rows = "drop" to go on.', 11)
    window.take([file])
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    answers.result("inspect", dataset=facts.dataset())
    press(page, "Go on without such rows")
    assert bench.recipe.data.broken_rows == "drop"
    qtbot.waitUntil(lambda: page.status == "done")


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


def test_a_template_is_chosen_and_its_checks_are_told(qtbot, inspected, bench):
    page = inspected
    assert "✓  Takes a system message" in words(page)
    assert "!  Roles must alternate" in words(page)
    box = page.template.box
    box.setCurrentIndex(box.findData("chatml"))
    box.activated.emit(0)
    assert bench.recipe.data.template == "chatml"


def test_another_longest_row_is_one_click(qtbot, inspected, bench):
    page = inspected
    assert "cuts 49 rows (4.2 %), 6.4 % of the tokens" in words(page)
    bench.set_recipe(bench.recipe.model_copy(update={"train": bench.recipe.train.model_copy(update={"epochs": 3.0})}))
    press(page, "2,048")
    assert (bench.recipe.data.max_length, bench.recipe.train.micro_batch_tokens) == (2048, 2048)
    bench.change_data(max_length=4096)
    assert bench.recipe.train.micro_batch_tokens == 4096, "a row has to fit into a pass"
    assert parse_recipe(bench.recipe_toml) == bench.recipe


def test_nothing_jumps_while_the_same_files_are_looked_at_again(qtbot, answers, inspected):
    page = inspected
    answers.set("inspect", {"hold": True})
    press(page, "Leave out copies")
    assert page.status == "busy"
    assert page.findings.isVisible()
    assert page.facts.isVisible()


def test_tokens_are_shown_on_demand(qtbot, answers, inspected):
    page = inspected
    pieces = [["Cau", True], ["se", True], [":", True]]
    answers.result("preview", preview={"row": 1, "rows": 9, "tokens": 3, "pieces": pieces, "source": "a"})
    page.rows.tokens.setChecked(True)
    qtbot.waitUntil(lambda: page.rows.view.toPlainText() == "Cause:")
    assert answers.asked("preview")[-1]["tokens"] is True
    tints = grounds(page.rows.view)
    assert tints[0] == tints[2]
    assert tints[3] == tints[4]
    assert len({tints[0], tints[3], tints[5]}) == 3, "neighboring tokens differ"


def test_how_much_of_a_row_is_learned_is_said_with_its_tokens(qtbot, answers, inspected):
    pieces = [["Why", False], ["?", False], [" Be", False], ["cause", True]]
    answers.result("preview", preview={"row": 1, "rows": 9, "tokens": 4, "pieces": pieces, "source": "a"})
    inspected.rows.tokens.setChecked(True)
    qtbot.waitUntil(lambda: "25 %" in inspected.rows._where.text())


def grounds(view):
    """The color that each letter stands on."""
    cursor, found = QTextCursor(view.document()), []
    while not cursor.atEnd():
        cursor.movePosition(QTextCursor.MoveOperation.NextCharacter, QTextCursor.MoveMode.KeepAnchor)
        found.append(cursor.charFormat().background().color().name())
        cursor.clearSelection()
    return found


def test_recognized_pairs_take_the_usual_objective_and_offer_the_others(qtbot, answers, window, page, bench, file):
    answers.result("inspect", dataset=facts.pairs())
    window.take([file])
    qtbot.waitUntil(lambda: page.objective.isVisible() and page.status == "done")
    assert bench.recipe.preference.objective == "dpo"
    assert list(page.objective.buttons) == ["dpo", "orpo", "simpo", "sft"]
    assert page.objective.buttons["dpo"].isChecked()
    assert parse_recipe(answers.asked("inspect")[-1]["recipe"]).preference.objective == "dpo"
    page.objective.buttons["orpo"].click()
    qtbot.waitUntil(lambda: page.objective.buttons["orpo"].isChecked() and page.status == "done")
    assert bench.recipe.preference.objective == "orpo"
    assert parse_recipe(answers.asked("inspect")[-1]["recipe"]).preference.objective == "orpo"


def test_only_the_chosen_replies_may_be_learned_and_nobody_is_asked_again(qtbot, answers, window, page, bench, file):
    answers.result("inspect", dataset=facts.pairs())
    window.take([file])
    qtbot.waitUntil(lambda: page.objective.isVisible() and page.status == "done")
    page.objective.buttons["sft"].click()
    qtbot.waitUntil(lambda: page.status == "done" and page.objective.buttons["sft"].isChecked())
    assert (bench.recipe.preference.objective, bench.recipe.data.shape) == ("sft", "preference")


def click_action(card, part):
    """Click the only button of the card whose text holds this."""
    (button,) = (one for one in card.findChildren(QPushButton) if part in one.text() and one.isVisibleTo(card))
    button.click()


def test_findings_about_pairs_change_the_objective_and_its_settings(qtbot, answers, window, page, bench, file):
    answers.result("inspect", dataset=facts.pairs())
    window.take([file])
    qtbot.waitUntil(lambda: page.objective.isVisible() and page.status == "done")
    qtbot.waitUntil(lambda: "26 pairs contradict others" in words(page.findings))
    click_action(page.findings, "0.011")
    assert bench.recipe.preference.label_smoothing == 0.011
    click_action(page.findings, "SimPO")
    assert bench.recipe.preference.objective == "simpo"


def test_other_data_has_no_objective_to_choose_and_forgets_the_former(
    qtbot, answers, window, page, bench, file, tmp_path
):
    answers.result("inspect", dataset=facts.pairs())
    window.take([file])
    qtbot.waitUntil(lambda: page.objective.isVisible() and page.status == "done")
    answers.result("inspect", dataset=facts.dataset())
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "b"}\n', encoding="utf-8")
    page._use([str(other)])
    qtbot.waitUntil(lambda: page.status == "done" and not page.objective.isVisible())
    assert bench.recipe.preference.objective == "sft"
