"""The page Start: the example, the way to one's own data, and runs."""

import hashlib
import json
import re
import time
from pathlib import Path

import pytest
from app.facts.run_summaries import RUNS, summary, write_run
from app.facts.train_scenes import TRAIN_SCENES
from PySide6.QtCore import QPoint

from burnish_app.state.example_run import open_example
from burnish_app.state.run_folder import read_run_folder
from burnish_app.widgets.basic.pill import Pill
from burnish_app.widgets.runs.recent_run import RecentRun
from burnish_engine.contract.facts.facts import FidelityReport
from burnish_engine.contract.paths import RunPaths, assets_dir, user_data_dir
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.contract.run.card import RunCard
from burnish_engine.contract.run.events import parse_event
from burnish_engine.contract.serve.replies import ExportJob

pytestmark = pytest.mark.gui


@pytest.fixture
def page(window):
    window.go_to("start")
    return window.page("start")


def test_a_run_that_learns_from_rewards_is_offered_by_its_reward(page):
    newest = page.to_continue
    page.runs_changed([summary("running", loss=None, reward=1.1149)])
    assert (newest.reward.isHidden(), newest.reward.text, newest.loss.isHidden()) == (False, "1.11", True)
    assert newest.curve.isHidden(), "a line of no points would be a hole"
    newest.show_run(summary("running", loss=None, reward=1.2), (0.1, 0.7, 1.2))
    assert not newest.curve.isHidden()
    assert newest.curve.accessibleName().startswith("Reward")
    newest.show_run(summary("running"), (2.0, 1.4))
    assert (newest.reward.isHidden(), newest.loss.text) == (True, "1.214")


@pytest.mark.full
def test_the_first_start_shows_it(window):
    assert window.shown_key == "start"


def test_the_example_opens_at_once_as_a_run_of_ones_own(qtbot, window, page):
    page.watch.click()
    qtbot.waitUntil(lambda: window.shown_key == "train")
    train = window.page("train")
    qtbot.waitUntil(lambda: train.events.ended is not None)
    assert train.events.ended.outcome == "finished"
    assert len(train.events.steps) > 20
    assert len(train.events.evaluations) > 2
    assert train.events.samples.items()
    assert str(user_data_dir()) in window.bench.run
    train.runs_changed([summary("finished", 80, folder=window.bench.run)])
    assert train.figures.acts.isVisible()


def test_the_examples_can_be_talked_to_exported_and_compared(page):
    folder = open_example()
    runs = sorted(folder.parent.glob("example-*"))
    assert len(runs) == 2
    for run in runs:
        paths = RunPaths(run)
        held = read_run_folder(str(run))
        assert held.trained
        recipe = load_recipe(paths.recipe)
        assert recipe.model.path == "embedded"
        assert all(Path(file).is_file() for file in [*recipe.data.files, *recipe.data.validation_files])
        card = RunCard.model_validate_json(paths.card.read_text(encoding="utf-8"))
        for file in card.result.files:
            assert hashlib.sha256((paths.adapter / file.name).read_bytes()).hexdigest() == file.sha256
    report = FidelityReport.model_validate_json((RunPaths(folder).export / "fidelity.json").read_text(encoding="utf-8"))
    assert report.passed
    assert report.files[0].gain_kept > 0.9
    job = ExportJob.model_validate_json(RunPaths(folder).export_job.read_text(encoding="utf-8"))
    assert job.report == report


