"""`burnish studio` starts the app, or says what is missing."""

import os
import subprocess
import sys

import pytest

from burnish_engine.cli.main import main
from burnish_engine.cli.start import studio


@pytest.fixture
def screen(monkeypatch):
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")


@pytest.mark.parametrize("missing", ["PySide6", "burnish_app"])
def test_a_missing_part_is_told(monkeypatch, screen, capsys, missing):
    monkeypatch.setattr(studio.importlib.util, "find_spec", lambda name: None if name == missing else object())
    assert main(["studio"]) == 12
    assert "Run the set-up again" in " ".join(capsys.readouterr().err.split())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there is always a screen")
def test_without_a_screen_it_says_so(monkeypatch, capsys):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    assert main(["studio"]) == 12
    assert "no screen" in capsys.readouterr().err


@pytest.mark.full
def test_the_app_gets_the_process_and_its_exit_code(tmp_path):
    """With a stand-in for the app, which must not be imported to be found."""
    package = tmp_path / "burnish_app"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "__main__.py").write_text("import os, sys; print('app', flush=True); sys.exit(7)", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "burnish_engine.cli.main", "studio"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "QT_QPA_PLATFORM": "offscreen"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (7, "app"), done.stderr
