"""The Train page: follows a run folder, tells its standing, steers it."""

import time

import pytest
from app.facts.run_events import FAILED, a_step, events, numbered
from app.facts.run_summaries import summary, write_run
from app.facts.train_scenes import TRAIN_SCENES
from app.measures.handler_budget import assert_within_budget
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication

from burnish_app.pages.train import TrainPage
from burnish_app.state.preferences import Preferences
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.charts.chart import Chart
from burnish_app.window import Window
from burnish_app.wording.causes import CURES
from burnish_app.wording.recipe_text import setting_term
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.run.events import BestKept, CommandDone, LayersPlaced, RunEnded, RunStarted, Warned
from burnish_engine.contract.run.fold import EvaluationHistory
from burnish_engine.contract.run.state import RunStateFile

from support.app.held_client import HeldClient
from support.machines.hardware import history_of, recorded


@pytest.fixture
def page(window):
    window.go_to("train")
    window.runs_poller.stop()
    return window.page("train")


@pytest.fixture
def follow(qtbot, window, page, tmp_path):
    """Show a run with these events; returns its summary."""

    def show(run, lines):
        run = write_run(tmp_path / "run", run, lines)
        window.bench.set_run(run.folder)
        page.runs_changed([run])
        qtbot.waitUntil(lambda: page.events.seq == len(lines) - 1)
        page.runs_changed([run])
        return run

    return show


def buttons(page):
    return {name for name, button in page.buttons.items() if button.isVisible()} - {"copy", "holder"}


def append(run, *lines):
    with RunPaths(run_folder(run)).events.open("a", encoding="utf-8") as file:
        file.writelines(event.model_dump_json() + "\n" for event in lines)


def run_folder(run):
    from pathlib import Path

    return Path(run.folder)


@pytest.mark.full
def test_where_layers_keep_weights_and_activations_is_shown_and_follows_a_smaller_plan(qtbot, page, follow):
    run = follow(*TRAIN_SCENES["placed"])
    qtbot.waitUntil(lambda: "8 in system memory" in page.figures.layers.text())
    append(run, LayersPlaced(activations="attention:28", weights="card:12,host:16", seq=1000))
    qtbot.waitUntil(lambda: "16 in system memory" in page.figures.layers.text())
    assert "attention" in page.figures.layers.toolTip()
    assert page.figures.layers.isVisible()


@pytest.mark.full
def test_what_an_exchange_takes_is_shown_where_gpus_share_a_run(qtbot, page, follow):
    follow(*TRAIN_SCENES["shared"])
    qtbot.waitUntil(lambda: "0.18 ms" in page.figures.exchange.text())
    assert page.figures.exchange.isVisible()


def test_a_run_that_finds_that_its_memory_spilled_is_helped_by_one_click(qtbot, answers, page, follow):
    run = follow(*TRAIN_SCENES["training"])
    append(run, Warned(code="spill", message="The card is full. Lower something.", seq=1000))
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page.shown_banner.what == "The card is full."
    qtbot.mouseClick(page.shown_banner.findChildren(type(page.primary))[0], Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(answers.asked("command")) == 1)
    assert answers.asked("command")[0]["command"] == "smaller_plan"
    assert page.shown_banner is None


@pytest.mark.full
def test_a_past_run_that_spilled_asks_for_nothing(qtbot, page, follow):
    run = follow(*TRAIN_SCENES["finished"])
    append(run, Warned(code="spill", message="The card is full. Lower something.", seq=1000))
    qtbot.waitUntil(lambda: page.events.seq == 1000)
    assert page.shown_banner is None


@pytest.mark.full
def test_nothing_to_show_leads_to_the_recipe(window, page, qtbot):
    page.runs_changed([])
    assert page.nothing.isVisible()
    assert not page.figures.isVisible()
    assert page.status == "empty"
    with qtbot.waitSignal(page.go_to):
        page.nothing.findChild(type(page.primary)).click()


