"""Scenes of the frame, Train, Runs and Settings."""

import time
from pathlib import Path

from app.scenes import RUNS, TRAIN_SCENES, write_run
from app.screenshots import scene, settle

from burnish_app.widgets.basic.drop import DropOverlay
from burnish_engine.contract.paths import user_data_dir


def _train(window, name):
    run, events = TRAIN_SCENES[name]
    run = write_run(user_data_dir() / "runs" / Path(run.folder).name, run, events)
    page = window.page("train")
    window.bench.set_run(run.folder)
    page.runs_changed([run])
    deadline = time.monotonic() + 5
    while page.events.seq < len(events) - 1 and time.monotonic() < deadline:
        settle()
    page.runs_changed([run])
    page.shown()
    if run.standing == "running":
        window._runs_updated([run])


for _name in TRAIN_SCENES:
    scene(f"train-{_name}")(lambda window, name=_name: _train(window, name))


@scene("train-empty")
def train_empty(window):
    window.page("train").runs_changed([])


@scene("start-first")
def start_first(window):
    window.page("start").runs_changed([])


@scene("start-recent")
def start_recent(window):
    window.page("start").runs_changed(RUNS)


@scene("runs-empty")
def runs_empty(window):
    window.page("runs").runs_changed([])


@scene("runs-done")
def runs_done(window):
    runs = []
    for run, shown in zip(RUNS, ("training", "queued", "finished", "interrupted", "failed"), strict=True):
        folder = user_data_dir() / "runs" / Path(run.folder).name
        runs.append(write_run(folder, run, TRAIN_SCENES[shown][1]))
    page = window.page("runs")
    page.runs_changed(runs)
    deadline = time.monotonic() + 5
    while not page._outlines.of(runs[-1].folder) and time.monotonic() < deadline:
        settle()
    page.table.selectRow(2)


@scene("runs-asking")
def runs_asking(window):
    page = window.page("runs")
    page.runs_changed(RUNS)
    page.table.selectRow(3)
    page.delete.click()


@scene("settings-done")
def settings(window):
    window.sidebar.set_engine_note("The engine stopped and is being started again.")


@scene("settings-failed")
def engine_down(window):
    window._engine_state("down")


@scene("runs-drop")
def drop(window):
    window.page("runs").runs_changed(RUNS)
    settle()
    window.findChild(DropOverlay).cover()
