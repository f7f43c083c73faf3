"""The page Sweep: settings with values, what that takes, and the runs that came of it."""

from pathlib import Path

import pytest
from app.page_scenes.screenshots import settle
from app.page_scenes.several_scenes import a_sweep, sweep_plan
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from burnish_engine.contract.paths import RunPaths, user_data_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe


@pytest.fixture
def page(window, answers, answered):
    window.runs_poller.stop()
    answers.result("plan_sweep", sweep_plan=sweep_plan())
    window.bench.set_data_files(["/data/a.jsonl"])
    window.go_to("sweep")
    answered()  # the lists that were asked for when the page was shown
    return window.page("sweep")


def show(page, answers, ended, qtbot):
    sweep, runs = a_sweep(user_data_dir() / "runs", ended=ended)
    page._show_sweeps([sweep])
    page.runs_changed(runs)
    return sweep, runs


@pytest.mark.full
def test_without_data_there_is_a_way_to_it(qtbot, window):
    window.go_to("sweep")
    page = window.page("sweep")
    assert page.nothing.isVisible()
    assert not page.settings.isVisible()
    assert not page.primary.isVisible()


@pytest.mark.full
def test_runs_and_hours_are_said_before_anything_is_queued(qtbot, page, answers, answered):
    qtbot.waitUntil(page.primary.isEnabled)
    assert "6" in page.primary.text()
    assert "3 h" in page.plan.verdict.text()
    assert page.planned.isVisible()
    asked = answers.asked("plan_sweep")[-1]
    assert [setting["key"] for setting in asked["settings"]] == ["train.learning_rate"]
    answered()
    assert not answers.asked("start_sweep")


def test_up_to_three_settings_are_added_and_removed(qtbot, page, answers):
    page.settings.add.click()
    page.settings.add.click()
    assert len(page.settings.rows) == 3
    assert not page.settings.add.isVisible()
    keys = [row.key for row in page.settings.rows]
    assert len(set(keys)) == 3
    qtbot.waitUntil(lambda: len(answers.asked("plan_sweep")[-1:]) == 1 and page.primary.isEnabled())
    assert len(answers.asked("plan_sweep")[-1]["settings"]) == 3
    page.settings.rows[1].remove.click()
    assert [row.key for row in page.settings.rows] == [keys[0], keys[2]]
    assert page.settings.add.isVisible()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("text", ["1e-4, fast", "", "-"])
def test_a_value_that_is_none_is_marked_and_nothing_can_be_queued(qtbot, page, answers, text):
    qtbot.waitUntil(page.primary.isEnabled)
    page.settings.rows[0].values.setText(text)
    assert not page.primary.isEnabled()
    assert page.settings.rows[0].values.property("look") == "error"
    page.settings.rows[0].values.setText("1e-4, 2e-4")
    qtbot.waitUntil(page.primary.isEnabled)


@pytest.mark.full
def test_one_setting_twice_is_no_sweep(qtbot, page):
    qtbot.waitUntil(page.primary.isEnabled)
    page.settings.add.click()
    second = page.settings.rows[1]
    second.name.setCurrentIndex(second.name.findData(page.settings.rows[0].key))
    assert not page.primary.isEnabled()


def test_the_draft_s_own_value_stands_beside(qtbot, page, window):
    recipe = Recipe.model_validate({"data": {"files": ["/data/a.jsonl"]}, "train": {"learning_rate": 0.0123}})
    window.bench.set_recipe(recipe)
    assert "0.0123" in page.settings.rows[0]._note.text()


def test_queueing_sends_the_draft_and_shows_the_sweep(qtbot, window, page, answers):
    sweep, runs = a_sweep(user_data_dir() / "runs", ended=0)
    answers.result("start_sweep", sweeps=[sweep])
    answers.result("runs", runs=runs)
    qtbot.waitUntil(page.primary.isEnabled)
    page.primary.click()
    qtbot.waitUntil(lambda: page.results is not None and page.results.isVisible())
    assert answers.asked("start_sweep")[0]["recipe"] == window.bench.recipe_toml
    assert page.results.model.rowCount() == 6
    assert page.stop.isVisible()
    assert page.status == "busy"