def test_a_run_of_somebody_else_that_goes_on_is_shown(page, tmp_path):
    run = write_run(tmp_path / "run", summary("running"), [])
    page.runs_changed([summary("finished", folder="/x/old"), run])
    assert page.bench.run == run.folder


@pytest.mark.full
def test_a_training_run_shows_its_figures_and_charts(qtbot, page, follow):
    follow(*TRAIN_SCENES["training"])
    qtbot.waitUntil(lambda: page.figures.step.text == "240")
    assert page.figures.headline.text() == "Training"
    assert page.figures.held_out.text == "1.407"
    assert page.figures.left.isVisible()
    assert page.charts.isVisible()
    qtbot.waitUntil(lambda: page.charts.loss.legend("held_out").text() == "held out 1.407")
    assert page.status == "busy"
    assert buttons(page) == {"pause", "checkpoint", "suspend", "stop"}


@pytest.mark.full
def test_new_steps_appear_while_it_is_shown(qtbot, page, follow):
    import random

    run = follow(*TRAIN_SCENES["training"])
    append(run, a_step(241, 600, random.Random(1)).model_copy(update={"seq": 1000, "loss": 0.5}))
    qtbot.waitUntil(lambda: page.figures.step.text == "241")
    assert page.charts.loss.legend("loss").text() == "each step 0.500"


@pytest.mark.full
def test_the_held_out_loss_is_that_of_the_step_the_run_kept(qtbot, page, follow):
    run = follow(*TRAIN_SCENES["training"])
    append(run, BestKept(step=120, loss=1.234, at_step=240, stopped_early=True, seq=1000))
    qtbot.waitUntil(lambda: page.figures.held_out.text == "1.234")


@pytest.mark.full
def test_each_command_reaches_the_engine(qtbot, page, follow, answers):
    run = follow(*TRAIN_SCENES["training"])
    for action in ("pause", "checkpoint", "suspend", "stop"):
        qtbot.waitUntil(page.buttons[action].isEnabled)
        page.buttons[action].click()
    qtbot.waitUntil(lambda: len(answers.asked("command")) == 4)
    asked = answers.asked("command")
    assert [request["command"] for request in asked] == ["pause", "checkpoint", "suspend", "stop"]
    assert {request["run"] for request in asked} == {run.folder}


def test_a_refused_command_is_said_in_place(qtbot, page, follow, answers):
    answers.failure("command", "The run has ended.", "Start another.")
    follow(*TRAIN_SCENES["training"])
    page.buttons["pause"].click()
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page.shown_banner.what == "The run has ended."
    assert page.buttons["pause"].isEnabled()


def test_the_answer_to_a_command_of_another_run_ends_no_wait(qtbot, tmp_path):
    engine, bench = HeldClient(), Workbench()
    page = TrainPage(engine, bench)
    qtbot.addWidget(page)
    runs = [write_run(tmp_path / name, *TRAIN_SCENES["training"]) for name in ("first", "second")]
    for run in runs:
        bench.set_run(run.folder)
        page.runs_changed(runs)
        page.buttons["pause"].click()
    first, second = engine.open("command")
    engine.answer("command", to=first)
    assert not page.buttons["pause"].isEnabled()
    engine.answer("command", to=second)
    assert page.buttons["pause"].isEnabled()
    page.closing()
    engine.close()


def fail(follow, code, message="It failed. Do something."):
    ended = RunEnded(outcome="failed", exit_code=code, step=5, message=message)
    return follow(summary("failed", 5, message=message, exit_code=code), numbered([*events(5), ended]))


@pytest.mark.full
def test_a_run_that_ran_out_of_memory_is_made_to_fit_by_one_click(qtbot, window, page, follow):
    run = fail(follow, 10)
    before = Recipe(name="tight")
    (run_folder(run) / "recipe.toml").write_text(dump_recipe(before), encoding="utf-8")
    assert page.figures.headline.text() == CURES["memory"].title
    page.primary.click()
    qtbot.waitUntil(lambda: window.shown_key == "recipe")
    train = window.bench.recipe.train
    assert train.micro_batch_tokens < before.train.micro_batch_tokens
    assert train.micro_batch_tokens * train.accumulation == before.train.micro_batch_tokens * before.train.accumulation


