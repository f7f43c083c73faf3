"""The Runs page: the list, how it is sorted and filtered, its pane, and actions with a way back."""

import math

import pytest
from app.conftest import PATIENCE_MS
from app.facts.run_summaries import RUNS, summary
from app.measures.headings import cut_headings
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from burnish_app.item_models.runs import COLUMNS, RunsTableModel, moment_text
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.notes import RunNotes
from burnish_engine.runs.store import create_run


@pytest.fixture
def page(window, answered):
    window.go_to("runs")
    window.runs_poller.stop()
    answered()  # the list that was asked for when the page was shown
    page = window.page("runs")
    page.runs_changed(RUNS)
    return page


def column(title):
    return next(place for place, spec in enumerate(COLUMNS) if spec.title == title)


ACTIONS = ("open", "delete", "reveal", "duplicate", "stop", "resume", "duel")


def visible(page):
    return {name for name in ACTIONS if getattr(page, name).isVisible() and getattr(page, name).isEnabled()}


def names(page):
    """The runs in the order of the table."""
    return [page.order.run(row).state.name for row in range(page.order.rowCount())]


def press(page, text):
    """Press a button of the banner."""
    next(button for button in page.shown_banner.findChildren(QPushButton) if button.text() == text).click()


def test_the_list_shows_how_each_run_stands(page):
    cells = [page.model.index(row, column("Status")).data() for row in range(page.model.rowCount())]
    assert cells == ["Running", "Waiting", "Finished", "Interrupted", "Failed"]
    assert page.model.index(1, column("Status")).data(Qt.ItemDataRole.ToolTipRole) == (
        "Waits for 20261121-1012-support-desk"
    )
    assert page.model.index(2, column("Held out")).data() == "1.022"
    assert page.model.index(2, column("Took")).data() == "2 h 47 min"
    assert page.model.index(1, column("Took")).data() == "", "it waits, and has taken nothing yet"


def test_open_shows_the_run_in_train(qtbot, window, page):
    page.table.selectRow(2)
    page.open.click()
    assert window.bench.run == RUNS[2].folder
    qtbot.waitUntil(lambda: window.shown_key == "train")


def test_delete_can_be_undone(qtbot, page, answers):
    folder = RUNS[3].folder
    answers.result("delete", run=folder)
    answers.result("restore", run=folder)
    page.bench.set_run(folder)
    page.table.selectRow(3)
    page.delete.click()
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert "recipes" in page.shown_banner.what
    assert [request["run"] for request in answers.asked("delete")] == [folder]
    assert page.bench.run == ""
    press(page, "Undo")
    qtbot.waitUntil(lambda: len(answers.asked("restore")) == 1)
    assert answers.asked("restore")[0]["run"] == folder
    assert page.shown_banner is None


def test_several_are_deleted_at_once_and_their_space_freed_when_asked_for(qtbot, page, answers):
    answers.result("delete", run="/runs/gone")
    select(page, 2, 3)
    page.delete.click()
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert "2 runs" in page.shown_banner.what
    press(page, "Free the space now")
    qtbot.waitUntil(lambda: len(answers.asked("purge")) == 2)
    assert not answers.asked("restore")


def test_what_cannot_be_deleted_is_said(qtbot, page, answers):
    answers.failure("delete", "The run recipes is being exported.", "Wait for the export.")
    page.table.selectRow(3)
    qtbot.keyClick(page.table, Qt.Key.Key_Delete)
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page.shown_banner.kind == "error"


@pytest.mark.full
def test_a_run_that_goes_on_is_not_deleted(page, qtbot, answers, answered):
    select(page, 0, 2)
    assert not page.delete.isEnabled()
    qtbot.keyClick(page.table, Qt.Key.Key_Delete)
    answered()
    assert not answers.asked("delete")


def select(page, *rows):
    page._select([page.order.run(row).folder for row in rows])


def test_several_are_compared(qtbot, window, page):
    select(page, 2, 3)
    assert visible(page) == {"open", "delete", "duel"}
    assert "2" in page.open.text()
    page.open.click()
    assert set(window.bench.compared) == {RUNS[2].folder, RUNS[3].folder}
    qtbot.waitUntil(lambda: window.shown_key == "compare")


