"""Which Python runs the engine: the window's own, unless the window is frozen or another one is named."""

import os
import sys
from pathlib import Path

import pytest

from burnish_app.engine.client_there import serve_on
from burnish_app.engine.engine_client import EngineClient
from burnish_app.launch.engine_command import ENGINE_VARIABLE, engine_python, engines_dir, serve_command

PYTHON = Path("Scripts", "python.exe") if os.name == "nt" else Path("bin", "python")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path))
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)


@pytest.fixture
def frozen(monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)


def test_a_window_with_an_engine_of_its_own_starts_that():
    assert serve_command()[0] == sys.executable


def test_a_frozen_window_starts_the_engine_that_was_set_up_last(frozen, tmp_path):
    assert engine_python() == engines_dir() / "current" / PYTHON
    engines_dir().mkdir()
    for named in ("0.1.0", str(tmp_path / "other drive" / "0.2.0")):
        (engines_dir() / "current").write_text(f"{named}\n", encoding="utf-8")
        assert engine_python() == engines_dir() / named / PYTHON


def test_a_named_python_is_taken_before_any_other(frozen, monkeypatch):
    monkeypatch.setenv(ENGINE_VARIABLE, "/opt/engine/python")
    assert serve_command()[0] == serve_on("ssh:office")[0] == str(Path("/opt/engine/python"))


@pytest.mark.gui
def test_a_client_starts_the_engine_that_is_there_at_that_time(qtbot, frozen, monkeypatch, tmp_path):
    client = EngineClient()
    monkeypatch.setenv(ENGINE_VARIABLE, str(tmp_path / "missing"))
    client.start()
    qtbot.waitUntil(lambda: client.state == "restarting", timeout=30_000)
    monkeypatch.setenv(ENGINE_VARIABLE, sys.executable)
    qtbot.waitUntil(lambda: client.state == "ready", timeout=120_000)
    client.close()
