"""The real studio for end-to-end tests: windows over the real engine, real clicks, runs of a tiny model."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
from filelock import FileLock
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication

from burnish_app.engine.engine_client import EngineClient
from burnish_app.page_list import PANEL, row_of, tabs_of
from burnish_app.state.preferences import Preferences
from burnish_app.state.workbench import Workbench
from burnish_app.window import Window
from burnish_engine.contract.recipe.recipe import DevicesSection, ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection, TrainSection
from burnish_engine.contract.run.state import RunStateFile
from burnish_engine.contract.serve.run_requests import StartRequest

TESTS = Path(__file__).resolve().parents[2]
LONG_MS = 300_000
HEAVY = {"torch", "transformers", "triton"}
_MAKE = """
import sys
from support.models.tiny import conversations, make_llama, write_jsonl
make_llama(sys.argv[1])
write_jsonl(sys.argv[2], conversations(3000))
"""


def make_tiny(folder, shared, rows=300):
    """Lay a tiny model and a data file into a folder.

    They are made once for all tests, below `shared`, by another process, because this one must stay free of torch.
    """
    made = shared / "tiny studio"
    with FileLock(f"{made}.lock"):
        if not made.exists():
            aside = shared / "tiny studio in the making"
            command = [sys.executable, "-c", _MAKE, str(aside / "model"), str(aside / "data.jsonl")]
            subprocess.run(command, cwd=TESTS, env={**os.environ, "PYTHONPATH": str(TESTS)}, check=True)
            aside.rename(made)
    shutil.copytree(made, folder, dirs_exist_ok=True)
    data = folder / "data.jsonl"
    data.write_text("".join(data.read_text(encoding="utf-8").splitlines(keepends=True)[:rows]), encoding="utf-8")
    return folder


def tiny_recipe(tiny, name, steps, *, checkpoint_every=10):
    """Return a recipe for the CPU with one thread."""
    return Recipe(
        name=name,
        model=ModelSection(path=str(tiny / "model")),
        data=DataSection(files=[str(tiny / "data.jsonl")], max_length=64, validation_share=0.1),
        adapter=AdapterSection(rank=2),
        train=TrainSection(
            epochs=1000.0, max_steps=steps, micro_batch_tokens=128, checkpoint_every=checkpoint_every, precision="fp32"
        ),
        devices=DevicesSection(kind="cpu", threads=1),
    )


class Studio:
    """Opens windows over the real engine.

    Args:
        qtbot: pytest-qt's bot, which waits and clicks.
        theme: theme of the application.
        collector: garbage collector of the application.
        home: folder that BURNISH_HOME points to.
    """

    def __init__(self, qtbot, theme, collector, home):
        self._qtbot, self._theme, self._collector, self._home = qtbot, theme, collector, home
        self._opened = []

    def open(self):
        """Open a window and wait until its engine answers."""
        window = Window(EngineClient(), Workbench(), Preferences(), self._theme)
        self._qtbot.addWidget(window)
        window.grown.connect(self._collector.freeze_and_start)
        window.show()
        window.begin()
        self._opened.append(window)
        self.wait(lambda: window.client.state == "ready")
        return window

    def close(self):
        """Close all windows and end every run."""
        for window in self._opened:
            window.close()
        end_runs(self._home)

    def wait(self, condition):
        """Process events until a condition holds."""
        self._qtbot.waitUntil(lambda: bool(condition()), timeout=LONG_MS)

    def press(self, button):
        """Click a button with a real mouse event, once it is visible and enabled."""
        self.wait(lambda: button.isVisible() and button.isEnabled())
        self._qtbot.mouseClick(button, Qt.MouseButton.LeftButton)

    def visit(self, window, key):
        """Go to a page by its row in the sidebar, its tab on Runs, or the card on Start, and return the page."""
        if key == PANEL:
            self.press(self.visit(window, "start").machine.open_button)
        else:
            self.press(window.sidebar.button(row_of(key)))
            if tabs_of(key):
                self.wait(lambda: window.shown_key == row_of(key))
                self.press(window.page(window.shown_key).tabs.tab(key))
        self.wait(lambda: window.shown_key == key)
        return window.page(key)

    def type_into(self, edit, text):
        """Replace an edit's text, key by key."""
        edit.setFocus()
        edit.selectAll()
        self._qtbot.keyClicks(edit, text)

    def press_key(self, widget, key):
        """Press a key in a widget."""
        self._qtbot.keyClick(widget, key)

    def enter(self, edit):
        """Press Return in an edit."""
        self.press_key(edit, Qt.Key.Key_Return)

    def drop(self, window, *paths):
        """Drag files over the window and drop them."""
        data = QMimeData()
        data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
        how = (Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
        enter = QDragEnterEvent(QPoint(400, 300), *how)
        QApplication.sendEvent(window, enter)
        assert enter.isAccepted(), "the window takes files"
        drop = QDropEvent(QPointF(400, 300), *how)
        QApplication.sendEvent(window, drop)
        assert drop.isAccepted()

    def start(self, window, recipe):
        """Start a run without the Recipe page and return its folder."""
        done, failed = [], []
        window.client.send(StartRequest, recipe=dump_recipe(recipe), on_result=done.append, on_failure=failed.append)
        self.wait(lambda: done or failed)
        assert not failed, failed
        return done[0].run

    def wait_for_step(self, page, step):
        """Wait until the Train page knows of a step."""
        self.wait(lambda: page.events.step >= step)


def read_state(folder):
    """Read a run's state file."""
    return RunStateFile.model_validate_json((Path(folder) / "state.json").read_text(encoding="utf-8"))


def kill(pid):
    """Kill a process, as a crash would."""
    if pid is not None and is_running(pid):
        psutil.Process(pid).kill()


def is_running(pid):
    """Whether the process exists and is not a zombie."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def end_runs(home):
    """Kill the process of every run and empty the queue, so that nothing outlives the test."""
    for entry in (home / "queue").glob("*.json"):
        entry.unlink()
    for state in (home / "runs").glob("*/state.json"):
        kill(read_state(state.parent).pid)


def assert_light():
    """Assert that the window's process never imported the engine's heavy packages."""
    assert not HEAVY & set(sys.modules)