def test_two_may_fight_a_duel(qtbot, window, page):
    select(page, 2, 3)
    page.duel.click()
    assert set(window.bench.duelists) == {RUNS[2].folder, RUNS[3].folder}
    qtbot.waitUntil(lambda: window.shown_key == "duel")


def measured(name, held_out, loss, **changes):
    return summary("finished", folder=f"/runs/{name}", name=name, held_out=held_out, evaluation_loss=loss, **changes)


@pytest.mark.full
def test_each_run_is_compared_with_the_best_on_the_same_rows(page):
    page.runs_changed([measured("a", "x", 1.5), measured("b", "x", 1.25), measured("c", "y", 1.0)])
    cells = {page.order.run(row).state.name: page.order.index(row, column("To best")).data() for row in range(3)}
    assert cells == {"a": "+0.250", "b": "best", "c": ""}
    page.runs_changed([measured("a", "x", 1.0), measured("b", "x", 1.25), measured("c", "y", 1.0)])
    assert page.order.index(page.order.row_of("/runs/a"), column("To best")).data() == "best"


@pytest.mark.full
def test_runs_are_sorted_by_a_heading_and_those_without_a_value_stand_last(page):
    page.runs_changed(RUNS)
    by_loss = ["legal-notes", "support-desk", "recipes", "hot"]
    page.table.sortByColumn(column("Held out"), Qt.SortOrder.AscendingOrder)
    assert names(page)[0] == by_loss[0]
    assert names(page)[-2:] == ["hot", "faq"]
    page.table.sortByColumn(column("Held out"), Qt.SortOrder.DescendingOrder)
    assert names(page)[0] == "hot"
    assert names(page)[-1] == "faq"
    assert "↓" in page.order.headerData(column("Held out"), Qt.Orientation.Horizontal)


@pytest.mark.gui
def test_the_arrow_of_the_sorted_column_cuts_no_heading(page, qtbot):
    page.resize(1030, 700)
    page.show()
    page.runs_changed(RUNS)
    for heading in ("To best", "Held out"):
        page.table.sortByColumn(column(heading), Qt.SortOrder.AscendingOrder)
        assert not page.table.isColumnHidden(column(heading))
        assert cut_headings(page.table) == []


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("order", list(Qt.SortOrder))
def test_a_loss_that_is_no_number_stands_last(page, order):
    losses = {"a": 1.5, "b": math.nan, "c": 1.0, "d": math.inf, "e": 2.0}
    page.runs_changed([measured(name, "x", loss) for name, loss in losses.items()])
    page.table.sortByColumn(column("Held out"), order)
    assert "".join(names(page))[:3] == ("cae" if order == Qt.SortOrder.AscendingOrder else "eac")


def test_the_filter_finds_runs_by_words_of_any_kind(qtbot, page):
    noted = RUNS[2].model_copy(update={"notes": RunNotes(tags=("client",), text="for the lawyers")})
    page.runs_changed([*RUNS[:2], noted, *RUNS[3:]])
    for text, found in (
        ("legal", ["legal-notes"]),
        ("CLIENT", ["legal-notes"]),
        ("lawyers finished", ["legal-notes"]),
        ("embedded", ["recipes"]),
        ("waiting", ["faq"]),
        ("legal waiting", []),
    ):
        page.filter.setText(text)
        assert names(page) == found, text
    assert page.selection == []
    page.filter.clear()
    assert len(names(page)) == len(RUNS)


def test_what_the_filter_leaves_out_is_said(page):
    page.filter.setText("no such run")
    assert page.order.rowCount() == 0
    assert f"all {len(RUNS)}" in page._count.text()


