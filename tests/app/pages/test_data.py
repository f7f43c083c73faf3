from pathlib import Path

import pytest
from app import page_facts as facts
from app.pages.test_hardware import words
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QApplication, QPushButton

from burnish_app.widgets.basic.drop import typed_path
from burnish_engine.contract.facts.data_report import FileStatus, Finding
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
    assert (page.facts.learned.text, page.facts.fill.text, page.facts.lost.text) == ("62 %", "91 %", "0.9 %")
    assert page.lengths.cut.text().startswith("Cut at 1,024: 7 rows, 1.0 %")


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


@pytest.fixture
def readable(answers):
    """An engine that knows the columns and rows of the file, and renders any row."""
    answers.result("columns", columns=facts.chat_columns())
    answers.result("rows", rows=facts.row_page())
    answers.result("preview", preview=facts.preview())


def test_the_rows_are_a_table_with_roles_on_its_heads(qtbot, answers, readable, window, page, file):
    answers.result("inspect", dataset=facts.dataset())
    window.take([file])
    table = page.rows.table
    qtbot.waitUntil(lambda: table.model().rowCount() == 1204)
    assert "customs paper" in table.model().index(0, 0).data()
    assert {name: chip.role for name, chip in page.rows.header.chips.items()} == {
        "messages": "conversation", "system_prompt": "system", "ticket": "",
    }  # fmt: skip
    chip = page.rows.header.chips["ticket"]
    assert "ticket" in chip.accessibleName()
    assert "Ignored" in chip.accessibleName()
    qtbot.waitUntil(lambda: "Cause: It waits" in page.rows.preview.view.toPlainText())
    assert answers.asked("preview")[-1]["index"] == 0
    page.files.removed.emit(file)
    assert not page.rows.isVisible()


def test_the_chosen_row_is_rendered(qtbot, answers, readable, inspected):
    page = inspected
    qtbot.waitUntil(lambda: "Cause: It waits" in page.rows.preview.view.toPlainText())
    answers.result("preview", preview=facts.preview(row=5, problem="the reply is empty", pieces=[], tokens=0))
    page.rows.table.setFocus()
    for _ in range(4):
        qtbot.keyClick(page.rows.table, Qt.Key.Key_Down)
    qtbot.waitUntil(lambda: "the reply is empty" in words(page.rows.preview))
    assert answers.asked("preview")[-1]["index"] == 4
    assert page.rows.preview.view.toPlainText() == ""
    assert page.rows.preview.problem.isVisible()


def test_a_page_is_read_when_it_is_looked_at(qtbot, answers, readable, inspected):
    table = inspected.rows.table
    qtbot.waitUntil(lambda: table.model().rowCount() == 1204)
    assert {request["start"] for request in answers.asked("rows")} == {0}
    answers.result("rows", rows=facts.row_page(1200, 4))
    table.scrollToBottom()
    qtbot.waitUntil(lambda: table.model().index(1203, 2).data() == "5914")
    assert {request["start"] for request in answers.asked("rows")} - {0} <= {1100, 1200}


def test_chips_stay_with_their_columns_when_the_table_is_scrolled_sideways(qtbot, answers, readable, inspected):
    page = inspected
    header, table = page.rows.header, page.rows.table
    qtbot.waitUntil(lambda: table.model().rowCount() == 1204)
    header.was_resized = True  # by a person: else the columns are fitted again when more is known
    for column in range(3):
        header.resizeSection(column, 900)
    QApplication.processEvents()
    table.horizontalScrollBar().setValue(table.horizontalScrollBar().maximum())
    QApplication.processEvents()
    assert header.offset() > 900
    for place, chip in enumerate(header.chips.values()):
        assert 0 <= chip.x() - header.sectionViewportPosition(place) < 10


def test_a_page_that_comes_late_leaves_the_chosen_row_alone(qtbot, answers, readable, inspected):
    table = inspected.rows.table
    qtbot.waitUntil(lambda: table.model().rowCount() == 1204)
    table.selectRow(5)
    table.model().forget(5)
    table.model()._pages.clear()
    table.model().set_page(3, facts.row_page(300).rows, 1204)
    inspected.rows._page_here(True)
    assert table.currentIndex().row() == 5


def test_what_the_recipe_says_in_part_is_recognized_for_the_rest(qtbot, answers, readable, window, page, bench, file):
    bench.set_data_files([file])
    bench.change_data(columns=["system=ticket"])
    answers.result("inspect", dataset=facts.dataset())
    qtbot.waitUntil(lambda: page.rows.header.chips.get("messages") is not None)
    assert {name: chip.role for name, chip in page.rows.header.chips.items()} == {
        "messages": "conversation", "system_prompt": "", "ticket": "system",
    }  # fmt: skip


