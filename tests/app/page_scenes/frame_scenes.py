"""Scenes of the frame, Train, Runs and Settings."""

import time
from dataclasses import replace
from pathlib import Path

from app.facts.run_events import numbered
from app.facts.run_summaries import PREFERRED, RUNS, compared, many_runs, summary, write_run
from app.facts.train_scenes import RANKED, TRAIN_SCENES
from app.page_scenes.screenshots import scene, settle
from app.page_scenes.unusual_runs import long_names, several_gpus, write_hardware
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea

from burnish_app.state.time_left import Remaining
from burnish_app.widgets.basic.drop import DropOverlay
from burnish_app.wording.activity import Activity, activities_of, bench_activity
from burnish_engine.contract.paths import user_data_dir
from burnish_engine.contract.run.events import RunStarted
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.replies import Bench, ExportJob


def _train(window, name):
    return _show_train(window, *TRAIN_SCENES[name])


def _show_train(window, run, events):
    root = user_data_dir() / "runs"
    if run.waits_for:
        held_by = root / Path(run.waits_for).name
        held_by.mkdir(parents=True)
        (held_by / "recipe.toml").write_text('name = "legal-notes"\n', encoding="utf-8")
        run = run.model_copy(update={"waits_for": str(held_by)})
    run = write_run(root / Path(run.folder).name, run, events)
    page = window.page("train")
    window.bench.set_run(run.folder)
    page.runs_changed([run])
    deadline = time.monotonic() + 5
    while page.events.seq < len(events) - 1 and time.monotonic() < deadline:
        settle()
    page.runs_changed([run])
    page.shown()
    if run.standing == "running":
        window.runs_poller.updated.emit([run])
    return page


for _name in TRAIN_SCENES:
    scene(f"train-{_name}")(lambda window, name=_name: _train(window, name))


@scene("train-several")
def train_several(window):
    """Several GPUs, with what was recorded of them."""
    run, lines = TRAIN_SCENES["training"]
    lines = [several_gpus(event) if isinstance(event, RunStarted) else event for event in lines]
    folder = user_data_dir() / "runs" / Path(run.folder).name
    write_run(folder, run, lines)
    write_hardware(folder, lines)
    _show_train(window, run, lines)


@scene("train-ranks")
def train_ranks(window):
    """Several GPUs that share the frozen weights out among them, but for those of four layers."""
    run, lines = TRAIN_SCENES["training"]
    lines = [several_gpus(event) if isinstance(event, RunStarted) else event for event in lines]
    _show_train(window, run, numbered([*lines, RANKED]))


@scene("train-below")
def train_below(window):
    """The end of the page: what it took, the replies, and the log."""
    run, lines = TRAIN_SCENES["finished"]
    folder = user_data_dir() / "runs" / Path(run.folder).name
    write_run(folder, run, lines)
    write_hardware(folder, lines)
    page = _show_train(window, run, lines)
    settle(20)
    bar = page.findChild(QScrollArea).verticalScrollBar()
    bar.setValue(bar.maximum())
    settle(20)


@scene("train-pinned")
def train_pinned(window):
    """The values of all charts at three pinned steps."""
    page = _train(window, "preferring")
    for step in (20, 100, 200):
        page.charts.link.toggle_pin(step)
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page.charts.pinned)


@scene("train-checks")
def train_checks(window):
    """The list of checks, and replies that are wrong, are open."""
    page = _train(window, "finished")
    settle()
    page.verdict._toggle()
    page.task.wrong.button.click()


@scene("train-empty")
def train_empty(window):
    window.page("train").runs_changed([])


@scene("train-closing")
def train_closing(window):
    """The question on closing while something is running."""
    _train(window, "training")
    window.activity.board.put("runs", activities_of([TRAIN_SCENES["training"][0], RUNS[1]]))
    window.preferences.asks_on_close = True
    window.closing.ask()
    settle()
    window.grab_beside = window.closing.question


@scene("runs-activity")
def runs_activity(window):
    """The list of what is running: a run, an export, a download, a run that waits and a benchmark."""
    window.page("runs").runs_changed(RUNS)
    job = ExportJob(status="running", quants=["Q8_0", "Q4_K_M"], what="Making Q4_K_M", share=0.71)
    exported = summary("finished", 600, folder="/runs/e", name="invoice fields").model_copy(update={"export": job})
    waiting = summary("queued", 0, folder="/runs/w", name="second try").model_copy(update={"waits_for": "support-desk"})
    going = activities_of([summary("running", 240), exported, waiting])
    left = (Remaining.about(730.0), Remaining.about(95.0), None)
    board = window.activity.board
    board.put("runs", [replace(one, left=known) for one, known in zip(going, left, strict=True)])
    fetched = Activity(
        "model", "Qwen/Qwen3-4B", "Qwen3 4B", "Downloading", 0.32, stage="2.6 of 8.1 GB", left=Remaining.about(300.0)
    )
    board.put("model", [fetched])
    bench = Bench(kind="step", about="qwen3-0.6b", started=0.0, share=0.44, pid=1, process_created=0.0)
    board.put("benches", [replace(bench_activity(bench), left=Remaining.about(40.0))])
    window.sidebar.activity.click()