def test_ctrl_f_goes_to_the_filter(qtbot, page):
    page.table.setFocus()
    qtbot.keyClick(page.table, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(page.filter.hasFocus)


def test_tags_and_notes_are_kept_and_not_overwritten_while_typing(qtbot, page, answers):
    page.details._keep.setInterval(PATIENCE_MS)  # a slow machine types slowly
    select(page, 2)
    qtbot.keyClicks(page.details.tags, "good, client")
    page.runs_changed([run.model_copy(update={"notes": RunNotes(tags=("old",))}) for run in RUNS])
    assert page.details.tags.text() == "good, client"
    page.details.notes.setPlainText("the one to ship")
    select(page, 3)  # keeps at once
    qtbot.waitUntil(lambda: len(answers.asked("annotate")) == 1)
    asked = answers.asked("annotate")[0]
    assert (asked["run"], asked["tags"], asked["text"]) == (RUNS[2].folder, ["good", "client"], "the one to ship")
    assert page.details.tags.text() == "old"


def test_what_was_typed_is_kept_when_the_window_closes(qtbot, window, page, answers):
    page.details._keep.setInterval(PATIENCE_MS)
    select(page, 2)
    qtbot.keyClicks(page.details.tags, "good")
    window.close()
    assert [asked["tags"] for asked in answers.asked("annotate")] == [["good"]]


@pytest.mark.full
def test_a_copy_is_announced_once(qtbot, window, page):
    paths = create_run(Recipe.model_validate({"name": "mine", "data": {"files": ["/data/a.jsonl"]}}))
    page.runs_changed([summary("finished", folder=str(paths.root), name="mine")])
    page.duplicate.click()
    recipe = window.page("recipe")
    qtbot.waitUntil(lambda: recipe.shown_banner is not None)
    recipe.clear_banner()
    window.go_to("settings")
    window.go_to("recipe")
    assert recipe.shown_banner is None


def test_duplicating_makes_the_recipe_the_draft_and_the_former_can_be_taken_back(qtbot, window, page):
    before = window.bench.recipe
    paths = create_run(Recipe.model_validate({"name": "mine", "adapter": {"rank": 64}}))
    page.runs_changed([summary("finished", folder=str(paths.root), name="mine")])
    page.duplicate.click()
    assert window.bench.recipe.adapter.rank == 64
    qtbot.waitUntil(lambda: window.shown_key == "recipe")
    recipe = window.page("recipe")
    recipe.bench.set_data_files(["/data/a.jsonl"])
    recipe.shown()
    qtbot.waitUntil(lambda: recipe.shown_banner is not None and "mine" in recipe.shown_banner.what)
    press(recipe, "Take my draft back")
    assert window.bench.recipe == before
    assert recipe.form.recipe().adapter.rank == before.adapter.rank


@pytest.mark.full
def test_a_recipe_that_cannot_be_read_stays_where_it_is(page):
    page.runs_changed([summary("finished", folder="/nowhere/at/all")])
    page.duplicate.click()
    assert page.shown_banner.kind == "error"


def test_resume_and_stop_reach_the_engine(qtbot, page, answers):
    page.table.selectRow(3)
    page.resume.click()
    page.table.selectRow(0)
    page.stop.click()
    qtbot.waitUntil(lambda: len(answers.asked("resume")) == 1 and len(answers.asked("command")) == 1)
    assert answers.asked("resume")[0]["run"] == RUNS[3].folder
    assert answers.asked("command")[0]["command"] == "stop"


@pytest.mark.full
def test_the_selection_stays_with_its_run_when_the_list_changes(page):
    page.table.selectRow(2)
    page.runs_changed([summary("running", folder="/runs/new"), *RUNS])
    assert page.selected.folder == RUNS[2].folder
    changed = [run.model_copy(update={"standing": "stopped"}) if run is RUNS[0] else run for run in RUNS]
    page.runs_changed([summary("running", folder="/runs/new"), *changed])
    assert page.selected.folder == RUNS[2].folder
    assert page.model.index(1, column("Status")).data() == "Stopped"


def test_a_value_that_changes_does_not_reset_the_table(qtbot, qapp):
    model = RunsTableModel()
    model.set_runs(list(RUNS))
    with qtbot.assertNotEmitted(model.modelReset), qtbot.waitSignal(model.dataChanged):
        model.set_runs([RUNS[0].model_copy(update={"standing": "paused"}), *RUNS[1:]])


def test_moments_read_as_people_say_them():
    noon = 1_780_000_000
    assert len(moment_text(noon, noon + 60)) == 5
    assert len(moment_text(noon - 2 * 86400, noon).split()) == 2
    assert moment_text(noon - 7 * 86400, noon).count("-") == 2, "the same day of the week before last"
    assert moment_text(noon - 30 * 86400, noon).count("-") == 2
    assert moment_text(0, noon) == ""