def test_a_chip_changes_the_role_of_its_column(qtbot, answers, readable, inspected, bench):
    page = inspected
    chips = page.rows.header.chips
    qtbot.waitUntil(lambda: chips["messages"].role == "conversation")
    menu = chips["ticket"].menu_of_roles()
    assert [action.isChecked() for action in menu.actions()][-1], "it is ignored now"
    next(action for action in menu.actions() if action.text().startswith("System")).trigger()
    assert bench.recipe.data.columns == ["conversation=messages", "system=ticket"]
    assert (chips["system_prompt"].role, chips["ticket"].role) == ("", "system")
    qtbot.waitUntil(lambda: "system=ticket" in answers.asked("inspect")[-1]["recipe"])
    chips["messages"].chosen.emit("messages", "prompt")
    assert "Still to choose: Reply." in words(page)
    assert bench.recipe.data.columns == ["conversation=messages", "system=ticket"], "not before it can be read"
    chips["system_prompt"].chosen.emit("system_prompt", "reply")
    assert sorted(bench.recipe.data.columns) == ["completion=system_prompt", "prompt=messages", "system=ticket"]
    press(page, "Recognize it again")
    assert bench.recipe.data.columns == []
    assert chips["messages"].role == "conversation"


def test_the_roles_can_be_changed_by_keys(qtbot, answers, readable, inspected, bench):
    chip = inspected.rows.header.chips["ticket"]
    qtbot.waitUntil(chip.isVisible)
    chip.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(chip, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: QApplication.activePopupWidget() is not None)
    menu = QApplication.activePopupWidget()
    for key in (*[Qt.Key.Key_Down] * 3, Qt.Key.Key_Return):
        qtbot.keyClick(menu, key)
    assert bench.recipe.data.columns == ["conversation=messages", "system=ticket"]


def test_findings_open_their_rows(qtbot, answers, readable, inspected):
    page = inspected
    qtbot.waitUntil(lambda: "38 rows are the same" in words(page.findings))
    answers.result("rows", rows=facts.row_page(43, 9, 52))
    press(page.findings, "Show the rows")
    qtbot.waitUntil(lambda: page.rows.table.model().rowCount() == 52)
    assert [place["row"] for place in answers.asked("rows")[-1]["places"]][:3] == [44, 45, 102]
    assert "The first 9 of 38" in words(page.rows)
    answers.result("rows", rows=facts.row_page())
    press(page.rows, "Show all rows")
    qtbot.waitUntil(lambda: page.rows.table.model().rowCount() == 1204)
    assert "The first 9 of 38" not in words(page.rows)


def test_rows_whose_numbers_are_estimates_are_not_opened(qtbot, answers, window, page, file):
    report = facts.dataset_report(sampled_rows=900, exact_places=False)
    answers.result("inspect", dataset=facts.dataset(report=report))
    window.take([file])
    qtbot.waitUntil(lambda: "38 rows are the same" in words(page.findings))
    assert "Show the rows" not in [button.text() for button in page.findings.findChildren(QPushButton)]


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
    press(page.files, "Go on without such rows")
    assert bench.recipe.data.broken_rows == "drop"
    qtbot.waitUntil(lambda: page.status == "attention")
    press(page.files, "Look at it")
    qtbot.waitUntil(lambda: answers.asked("columns")[-1]["file"] == str(bad))
    asked = len(answers.asked("inspect"))
    press(page, "Leave out 1 file and go on")
    assert bench.data_files == [file]
    qtbot.waitUntil(lambda: window.shown_key == "recipe")
    qtbot.waitUntil(lambda: len(answers.asked("inspect")) > asked)


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


def test_the_cut_line_sets_the_longest_row(qtbot, readable, inspected, bench):
    page = inspected
    chart = page.lengths.histogram
    qtbot.waitUntil(lambda: chart.isVisible() and chart.width() > 100)
    y = chart.height() // 2
    begin, end = chart.cut_position(), chart.width() // 4
    qtbot.mousePress(chart, Qt.MouseButton.LeftButton, pos=QPointF(begin, y).toPoint())
    qtbot.mouseMove(chart, QPointF(end, y).toPoint())
    said = page.lengths.cut.text()
    assert bench.recipe.data.max_length == 1024, "not before the line is let go"
    qtbot.mouseRelease(chart, Qt.MouseButton.LeftButton, pos=QPointF(end, y).toPoint())
    cut = bench.recipe.data.max_length
    assert 300 < cut < 500
    assert said.startswith(f"Cut at {cut}: ")
    rows = next(rows for length, rows, _ in facts.length_steps() if length == cut)
    assert f"{rows} rows" in said
    chart.setFocus()
    qtbot.keyClick(chart, Qt.Key.Key_Right)
    qtbot.keyClick(chart, Qt.Key.Key_Return)
    assert bench.recipe.data.max_length == cut + 16
    qtbot.keyClick(chart, Qt.Key.Key_Left)
    qtbot.keyClick(chart, Qt.Key.Key_Escape)
    assert (bench.recipe.data.max_length, chart.cut_tokens) == (cut + 16, cut + 16)
    assert f"{cut + 16}" in chart.accessibleDescription()