def test_a_full_disk_leads_to_its_folder_and_the_run_can_be_resumed_beside(qtbot, page, follow, answers, monkeypatch):
    opened = []
    monkeypatch.setattr("burnish_app.pages.train.QDesktopServices.openUrl", opened.append)
    run = fail(follow, 15)
    page.primary.click()
    assert [url.toLocalFile() for url in opened] == [run.folder]
    assert buttons(page) == {"resume"}
    page.buttons["resume"].click()
    qtbot.waitUntil(lambda: len(answers.asked("resume")) == 1)


def test_the_details_of_a_failure_are_copied_as_one_text(page, follow):
    run = fail(follow, 15, "There is no space left. Free some.")
    RunPaths(run_folder(run)).stderr_log.write_text("the very last line\n", encoding="utf-8")
    assert page.copy.isVisible()
    page.copy.click()
    text = QGuiApplication.clipboard().text()
    for part in ("no space left", "15", "4090", "recipe.toml", "the very last line"):
        assert part in text
    follow(*TRAIN_SCENES["training"])
    assert not page.copy.isVisible()


@pytest.mark.full
def test_before_the_first_step_the_stages_are_seen(qtbot, page, follow):
    follow(*TRAIN_SCENES["preparing"])
    qtbot.waitUntil(page.beginning.stages.isVisible)
    assert not page.charts.isVisible()
    follow(*TRAIN_SCENES["training"])
    qtbot.waitUntil(page.charts.isVisible)
    assert not page.beginning.stages.isVisible()


def test_a_command_the_run_itself_refuses_is_said(qtbot, page, follow):
    run = follow(*TRAIN_SCENES["training"])
    append(run, CommandDone(id="1", name="sample", accepted=False, detail="There are no prompts.", seq=1000))
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert "There are no prompts." in page.shown_banner.what


@pytest.mark.full
def test_an_interrupted_run_is_resumed_by_the_primary_action(qtbot, page, follow, answers):
    run = follow(*TRAIN_SCENES["interrupted"])
    assert "Step 200 is safe" in page.figures.detail.text()
    assert page.status == "attention"
    assert (page.primary.text(), buttons(page)) == ("Resume", set())
    page.primary.click()
    qtbot.waitUntil(lambda: len(answers.asked("resume")) == 1)
    assert answers.asked("resume")[0]["run"] == run.folder
    again = RunStarted(
        run="r", pid=1, process_created=1, device="CPU", precision="fp32", engine="plain", resumed_from_step=200,
        total_steps=600, seq=1000,
    )  # fmt: skip
    append(run, again)
    page.runs_changed([run.model_copy(update={"standing": "running"})])
    qtbot.waitUntil(lambda: page.figures.step.text == "200")
    assert page.status == "busy"


@pytest.mark.full
def test_a_failed_run_says_why_and_stops_saying_it_once_it_goes_on(qtbot, page, follow):
    run = follow(*TRAIN_SCENES["failed"])
    assert page.shown_banner.kind == "error"
    assert page.shown_banner.what == FAILED.message.partition(". ")[0] + "."
    page.runs_changed([run.model_copy(update={"standing": "running"})])
    assert page.shown_banner is None


@pytest.mark.full
def test_a_loss_that_is_no_number_is_shown_as_such(qtbot, page, follow):
    follow(*TRAIN_SCENES["bad_loss"])
    qtbot.waitUntil(lambda: page.figures.loss.text == "not a number")


@pytest.mark.full
def test_the_verdict_is_one_calm_line_with_its_checks(qtbot, page, follow):
    follow(*TRAIN_SCENES["training"])
    qtbot.waitUntil(page.verdict.isVisible)
    assert "8 checks" in page.verdict.sentence.text()
    assert not page.verdict.cause.isVisible()
    assert not page.verdict.checked.isVisible()
    page.verdict._more.click()
    assert "✓  Every label is the next token" in page.verdict.checked.text()
    assert page.verdict.checked.isVisible()