@scene("start-first")
def start_first(window):
    window.page("start").runs_changed([])


@scene("start-recent")
def start_recent(window):
    page = window.page("start")
    runs = many_runs(user_data_dir() / "runs")
    page.runs_changed(runs)
    deadline = time.monotonic() + 5
    while not page.to_continue.curve.values and time.monotonic() < deadline:
        settle()


@scene("start-one")
def start_one(window):
    """After the first run."""
    page = window.page("start")
    page.runs_changed(many_runs(user_data_dir() / "runs")[2:3])
    deadline = time.monotonic() + 5
    while not page.to_continue.curve.values and time.monotonic() < deadline:
        settle()


@scene("runs-empty")
def runs_empty(window):
    window.page("runs").runs_changed([])


def _runs(window, runs):
    page = window.page("runs")
    page.runs_changed(runs)
    deadline = time.monotonic() + 5
    while not page._outlines.of(runs[-1].folder) and time.monotonic() < deadline:
        settle()
    page.runs_changed(runs)
    return page


@scene("runs-one")
def runs_one(window):
    _runs(window, many_runs(user_data_dir() / "runs")[2:3]).table.selectRow(0)


@scene("runs-done")
def runs_done(window):
    _runs(window, many_runs(user_data_dir() / "runs")).table.selectRow(2)


@scene("runs-preferred")
def runs_preferred(window):
    """A run that learned from preferences, among others."""
    page = window.page("runs")
    page.runs_changed([*RUNS, PREFERRED])
    page._select([PREFERRED.folder])


@scene("runs-several")
def runs_several(window):
    page = _runs(window, many_runs(user_data_dir() / "runs"))
    page._select([run.folder for run in page._runs[2:5]])


@scene("runs-filtered")
def runs_filtered(window):
    page = _runs(window, many_runs(user_data_dir() / "runs"))
    page.filter.setText("rate")
    page.table.sortByColumn(7, Qt.SortOrder.AscendingOrder)
    page.table.selectRow(0)


@scene("runs-nothing")
def runs_nothing(window):
    """A filter that nothing matches."""
    _runs(window, many_runs(user_data_dir() / "runs")).filter.setText("no such run")


@scene("runs-long_names")
def runs_long_names(window):
    _runs(window, long_names(many_runs(user_data_dir() / "runs"))).table.selectRow(2)


@scene("runs-deleted")
def runs_deleted(window):
    page = _runs(window, many_runs(user_data_dir() / "runs"))
    page._deleted._open = 1
    page._deleted._deleted("rate 3e-4", Result(id="x", run="/runs/x"))


@scene("settings-done")
def settings(window):
    window.sidebar.set_engine_note("The engine stopped and is being started again.")


@scene("settings-failed")
def engine_down(window):
    window._engine_state("down")


@scene("start-example")
def start_failed(window):
    """The banner where a folder is no run's."""
    window.page("start").runs_changed(RUNS)
    window.page("start").open_folder(str(Path.home()))


@scene("runs-drop")
def drop(window):
    window.page("runs").runs_changed(RUNS)
    settle()
    window.findChild(DropOverlay).cover()


@scene("compare-empty")
def compare_empty(window):
    window.page("compare").runs_changed([])


def _compared(window, places, change=list):
    """Compare some of many runs, as the engine would."""
    runs = change(many_runs(user_data_dir() / "runs"))
    chosen = [runs[place] for place in places]
    page = window.page("compare")
    page.runs_changed(runs)
    window.bench.set_compared([run.folder for run in chosen])
    page.shown()
    page.view.show_comparison(compared(chosen))
    deadline = time.monotonic() + 5
    while not len(page.view.charts.curves.axis.steps) > 1 and time.monotonic() < deadline:
        settle()
    settle()
    return page


@scene("compare-two")
def compare_two(window):
    _compared(window, (2, 3))


@scene("compare-five")
def compare_five(window):
    _compared(window, (2, 3, 4, 5, 0))


@scene("compare-long_names")
def compare_long_names(window):
    _compared(window, (2, 3, 4), long_names)


@scene("compare-below")
def compare_below(window):
    page = _compared(window, (2, 3, 4))
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page.view.replies)