def test_a_system_message_that_nobody_wrote_is_told_and_another_can_be_written(
    qtbot, answers, readable, window, page, bench, file
):
    report = facts.dataset_report()
    template = report.template.model_copy(update={"adds": "You are Lamp."})
    slips = Finding(kind="added_text", says="9 rows are given a text that nobody wrote.", rows=9, first=facts.places(3))
    report = report.model_copy(update={"template": template, "findings": [slips]})
    answers.result("inspect", dataset=facts.dataset(report=report))
    window.take([file])
    qtbot.waitUntil(lambda: 'writes "You are Lamp."' in words(page.template))
    qtbot.waitUntil(lambda: page.status == "done")
    press(page.findings, "Write another")
    assert page.template.message.hasFocus()
    qtbot.keyClicks(page.template.message, "Answer briefly.")
    qtbot.keyClick(page.template.message, Qt.Key.Key_Return)
    assert bench.recipe.data.system_prompt == "Answer briefly."
    qtbot.waitUntil(lambda: "Nobody wrote that" not in words(page.template))


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


def test_what_is_ambiguous_is_asked_in_plain_words(qtbot, answers, readable, window, page, bench, file):
    answers.failure("inspect", "faq.csv can be read in 2 ways.", "Say which.", 11)
    answers.result("columns", columns=facts.file_columns())
    window.take([file])
    qtbot.waitUntil(lambda: page.shown_banner is not None and "It is not clear what" in page.shown_banner.what)
    assert [chip.role for chip in page.rows.header.chips.values()] == [""] * 4, "nothing is guessed"
    assert "What do the columns mean?" in words(page.rows)
    answers.result("inspect", dataset=facts.dataset())
    press(page.rows, "Question asked, answer replied")
    qtbot.waitUntil(lambda: page.status == "done")
    assert (bench.recipe.data.shape, bench.recipe.data.columns) == ("auto", ["prompt=question", "completion=answer"])
    assert page.shown_banner is None
    assert page.rows.header.chips["question"].role == "prompt"


def test_a_file_that_could_not_be_read_is_not_offered_the_reading_of_the_one_before(
    qtbot, answers, readable, inspected, tmp_path
):
    page = inspected
    other = tmp_path / "faq.csv"
    other.write_text("question,answer\n", encoding="utf-8")
    answers.failure("inspect", "faq.csv can be read in 2 ways.", "Say which.", 11)
    answers.result("columns", columns=facts.file_columns())
    page._use([str(other)])
    qtbot.waitUntil(lambda: set(page.rows.header.chips) == {"id", "question", "prompt", "answer"})
    assert page.rows.is_open
    assert not page.primary.isEnabled()


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


def test_a_micro_batch_grows_with_the_longest_row(inspected, bench):
    bench.set_recipe(bench.recipe.model_copy(update={"train": bench.recipe.train.model_copy(update={"epochs": 3.0})}))
    inspected.lengths.cut_chosen.emit(4096)
    assert (bench.recipe.data.max_length, bench.recipe.train.micro_batch_tokens) == (4096, 4096)
    assert parse_recipe(bench.recipe_toml) == bench.recipe


def test_nothing_jumps_while_the_same_files_are_looked_at_again(qtbot, answers, inspected):
    page = inspected
    answers.set("inspect", {"hold": True})
    press(page, "Leave out copies")
    assert page.status == "busy"
    assert page.findings.isVisible()
    assert page.facts.isVisible()


def test_tokens_are_shown_on_demand_and_their_share_is_told(qtbot, answers, readable, inspected):
    preview = inspected.rows.preview
    pieces = [["Why? ", False], ["Cau", True], ["se", True], [":", True]]
    answers.result("preview", preview=facts.preview(tokens=4, supervised_tokens=3, pieces=pieces))
    preview.refresh()
    qtbot.waitUntil(lambda: preview.view.toPlainText() == "Why? Cause:")
    assert "75 %" in preview.figures.text()
    assert len(set(grounds(preview.view)[5:])) == 1
    preview.tokens.setChecked(True)
    tints = grounds(preview.view)[5:]
    assert tints[0] == tints[2]
    assert tints[3] == tints[4]
    assert len({tints[0], tints[3], tints[5]}) == 3, "neighboring tokens differ"


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
