"""The whole app over the real engine: from drop to export by clicks, and what happens when a process is killed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from app.real.studio import (
    LONG_MS,
    TESTS,
    end_runs,
    is_running,
    kill,
    make_tiny,
    read_state,
    tiny_recipe,
)
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication

from burnish_app.state.preferences import Preferences
from burnish_app.state.workbench import Workbench
from burnish_app.wording.causes import CURES
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.serve.model_requests import MachineRequest
from burnish_engine.runs.events_file import read_run

pytestmark = [pytest.mark.gui, pytest.mark.slow, pytest.mark.measured]
STEPS = 100


@pytest.fixture(scope="module")
def tiny(tmp_path_factory, shared_folder):
    """Folder of a tiny model and a data file of many rows."""
    return make_tiny(tmp_path_factory.mktemp("tiny"), shared_folder, rows=3000)


@pytest.mark.full
def test_from_drop_to_export(studio, tiny):
    window = studio.open()
    assert window.shown_key == "start"
    look_at_the_hardware(studio, window)
    pick_the_model(studio, window, tiny / "model")
    drop_the_data(studio, window, tiny / "data.jsonl")
    take_the_recipe(studio, window)
    folder = train(studio, window)
    compare(studio, window)
    export(studio, window, folder)
    runs = studio.visit(window, "runs")
    studio.wait(lambda: runs.model.row_of(folder) >= 0)
    assert runs.model.row(runs.model.row_of(folder)).run.standing == "finished"
    for key in ("settings", "hardware", "recipe", "train"):
        studio.visit(window, key)


def look_at_the_hardware(studio, window):
    page = studio.visit(window, "hardware")
    studio.wait(lambda: page.status == "done")
    assert page.shown_banner is None


def pick_the_model(studio, window, folder):
    page = studio.visit(window, "model")
    studio.type_into(page.models.search, str(folder))
    studio.enter(page.models.search)
    studio.wait(lambda: window.bench.model is not None and window.bench.model.path == str(folder))
    studio.wait(lambda: page.status == "done")


def drop_the_data(studio, window, file):
    studio.drop(window, file)
    studio.wait(lambda: window.shown_key == "data")
    page = window.page("data")
    studio.wait(lambda: window.bench.dataset is not None)
    facts = window.bench.dataset
    assert facts.train_rows + facts.validation_rows == 3000
    view = page.rows.preview.view
    studio.wait(lambda: page.details.isVisible() and view.toPlainText())
    shown = view.toPlainText()
    assert any(learned for _, learned in view._pieces)
    page.rows.table.setFocus()
    studio.press_key(page.rows.table, Qt.Key.Key_Down)
    studio.wait(lambda: view.toPlainText() != shown)
    assert page.rows.preview.row.row == 2
    assert page.status == "done"


def take_the_recipe(studio, window):
    page = studio.visit(window, "recipe")
    studio.wait(lambda: window.bench.suggestion is not None and window.bench.plan is not None)
    suggested = window.bench.plan.steps
    assert suggested > STEPS
    page.form.row("task.metric").editor.setCurrentText("exact match")
    for key, text in (("task.max_rows", "4"), ("task.max_tokens", "8")):
        studio.type_into(page.form.row(key).editor, text)
    row = page.form.row("train.max_steps")
    studio.type_into(row.editor, str(STEPS))
    studio.wait(lambda: window.bench.plan is not None and window.bench.plan.steps == STEPS)
    studio.wait(lambda: page.fit.steps._figure.text() == str(STEPS))  # figures roll
    assert page.fit.verdict.text().startswith("It fits")


def train(studio, window):
    studio.press(window.page("recipe").primary)
    studio.wait(lambda: window.shown_key == "train")
    page = window.page("train")
    studio.wait(lambda: page.figures.headline.text() == "Training")
    studio.wait(lambda: page.charts.isVisible() and points(page.charts.loss, "loss") > 0)
    few = points(page.charts.loss, "loss")
    studio.wait(lambda: points(page.charts.loss, "loss") > few)
    studio.wait(lambda: page.figures.headline.text() == "Finished")
    assert page.events.step == STEPS
    studio.wait(lambda: points(page.charts.loss, "loss") == STEPS)
    assert points(page.charts.loss, "held_out") >= 2, "before and after training"
    assert page.events.plan is not None
    assert page.events.task.after.rows == 4
    studio.wait(page.task.isVisible)
    return window.bench.run


def points(chart, line):
    """Return the number of points that a chart was given."""
    return len(chart.content.curve(line))


def compare(studio, window):
    studio.press(window.page("train").primary)
    page = window.page("try_out")
    studio.wait(lambda: window.shown_key == "try_out")
    assert (page.left.answerer.key, page.right.answerer.key) == ("base", "tuned")
    page.sampling.longest.setValue(24)
    studio.type_into(page.prompt, "My lamp number 7 is broken?")
    pieces = {"left": 0, "right": 0}
    for name, pane in (("left", page.left), ("right", page.right)):
        stream = pane.stream

        def counted(piece, name=name, stream=stream):
            pieces[name] += 1
            stream(piece)

        pane.stream = counted
    studio.press(page.primary)
    studio.wait(lambda: page.status == "busy")
    studio.wait(lambda: all(len(pane.messages) == 2 for pane in (page.left, page.right)))
    assert all(pane.messages[-1].role == "assistant" for pane in (page.left, page.right))
    assert min(pieces.values()) > 1, "both replies came piece by piece"
    assert "tokens/s" in page.right.state.text()


def export(studio, window, folder):
    page = studio.visit(window, "export")
    studio.wait(page.primary.isEnabled)
    for quant, box in page.choices.types.boxes.items():
        if box.isVisible() and box.isChecked() != (quant == "Q8_0"):
            studio.press(box)
    assert page.choices.types.chosen() == ["Q8_0"]
    seen = set()
    studio.press(page.primary)
    studio.wait(lambda: page.status == "busy" and page.progress.isVisible())

    def ended():
        if page.job is not None and page.job.status == "running":
            seen.add(page.job.share)
        return page.job is not None and page.job.status != "running"

    studio.wait(ended)
    assert page.job.status == "finished", page.job.message
    assert page.job.report.passed
    assert page.job.report.files[0].task.rows == 4
    assert len(seen) > 1, "the bar moved"
    studio.wait(page.fidelity.isVisible)
    assert [path.name for path in RunPaths(Path(folder)).export.glob("*.gguf")]
    assert page.status == "done"


@pytest.mark.full
def test_a_killed_run_is_interrupted_and_resumes_to_its_end(studio, tiny):
    window = studio.open()
    folder = studio.start(window, tiny_recipe(tiny, "first", 400))
    window.bench.set_run(folder)
    page = studio.visit(window, "train")
    told_news = []
    window.notifier.told.connect(lambda news: told_news.append(news.kind))
    window.isActiveWindow = lambda: False  # the person looks elsewhere
    studio.wait_for_step(page, 25)
    assert page.status == "busy"
    kill(read_state(folder).pid)
    studio.wait(lambda: page.summary.standing == "interrupted")
    studio.wait(lambda: page.figures.headline.text() == CURES["killed"].title or os.name == "nt")
    studio.wait(lambda: "SIGKILL" in page.figures.detail.text() or os.name == "nt")
    safe = max(int(marker.parent.name.removeprefix("step-")) for marker in Path(folder).glob("checkpoints/*/COMPLETE"))
    told = read_run(RunPaths(Path(folder)).events).saved_step  # the kill may come between a checkpoint and its event
    studio.wait(lambda: page.events.saved_step == told <= safe)
    assert f"Step {told} is safe" in page.figures.detail.text()
    studio.press(page.copy)
    details = QGuiApplication.clipboard().text()
    assert "first" in details
    assert "recipe.toml" in details
    assert str(Path.home()) not in details
    studio.press(page.primary)
    studio.wait(lambda: len(page.events.starts) == 2)
    assert page.events.started.resumed_from_step == safe
    studio.wait(lambda: page.figures.headline.text() == "Finished")
    assert list(page.events.steps.step.values()) == list(range(1, 401)), "nothing is missing or twice"
    studio.wait(lambda: told_news == ["failed", "done"])


@pytest.mark.full
def test_the_killed_app_finds_its_run_again(qtbot, burnish_home, tiny, tmp_path):
    bench = Workbench()
    bench.set_recipe(tiny_recipe(tiny, "outlives", 100_000))
    bench.save()
    preferences = Preferences()
    preferences.page = "recipe"
    preferences._settings.sync()
    try:
        with running_app(tmp_path / "first.json", "--press") as app:
            shown = app.wait(lambda shown: shown["step"] >= 5)
            folder = shown["run"]
            state = read_state(folder)
            kill(app.process.pid)
        time.sleep(1.0)
        assert is_running(state.pid), "the run outlives the app"
        with running_app(tmp_path / "second.json") as app:
            again = app.wait(lambda now: now["page"] == "train" and now["step"] > shown["step"] + 20)
            assert (again["run"], again["headline"], again["banner"]) == (folder, "Training", "")
            assert not again["heavy"]
        assert read_state(folder).pid == state.pid, "the run never stopped"
    finally:
        end_runs(burnish_home)


class running_app:  # noqa: N801 used as a context
    """The app as a process of its own, with the driver that writes down what it shows."""

    def __init__(self, report, *arguments):
        self.report = report
        command = [sys.executable, str(TESTS / "support" / "app" / "app_driver.py"), str(report), *arguments]
        self.process = subprocess.Popen(command, env={**os.environ, "QT_QPA_PLATFORM": "offscreen"})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def wait(self, is_so):
        """Return what the window shows, once it is so."""
        deadline = time.monotonic() + LONG_MS / 1000
        shown = {}
        while time.monotonic() < deadline:
            if self.report.exists():
                shown = json.loads(self.report.read_text(encoding="utf-8"))
                if is_so(shown):
                    return shown
            assert self.process.poll() is None, "the app ended"
            time.sleep(0.1)
        raise AssertionError(f"the window still shows {shown}")


@pytest.mark.full
def test_a_second_run_waits_for_the_device_and_then_trains(studio, tiny):
    window = studio.open()
    first = studio.start(window, tiny_recipe(tiny, "first", 100_000))
    runs = studio.visit(window, "runs")
    studio.wait(lambda: read_state(first).status == "running")
    second = studio.start(window, tiny_recipe(tiny, "second", 5))
    window.bench.set_run(second)
    train = studio.visit(window, "train")
    studio.wait(lambda: train.figures.headline.text() == "Waiting for first")
    studio.visit(window, "runs")
    studio.wait(lambda: runs.model.row_of(first) >= 0)
    runs.table.selectRow(runs.order.row_of(first))
    studio.press(runs.stop)
    studio.visit(window, "train")
    studio.wait(lambda: train.figures.headline.text() == "Finished")
    assert train.events.step == 5


@pytest.mark.full
def test_a_killed_server_is_started_again_and_answers(studio):
    window = studio.open()
    page = studio.visit(window, "hardware")
    studio.wait(lambda: page.status == "done")
    before = window.client.pid
    lost = []
    window.client.send(MachineRequest, on_failure=lost.append, on_result=lost.append)
    kill(before)
    studio.wait(lambda: window.client.state == "ready" and window.client.pid not in (None, before))
    studio.press(page.check_button)
    studio.wait(lambda: page.status == "busy")
    studio.wait(lambda: page.status == "done")
    assert page.shown_banner is None
    studio.wait(lambda: lost)


@pytest.mark.full
def test_a_window_opened_anew_shows_the_run_it_left(studio, tiny):
    window = studio.open()
    folder = studio.start(window, tiny_recipe(tiny, "first", 100_000))
    window.bench.set_run(folder)
    page = studio.visit(window, "train")
    studio.wait_for_step(page, 10)
    window.close()
    assert is_running(read_state(folder).pid), "the run outlives the window"
    again = studio.open()
    assert again.shown_key == "train"
    page = again.page("train")
    studio.wait_for_step(page, 20)
    studio.press(page.buttons["pause"])
    studio.wait(lambda: page.figures.headline.text() == "Paused")
    studio.wait(lambda: page.events.saved_step == page.events.step)
    studio.press(page.buttons["stop"])
    studio.wait(lambda: page.figures.headline.text() == "Stopped")
    assert page.primary.text() == "Resume"
    assert page.primary.isVisible()