@pytest.mark.full
def test_trouble_is_told_and_marked_on_the_chart(qtbot, page, follow):
    follow(*TRAIN_SCENES["troubled"])
    qtbot.waitUntil(lambda: "held-out loss rises" in page.verdict.sentence.text())
    assert "by heart" in page.verdict.cause.text()
    assert setting_term("evaluation.patience") in page.verdict.remedy.text()
    notes = page.verdict._notes
    assert "went back to step 100" in notes.itemAt(0).widget().text()
    chart = page.charts.loss
    qtbot.waitUntil(lambda: chart.drawing is not None and not chart.stale)
    assert 130 in chart.drawing.plot.marks["bad"].getData()[0]
    assert [line.value() for line in chart.drawing.plot.rollbacks if line.isVisible()] == [100]
    assert "bad step" in chart.values_text(131)


def test_what_the_guard_ended_the_run_for_is_said_once(qtbot, page, follow):
    follow(*TRAIN_SCENES["not_training"])
    assert page.shown_banner.what.startswith("The labels are shifted by one")
    qtbot.waitUntil(lambda: not page._dirty)
    assert not page.verdict.isVisible()


def test_a_finished_run_leads_on(qtbot, window, page, follow):
    follow(*TRAIN_SCENES["finished"])
    assert page.primary.text() == "Try it"
    page.primary.click()
    qtbot.waitUntil(lambda: window.shown_key == "try_out")


@pytest.mark.full
def test_a_run_outside_the_usual_folder_is_shown_from_its_own_summary(qtbot, window, page, tmp_path):
    state = RunStateFile(run="far", name="far away", status="finished", step=3, total_steps=3, heartbeat=time.time())
    run = write_run(tmp_path / "far", summary("finished").model_copy(update={"state": state}), events(3))
    window.bench.set_run(run.folder)
    qtbot.waitUntil(lambda: page.summary is not None)
    assert page.figures.headline.text() == "Finished"


@pytest.mark.full
def test_a_deleted_run_is_said_and_forgotten(qtbot, page, follow):
    import shutil

    run = follow(*TRAIN_SCENES["finished"])
    shutil.rmtree(run.folder)
    qtbot.waitUntil(lambda: page.bench.run == "")
    assert "deleted" in page.shown_banner.what
    assert page.nothing.isVisible()


@pytest.mark.full
def test_a_price_set_meanwhile_counts_when_the_page_is_shown_again(window, page):
    page.hardware.show_run(history_of(recorded()), EvaluationHistory())
    assert page.hardware.price.isHidden()
    window.go_to("runs")
    window.preferences.price_per_kwh = 0.3
    window.go_to("train")
    assert not page.hardware.price.isHidden()


@pytest.mark.full
@pytest.mark.measured
def test_a_long_run_does_not_hold_up_the_window(qtbot, qapp, make_client, theme, burnish_home, tmp_path):
    """Attaching to 20,000 steps and drawing them: no handler takes longer than people would notice."""
    lines = events(20_000, total=20_000)

    def attach(attempt):
        run = write_run(tmp_path / f"run{attempt}", summary("running"), lines)
        window = Window(make_client(), Workbench(), Preferences(), theme)
        qtbot.addWidget(window)
        window.show()
        window.begin()
        window.runs_poller.stop()
        window.go_to("train")
        page = window.page("train")
        window.bench.set_run(run.folder)
        page.runs_changed([run])
        qtbot.waitUntil(lambda: page.figures.step.text == "20,000")
        shown = [chart for chart in page.charts.findChildren(Chart) if chart.isVisible()]
        qtbot.waitUntil(lambda: all(chart.drawing is not None for chart in shown))
        qtbot.wait(100)  # they are drawn
        window.close()

    assert_within_budget(qapp, attach)
