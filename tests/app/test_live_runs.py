"""The Train and Runs pages over the real engine: kill and resume, close and re-attach, wait in the queue."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from burnish_app.engine_client import EngineClient
from burnish_app.instrument import HandlerTimes
from burnish_app.preferences import Preferences
from burnish_app.window import Window
from burnish_app.workbench import Workbench
from burnish_engine.contract.protocol import StartRequest
from burnish_engine.contract.recipe import (
    AdapterSection,
    DataSection,
    DevicesSection,
    ModelSection,
    Recipe,
    TrainSection,
)
from burnish_engine.contract.recipe_file import dump_recipe
from burnish_engine.contract.state import RunStateFile

pytestmark = [pytest.mark.gui, pytest.mark.slow]
TESTS = Path(__file__).resolve().parents[1]
MAKE_MODEL = """
import sys
from support.tiny import conversations, make_llama, write_jsonl
make_llama(sys.argv[1])
write_jsonl(sys.argv[2], conversations(60))
"""
LONG_MS = 120_000


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Folder of a tiny model and a data file, made by another process: this one must stay free of torch."""
    folder = tmp_path_factory.mktemp("tiny")
    command = [sys.executable, "-c", MAKE_MODEL, str(folder / "model"), str(folder / "data.jsonl")]
    subprocess.run(command, cwd=TESTS, env={**os.environ, "PYTHONPATH": str(TESTS)}, check=True)
    return folder


def recipe(tiny, name, steps):
    return dump_recipe(
        Recipe(
            name=name,
            model=ModelSection(path=str(tiny / "model")),
            data=DataSection(files=[str(tiny / "data.jsonl")], max_length=64, validation_share=0.1),
            adapter=AdapterSection(rank=2),
            train=TrainSection(
                epochs=1000.0, max_steps=steps, micro_batch_tokens=128, checkpoint_every=10, precision="fp32"
            ),
            devices=DevicesSection(kind="cpu", threads=1),
        )
    )


@pytest.fixture
def studio(qtbot, theme, burnish_home):
    """Opens windows over the real engine; ends every run of the test at its end."""
    opened = []

    def open_window():
        window = Window(EngineClient(), Workbench(), Preferences(), theme)
        qtbot.addWidget(window)
        window.show()
        window.begin()
        opened.append(window)
        qtbot.waitUntil(lambda: window.client.state == "ready", timeout=LONG_MS)
        return window

    yield open_window
    for window in opened:
        window.close()
    for state in (burnish_home / "runs").glob("*/state.json"):
        end(read_state(state.parent))


def read_state(folder):
    return RunStateFile.model_validate_json((Path(folder) / "state.json").read_text(encoding="utf-8"))


def end(state):
    """Kill the process of a run, as a crash would."""
    if state.pid is not None and psutil.pid_exists(state.pid):
        psutil.Process(state.pid).kill()


def start(qtbot, window, tiny, name, steps=100_000):
    """Start a run; returns its folder."""
    done, failed = [], []
    window.client.send(StartRequest, recipe=recipe(tiny, name, steps), on_result=done.append, on_failure=failed.append)
    qtbot.waitUntil(lambda: len(done) + len(failed) > 0, timeout=LONG_MS)
    assert not failed, failed
    return done[0].run


def wait_for_step(qtbot, page, step):
    qtbot.waitUntil(lambda: page.events.step >= step, timeout=LONG_MS)


def test_kill_resume_close_and_attach_again(qtbot, qapp, studio, tiny):
    qapp.times = HandlerTimes()
    window = studio()
    folder = start(qtbot, window, tiny, "first")
    window.bench.set_run(folder)
    window.go_to("train")
    page = window.page("train")
    wait_for_step(qtbot, page, 25)
    assert page.status == "busy"

    end(read_state(folder))
    qtbot.waitUntil(lambda: page.figures.headline.text() == "Interrupted", timeout=LONG_MS)
    safe = page.events.safe_step
    assert safe is not None
    assert f"Step {safe} is safe" in page.figures.detail.text()
    page.primary.click()
    qtbot.waitUntil(lambda: page.events.starts == 2, timeout=LONG_MS)
    assert page.events.started.resumed_from_step == safe
    wait_for_step(qtbot, page, safe + 5)

    window.close()
    assert psutil.pid_exists(read_state(folder).pid), "the run outlives the window"
    seen = page.events.step
    again = studio()
    assert again.shown_key == "train"
    page = again.page("train")
    wait_for_step(qtbot, page, seen + 5)
    assert list(page.events.steps.step.values()) == list(range(1, page.events.step + 1)), "nothing is missing or twice"

    qtbot.waitUntil(page._buttons["pause"].isVisible, timeout=LONG_MS)
    page._buttons["pause"].click()
    qtbot.waitUntil(lambda: page.figures.headline.text() == "Paused", timeout=LONG_MS)
    qtbot.waitUntil(page._buttons["stop"].isEnabled, timeout=LONG_MS)
    page._buttons["stop"].click()
    qtbot.waitUntil(lambda: page.figures.headline.text() == "Stopped", timeout=LONG_MS)
    assert page.primary.text() == "Resume"
    times = qapp.times
    print(json.dumps({"slowest_cpu_ms": times.slowest_cpu_ms, "slowest": times.slowest, "p99_ms": times.wall_p99_ms}))
    assert times.slowest_cpu_ms < 50, times.slowest
    assert not {"torch", "transformers", "triton"} & set(sys.modules)


def test_a_second_run_waits_for_the_device(qtbot, studio, tiny):
    window = studio()
    first = start(qtbot, window, tiny, "first")
    window.go_to("runs")
    runs = window.page("runs")
    deadline = time.monotonic() + 60
    while read_state(first).status != "running" and time.monotonic() < deadline:
        qtbot.wait(100)
    second = start(qtbot, window, tiny, "second", steps=5)
    window.bench.set_run(second)
    window.go_to("train")
    train = window.page("train")
    qtbot.waitUntil(lambda: train.figures.headline.text() == f"Waiting for {Path(first).name}", timeout=LONG_MS)
    window.go_to("runs")
    qtbot.waitUntil(lambda: runs.model.row_of(first) >= 0, timeout=LONG_MS)
    runs.table.selectRow(runs.model.row_of(first))
    runs.stop.click()
    window.go_to("train")
    qtbot.waitUntil(lambda: train.figures.headline.text() == "Finished", timeout=LONG_MS)
    assert train.events.step == 5
