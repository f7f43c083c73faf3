"""Notifications over the real engine: each end of a run or an export is told once, and leads to the page about it."""

from functools import partial
from pathlib import Path

import pytest
from app.real.studio import kill, read_state, tiny_recipe

from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.contract.serve.export_requests import ExportRequest
from burnish_engine.contract.serve.replies import ExportJob

pytestmark = [pytest.mark.gui, pytest.mark.slow, pytest.mark.measured]


@pytest.fixture
def told(studio):
    """A window that is not looked at, and what it told since. It lists the runs every 1.5 s, as that page needs."""
    window, found = studio.open(), []
    studio.visit(window, "runs")
    window.notifier.told.connect(found.append)
    window.isActiveWindow = lambda: False
    return window, found


def leads_to(window, news):
    """Press a notification and return the page and the run that the window then shows."""
    window.visit("settings")
    window.bench.set_run("")
    window.notifier.chosen.emit(news)
    return window.shown_key, window.bench.run


@pytest.mark.full
def test_a_run_that_does_not_train_needs_attention_once(studio, tiny, told):
    window, found = told
    recipe = tiny_recipe(tiny, "idle", 100_000)
    train = TrainSection(**{**recipe.train.model_dump(), "learning_rate": 1e-300})
    guard = recipe.guard.model_copy(update={"action": "warn"})
    folder = studio.start(window, recipe.model_copy(update={"train": train, "guard": guard}))
    studio.wait(lambda: found)
    looks = []
    window._runs_poller.updated.connect(looks.append)
    studio.wait(lambda: len(looks) > 2)
    assert [news.kind for news in found] == ["attention"]
    assert leads_to(window, found[0]) == ("train", folder)


@pytest.mark.full
def test_each_end_of_a_run_and_of_an_export_is_told_once(studio, tiny, told):
    window, found = told
    killed = studio.start(window, tiny_recipe(tiny, "killed", 100_000))
    studio.wait(lambda: read_state(killed).step >= 3)
    kill(read_state(killed).pid)
    studio.wait(lambda: len(found) == 1)
    done = studio.start(window, tiny_recipe(tiny, "done", 10))
    studio.wait(lambda: len(found) == 2)
    export = partial(window.client.send, ExportRequest, run=done, to="gguf", quants=["Q8_0"])
    export()
    studio.wait(lambda: len(found) == 3)
    first = read_job(done)
    export()
    studio.wait(lambda: read_job(done).started != first.started and read_job(done).pid)
    kill(read_job(done).pid)
    studio.wait(lambda: len(found) == 4)
    told_of = [(news.kind, news.page, news.folder) for news in found]
    assert told_of == [
        ("failed", "train", killed), ("done", "train", done), ("done", "export", done), ("failed", "export", done)
    ]  # fmt: skip
    assert [leads_to(window, news) for news in found] == [(page, folder) for _, page, folder in told_of]


def read_job(folder):
    """Read a run's export job."""
    return ExportJob.model_validate_json((RunPaths(Path(folder)).export / "job.json").read_text(encoding="utf-8"))