def test_the_examples_predicted_time_is_about_what_it_took(assets):
    lines = (
        (assets / "example-runs" / "example-fixes-at-home" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    )
    events = [parse_event(line) for line in lines]
    plan = next(event for event in events if event.type == "plan")
    assert 0.7 < (events[-1].t - events[0].t) / plan.total_seconds < 1.4


def test_the_examples_name_no_machine(assets):
    for folder in (assets / "example-runs").iterdir():
        for file in {*folder.rglob("*.*")} - {*folder.rglob("*.safetensors")}:
            content = file.read_bytes()
            assert not re.search(rb"(?<![\w.])/(tmp|home|root|work)/|:\\\\", content), file
        lines = RunPaths(folder).events.read_text(encoding="utf-8").splitlines()
        assert [parse_event(line).seq for line in lines] == list(range(len(lines)))
        assert json.loads(RunPaths(folder).state.read_text(encoding="utf-8"))["status"] == "finished"


def test_training_on_the_sample_takes_four_clicks(qtbot, window, answers, page):
    from app.facts import data_facts
    from app.facts import page_facts as facts

    answers.result("inspect", dataset=data_facts.dataset())
    answers.result("suggest", suggestion=facts.suggestion())
    answers.result("estimate", plan=facts.plan())
    answers.result("start", run=str(assets_dir()))
    clicks = 0

    def press(button):
        nonlocal clicks
        qtbot.waitUntil(lambda: button().isVisible() and button().isEnabled())
        button().click()
        clicks += 1

    press(lambda: page.train)
    data = window.page("data")
    press(lambda: next(b for b in data.findChildren(type(data.primary)) if b.text() == "Try it with the sample"))
    qtbot.waitUntil(lambda: window.bench.dataset is not None)
    press(lambda: data.primary)
    qtbot.waitUntil(lambda: window.shown_key == "recipe")
    press(lambda: window.page("recipe").primary)
    qtbot.waitUntil(lambda: window.shown_key == "train")
    assert clicks == 4
    assert answers.asked("start")


def test_a_long_name_is_shortened_and_told_on_hover(qtbot, window, page):
    name = "invoice-fields-from-scanned-letters-" * 2
    window.resize(800, 900)
    page.runs_changed([summary("running"), summary("finished", 600, name=name, model=f"/models/{name}")])
    line = page.recent.findChild(RecentRun)
    qtbot.waitUntil(lambda: line.name.text() != name and "…" in line.name.text())
    assert line.name.toolTip() == line.name.accessibleName() == name
    assert line.width() <= page.recent.width()
    window.resize(1200, 900)
    qtbot.waitUntil(lambda: line.name.text() == name)
    assert not line.name.toolTip()


@pytest.mark.full
def test_statuses_of_recent_runs_stand_in_a_column(qtbot, window, page):
    states = ("running", "not responding", "failed")
    runs = [summary(state, created=0 if state == "failed" else time.time()) for state in states]
    page.runs_changed([summary("finished", 600), *runs])
    qtbot.waitUntil(page.recent.isVisible)
    pills = [line.findChild(Pill) for line in page.recent.findChildren(RecentRun)]
    assert len(pills) == len(states)
    qtbot.waitUntil(lambda: len({pill.mapTo(page, QPoint()).x() for pill in pills}) == 1)


@pytest.mark.full
def test_a_recent_run_is_opened_by_a_press(qtbot, window, page):
    page.runs_changed(RUNS)
    assert page.recent.isVisible()
    line = page.recent.body.itemAt(1).widget()
    line.opened.emit(RUNS[2].folder)
    assert window.bench.run == RUNS[2].folder
    qtbot.waitUntil(lambda: window.shown_key == "train")


def test_a_folder_that_is_no_run_is_refused_with_what_is_missing(window, page, tmp_path):
    page.open_folder(str(tmp_path))
    assert "events.jsonl" in page.shown_banner.what
    run, lines = TRAIN_SCENES["finished"]
    page.open_folder(write_run(tmp_path / "run", run, lines).folder)
    assert window.bench.run == str(tmp_path / "run")


def test_the_newest_run_is_offered_large_with_its_curve(qtbot, window, page, tmp_path):
    run, lines = TRAIN_SCENES["finished"]
    newest = write_run(tmp_path / "run", run, lines)
    page.runs_changed([newest])
    card = page.to_continue
    assert card.isVisible()
    assert not page.recent.isVisible()
    qtbot.waitUntil(lambda: len(card.curve.values) > 20)
    assert newest.state.name in card.name.text()
    card.try_out.click()
    qtbot.waitUntil(lambda: window.shown_key == "try_out")
    assert window.bench.run == newest.folder


def test_newest_run_and_list_stand_side_by_side_on_a_large_screen(qtbot, window, page):
    page.runs_changed(RUNS)
    for width, beside in ((1920, True), (900, False)):
        window.resize(width, 900)
        qtbot.waitUntil(lambda beside=beside: (page.recent.y() == page.to_continue.y()) is beside)