def test_what_does_not_fit_can_be_queued_anyway(qtbot, page, answers):
    answers.failure("start_sweep", "2 of 6 runs would not fit.", "Take these values out.", exit_code=10)
    qtbot.waitUntil(page.primary.isEnabled)
    page.primary.click()
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    next(one for one in page.shown_banner.findChildren(QPushButton) if "anyway" in one.text()).click()
    qtbot.waitUntil(lambda: len(answers.asked("start_sweep")) == 2)
    assert [request["anyway"] for request in answers.asked("start_sweep")] == [False, True]


def test_a_plan_for_other_values_comes_too_late(held_window, held, bench):
    bench.set_data_files(["/data/a.jsonl"])
    held_window.go_to("sweep")
    page = held_window.page("sweep")
    page.plan.ask()
    (late,) = held.open("plan_sweep")
    page.settings.rows[0].values.setText("1e-4")
    held.answer("plan_sweep", to=late, sweep_plan=sweep_plan())
    assert not page.primary.isEnabled()


def test_a_plan_that_fails_says_why(qtbot, window, page, answers):
    qtbot.waitUntil(page.primary.isEnabled)
    answers.failure("plan_sweep", "The model is not here.", "Fetch it.")
    page.settings.rows[0].values.setText("1e-4")
    qtbot.waitUntil(page.plan.problem.isVisible)
    assert "not here" in page.plan.problem.text()
    assert not page.primary.isEnabled()


@pytest.mark.full
def test_the_runs_stand_in_one_table_and_in_one_overlay_the_best_first_at_the_end(qtbot, page, answers):
    _, runs = show(page, answers, 6, qtbot)
    assert page.results.model.index(0, 0).data() == "0.0002"
    assert page.results.model.index(0, 6).data() == "best"
    qtbot.waitUntil(lambda: len(page.view.charts.curves.held_out) == 6)
    assert set(page.view.folders) == {run.folder for run in runs}
    page.results.table.selectRow(0)
    assert len(page.view.folders) == 1


@pytest.mark.full
def test_in_a_narrow_window_the_settings_that_tell_runs_apart_stay(qtbot, window, page, answers):
    window.resize(744, 900)
    show(page, answers, 6, qtbot)
    settle()
    table = page.results.table
    assert table.shown_columns()[:3] == [0, 1, 2]
    assert len(table.shown_columns()) < page.results.model.columnCount()


@pytest.mark.full
def test_while_runs_go_on_the_order_stays_that_of_the_values(qtbot, page, answers):
    show(page, answers, 3, qtbot)
    assert [page.results.model.index(row, 0).data() for row in range(6)] == ["0.0001"] * 2 + ["0.0002"] * 2 + [
        "0.0004"
    ] * 2
    assert "3" in page.results.state.text()
    assert not page.best.isVisible()


def test_the_rest_is_stopped(qtbot, page, answers):
    _, runs = show(page, answers, 3, qtbot)
    page.stop.click()
    qtbot.waitUntil(lambda: len(answers.asked("command")) == 3)
    assert {request["run"] for request in answers.asked("command")} == {run.folder for run in runs[3:]}


@pytest.mark.full
def test_the_best_becomes_the_draft(qtbot, window, page, answers):
    _, runs = show(page, answers, 6, qtbot)
    best = min(runs, key=lambda run: run.state.evaluation_loss)
    recipe = Recipe.model_validate({"adapter": {"rank": 32}})
    RunPaths(Path(best.folder)).recipe.write_text(dump_recipe(recipe), encoding="utf-8")
    page.best.click()
    assert window.bench.recipe.adapter.rank == 32
    qtbot.waitUntil(lambda: window.shown_key == "recipe")


def test_a_run_of_the_table_is_opened_by_the_keyboard(qtbot, window, page, answers):
    show(page, answers, 6, qtbot)
    page.results.table.setFocus()
    page.results.table.selectRow(1)
    folder = page.results.selection[0].run.folder
    qtbot.keyClick(page.results.table, Qt.Key.Key_Return)
    assert window.bench.run == folder


def test_runs_that_are_queued_are_not_queued_a_second_time(qtbot, page, answers):
    qtbot.waitUntil(page.primary.isEnabled)
    answers.result("start_sweep", sweeps=[a_sweep(user_data_dir() / "runs", ended=0)[0]])
    page.primary.click()
    qtbot.waitUntil(lambda: page.results is not None)
    assert not page.primary.isEnabled()
    page.start()
    assert len(answers.asked("start_sweep")) == 1
    row = page.settings.rows[0]
    row.values.setText("0.0005, 0.0007")
    qtbot.waitUntil(page.primary.isEnabled)
