"""The Model page over the real engine: the hub is searched, a download outlives the window, damage is found."""

import json
from pathlib import Path

import psutil
import pytest
from app.real.studio import kill, tiny_recipe
from PySide6.QtWidgets import QPushButton

from burnish_engine.contract.paths import RunPaths, fetched_model_dir
from burnish_engine.contract.run.card import RunCard

from support.hubs.hub_server import HubServer

pytestmark = [pytest.mark.gui, pytest.mark.slow, pytest.mark.measured]

NAME, WEIGHTS = "Bench/Tiny-Llama", "model.safetensors"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub that the engine may reach, and no other program's models."""
    with HubServer() as server:
        for name, value in {
            "HF_ENDPOINT": server.url, "BURNISH_OFFLINE": "0", "NO_PROXY": "127.0.0.1,localhost",
            "HF_HUB_CACHE": str(tmp_path / "cache"), "OLLAMA_MODELS": str(tmp_path / "ollama"),
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield server


def search(studio, page, words):
    studio.type_into(page.models.search, words)
    studio.enter(page.models.search)
    studio.wait(lambda: page.models.models.rowCount() == 1 and page.models.selected().found)
    return page.models.selected()


def is_gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.full
def test_a_download_outlives_the_window_and_its_own_process(studio, hub, tiny):
    model = hub.host(NAME, tiny / "model", pause_s=1.0)  # the whole takes long
    window = studio.open()
    page = studio.visit(window, "model")
    found = search(studio, page, "bench tiny")
    assert found.verdict == "good"
    assert found.tokens_per_s > 0
    studio.press(page.models.details.action)
    studio.wait(lambda: NAME in page.queue.lines and page.downloads.of(NAME).bytes_per_s > 0)
    assert "left" in page.queue.lines[NAME]._detail.text()
    window.close()  # the engine ends with it

    window = studio.open()
    page = studio.visit(window, "model")
    studio.wait(lambda: page.downloads.of(NAME) is not None and page.downloads.of(NAME).status == "running")
    studio.press(page.queue.lines[NAME].pause)
    studio.wait(lambda: page.downloads.of(NAME).status == "paused")
    assert not fetched_model_dir(NAME).exists()
    studio.press(page.queue.lines[NAME].go_on)
    studio.wait(lambda: page.downloads.of(NAME).status == "running")
    pid = page.downloads.of(NAME).pid
    kill(pid)
    studio.wait(lambda: is_gone(pid))
    model.pause_s = 0.0
    studio.wait(lambda: page.downloads.of(NAME).status == "finished")
    assert page.downloads.of(NAME).losses == 1
    studio.press(page.queue.lines[NAME].use)
    studio.wait(lambda: page.status == "done")
    assert window.bench.model.name == NAME
    assert page.checked.isVisible()
    assert "published" in page.checked.toolTip()
    studio.wait(lambda: page.models.models.row_of(NAME) >= 0 and page.models.selected().place == "burnish")


@pytest.mark.full
def test_a_byte_that_changed_is_found_before_the_tick(studio, hub, tiny):
    hub.host(NAME, tiny / "model")
    window = studio.open()
    page = studio.visit(window, "model")
    search(studio, page, "bench tiny")
    studio.press(page.models.details.action)
    studio.wait(lambda: NAME in page.queue.lines and page.downloads.of(NAME).status == "finished")
    file = fetched_model_dir(NAME) / WEIGHTS
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    studio.press(page.queue.lines[NAME].use)
    studio.wait(lambda: page.status == "attention")
    assert WEIGHTS in page.shown_banner.what
    assert not page.primary.isEnabled()
    again = [button for button in page.shown_banner.findChildren(QPushButton) if "again" in button.text()]
    studio.press(again[0])
    studio.wait(lambda: page.downloads.of(NAME).status in ("queued", "running"))
    studio.wait(lambda: page.downloads.of(NAME).status == "finished")
    studio.press(page.queue.lines[NAME].use)
    studio.wait(lambda: page.status == "done")
    assert hub.sent(WEIGHTS) == 2 * len(content)


def card(folder):
    """The card of a run that has ended; None before."""
    file = RunPaths(Path(folder)).card
    found = RunCard.model_validate_json(file.read_bytes()) if file.exists() else None
    return found if found and found.result else None


@pytest.mark.full
def test_a_run_goes_on_from_another_s_adapter(studio, tiny, hub):
    window = studio.open()
    first = studio.start(window, tiny_recipe(tiny, "first", 3))
    studio.wait(lambda: card(first))
    page = studio.visit(window, "model")
    studio.wait(lambda: page.status == "done")
    page.refresh_runs.emit()
    studio.wait(lambda: page.start._runs)
    page.start.menu.aboutToShow.emit()
    page.start.menu.actions()[0].trigger()
    studio.wait(lambda: window.bench.recipe.adapter.start == first)
    assert window.bench.model_path == str(tiny / "model")
    assert "rank 2" in page.start._detail.text()
    studio.wait(lambda: page.status == "done")
    recipe = tiny_recipe(tiny, "second", 2)
    start = window.bench.recipe.adapter.model_copy(update={"rank": 7})  # the adapter's own counts
    second = studio.start(window, recipe.model_copy(update={"adapter": start}))
    studio.wait(lambda: card(second))
    weights = {file.name: file.sha256 for file in card(second).start}["adapter_model.safetensors"]
    assert weights == {file.name: file.sha256 for file in card(first).result.files}["adapter_model.safetensors"]
    assert page.start._detail.toolTip() == weights
    config = json.loads((RunPaths(Path(second)).adapter / "adapter_config.json").read_bytes())
    assert config["r"] == 2
