"""Rows of the page Data as a table: roles on its heads, and the chosen row as the model reads it."""

import pytest
from app.facts import data_facts as facts
from app.pages.data.test_files import press
from app.pages.test_hardware import words
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QApplication

pytestmark = pytest.mark.gui


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
def test_a_page_is_read_when_it_is_looked_at(qtbot, answers, readable, inspected):
    table = inspected.rows.table
    qtbot.waitUntil(lambda: table.model().rowCount() == 1204)
    assert {request["start"] for request in answers.asked("rows")} == {0}
    answers.result("rows", rows=facts.row_page(1200, 4))
    table.scrollToBottom()
    qtbot.waitUntil(lambda: table.model().index(1203, 2).data() == "5914")
    assert {request["start"] for request in answers.asked("rows")} - {0} <= {1100, 1200}


@pytest.mark.full
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


@pytest.mark.full
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


def test_what_is_ambiguous_is_asked_in_plain_words(qtbot, answers, readable, window, page, bench, file):
    answers.failure("inspect", "faq.csv can be read in 2 ways.", "Say which.", 11)
    answers.result("columns", columns=facts.file_columns())
    window.take([file])
    qtbot.waitUntil(lambda: page.shown_banner is not None and "It is not clear what" in page.shown_banner.what)
    assert "columns" in page.primary.text()
    assert [chip.role for chip in page.rows.header.chips.values()] == [""] * 4, "nothing is guessed"
    assert "What do the columns mean?" in words(page.rows)
    answers.result("inspect", dataset=facts.dataset())
    press(page.rows, "Question asked, answer replied")
    qtbot.waitUntil(lambda: page.status == "done")
    assert (bench.recipe.data.shape, bench.recipe.data.columns) == ("auto", ["prompt=question", "completion=answer"])
    assert page.shown_banner is None
    assert page.rows.header.chips["question"].role == "prompt"


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
def test_columns_share_the_room_and_give_way_to_a_scroll_bar(qtbot, answers, readable, inspected):
    table = inspected.rows.table
    qtbot.waitUntil(lambda: table.model().rowCount() == 1204)
    qtbot.waitUntil(table.verticalScrollBar().isVisible)
    qtbot.waitUntil(lambda: not table.horizontalScrollBar().maximum())
    assert table.viewport().width() - sum(map(table.columnWidth, range(3))) < 3, "no room is left over"
    inspected.window().resize(1900, 1000)
    qtbot.waitUntil(lambda: table.viewport().width() > 600)
    qtbot.waitUntil(lambda: not table.horizontalScrollBar().maximum())
    assert table.viewport().width() - sum(map(table.columnWidth, range(3))) < 3
