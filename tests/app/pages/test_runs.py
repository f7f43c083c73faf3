"""The Runs page: the list, its actions, and the inline question before a run is deleted."""

import pytest
from app.scenes import RUNS, summary
from PySide6.QtCore import Qt

from burnish_app.item_models.runs import COLUMNS, RunsTableModel, moment_text


@pytest.fixture
def page(window):
    window.go_to("runs")
    window._runs_poller.stop()
    page = window.page("runs")
    page.runs_changed(RUNS)
    return page


def column(title):
    return next(place for place, spec in enumerate(COLUMNS) if spec.title == title)


def visible(page):
    return {
        name for name in ("open", "delete", "reveal", "stop", "resume") if getattr(page, name).isVisible()
        and getattr(page, name).isEnabled()
    }  # fmt: skip


def test_the_list_shows_how_each_run_stands(page):
    cells = [page.model.index(row, column("Status")).data() for row in range(page.model.rowCount())]
    assert cells == ["Running", "Waiting", "Finished", "Interrupted", "Failed"]
    assert page.model.index(1, column("Status")).data(Qt.ItemDataRole.ToolTipRole) == (
        "Waits for 20261121-1012-support-desk"
    )
    assert page.model.index(2, column("Held out")).data() == "1.022"
    assert page.model.index(2, column("Took")).data() == "2 h 47 min"


@pytest.mark.parametrize(
    ("row", "actions"),
    [
        (0, {"open", "reveal", "stop"}),
        (1, {"open", "reveal", "stop", "delete"}),
        (2, {"open", "reveal", "delete"}),
        (3, {"open", "reveal", "delete", "resume"}),
        (4, {"open", "reveal", "delete", "resume"}),
    ],
)
def test_what_is_offered_fits_the_standing(page, row, actions):
    page.table.selectRow(row)
    assert visible(page) == actions


def test_open_shows_the_run_in_train(qtbot, window, page):
    page.table.selectRow(2)
    page.open.click()
    assert window.bench.run == RUNS[2].folder
    qtbot.waitUntil(lambda: window.shown_key == "train")


def test_delete_asks_first_and_forgets_the_run(qtbot, page, answers, answered):
    page.bench.set_run(RUNS[3].folder)
    page.table.selectRow(3)
    page.delete.click()
    assert "recipes" in page.shown_banner.what
    answered()
    assert not answers.asked("delete"), "asking deletes nothing"
    from PySide6.QtWidgets import QPushButton

    yes = next(button for button in page.shown_banner.findChildren(QPushButton) if button.text() == "Delete it")
    yes.click()
    qtbot.waitUntil(lambda: len(answers.asked("delete")) == 1)
    assert answers.asked("delete")[0]["run"] == RUNS[3].folder
    assert page.bench.run == ""


def test_resume_and_stop_reach_the_engine(qtbot, page, answers):
    page.table.selectRow(3)
    page.resume.click()
    page.table.selectRow(0)
    page.stop.click()
    qtbot.waitUntil(lambda: len(answers.asked("resume")) == 1 and len(answers.asked("command")) == 1)
    assert answers.asked("resume")[0]["run"] == RUNS[3].folder
    assert answers.asked("command")[0]["command"] == "stop"


def test_the_selection_stays_with_its_run_when_the_list_changes(page):
    page.table.selectRow(2)
    page.runs_changed([summary("running", folder="/runs/new"), *RUNS])
    assert page.selected.folder == RUNS[2].folder
    changed = [run.model_copy(update={"standing": "stopped"}) if run is RUNS[0] else run for run in RUNS]
    page.runs_changed([summary("running", folder="/runs/new"), *changed])
    assert page.selected.folder == RUNS[2].folder
    assert page.model.index(1, column("Status")).data() == "Stopped"


def test_no_runs(page):
    page.runs_changed([])
    assert page.nothing.isVisible()
    assert visible(page) == set()


def test_a_value_that_changes_does_not_reset_the_table(qtbot, qapp):
    model = RunsTableModel()
    model.set_runs(list(RUNS))
    with qtbot.assertNotEmitted(model.modelReset), qtbot.waitSignal(model.dataChanged):
        model.set_runs([RUNS[0].model_copy(update={"standing": "paused"}), *RUNS[1:]])


def test_moments_read_as_people_say_them():
    noon = 1_780_000_000
    assert len(moment_text(noon, noon + 60)) == 5
    assert len(moment_text(noon - 2 * 86400, noon).split()) == 2
    assert moment_text(noon - 30 * 86400, noon).count("-") == 2
    assert moment_text(0, noon) == ""
