"""One window: a second start hands its files over and ends, and a lock of a dead process holds nobody up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from burnish_app.launch.single_instance import SingleInstance
from burnish_app.state.preferences import studio_dir

pytestmark = pytest.mark.gui

# A start in a process of its own: what it is told, and whether another window took it.
START = """
import sys
from PySide6.QtCore import QCoreApplication
from burnish_app.launch.single_instance import SingleInstance
app = QCoreApplication([])
print("taken" if SingleInstance(app).hand_over(sys.argv[1:]) else "first", flush=True)
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path))


@pytest.fixture
def first(qapp):
    """The window that is open, and what it was called with."""
    instance = SingleInstance(qapp)
    assert not instance.hand_over([])
    instance.calls = []
    instance.called.connect(instance.calls.append)
    yield instance
    instance.close()


def started(*paths, token=""):
    return subprocess.Popen(
        [sys.executable, "-c", START, *paths],
        stdout=subprocess.PIPE,
        env={**os.environ, "XDG_ACTIVATION_TOKEN": token},
        text=True,
    )


def test_a_second_start_hands_its_files_to_the_first_window_and_ends(qtbot, first, monkeypatch):
    monkeypatch.setenv("XDG_ACTIVATION_TOKEN", "")
    paths = ["/data/a b.jsonl", "/data/ü.toml"]
    with started(*paths, token="shown-by-a-click") as second:
        qtbot.waitUntil(lambda: second.poll() is not None, timeout=60_000)
        assert second.stdout.read() == "taken\n"
    assert first.calls == [paths]
    assert os.environ["XDG_ACTIVATION_TOKEN"] == "shown-by-a-click"


def test_the_next_start_opens_a_window_once_the_first_is_closed_or_dead(qtbot, first):
    first.close()
    with started() as second:  # it ends without giving its lock back
        qtbot.waitUntil(lambda: second.poll() is not None, timeout=60_000)
        assert second.stdout.read() == "first\n"
    third = SingleInstance()
    assert not third.hand_over([])
    third.close()


def test_a_window_of_another_data_folder_is_another_window(first, monkeypatch, tmp_path):
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "other"))
    other = SingleInstance()
    assert not other.hand_over(["/data/a.jsonl"])
    other.close()
    assert first.calls == []


def test_a_start_opens_a_window_where_the_first_one_does_not_answer(first, monkeypatch):
    monkeypatch.setattr("burnish_app.launch.single_instance._ANSWER_MS", 30)
    first.server.close()
    second = SingleInstance()
    assert not second.hand_over(["/data/a.jsonl"])


@pytest.mark.parametrize("line", [b"not json\n", b"[]\n", b'{"paths": 3, "token": ""}\n', b'{"paths": ["/a"]}\n'])
def test_what_no_start_wrote_is_left_alone(first, line):
    first.take(line)
    assert first.calls == []


def test_only_the_person_themself_reaches_the_window(first):
    if os.name == "posix":
        assert Path(first.server.fullServerName()).stat().st_mode & 0o077 == 0
        assert studio_dir().stat().st_mode & 0o077 == 0
