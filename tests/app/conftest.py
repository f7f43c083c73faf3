"""A window without a screen, a stand-in for the engine, and a workbench of its own for each test."""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from burnish_app import window as window_module
from burnish_app.engine import engine_there
from burnish_app.engine.engine_client import EngineClient
from burnish_app.garbage import GarbageCollector
from burnish_app.instrument import MeasuredApplication
from burnish_app.look.theme import Theme
from burnish_app.state.preferences import Preferences
from burnish_app.state.workbench import Workbench
from burnish_app.window import Window
from burnish_engine.contract.serve.model_requests import MachineRequest

from support.app.held_client import HeldClient

PATIENCE_MS = 30_000
FAKE = Path(__file__).resolve().parents[1] / "support" / "app" / "fake_serve.py"


class Answers:
    """Keeps the answers of the stand-in engine, and the requests that it got."""

    def __init__(self, file):
        self.file = file
        self._answers = {}

    def set(self, method, *messages):
        """Answer a method with these messages from now on."""
        self._answers[method] = list(messages)
        aside = self.file.with_suffix(".tmp")
        aside.write_text(json.dumps(self._answers), encoding="utf-8")
        aside.replace(self.file)

    def result(self, method, **fields):
        """Answer a method with one result; pydantic models are taken as they are."""
        plain = {key: to_plain(value) for key, value in fields.items()}
        self.set(method, {"type": "result", **plain})

    def failure(self, method, what, remedy="", exit_code=1):
        """Answer a method with a failure."""
        self.set(method, {"type": "failure", "what": what, "remedy": remedy, "exit_code": exit_code})

    def asked(self, method):
        """Requests of a method so far, oldest first."""
        log = Path(f"{self.file}.log")
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()  # the last one may be half written
        return [request for request in map(json.loads, lines) if request["method"] == method]


def to_plain(value):
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return [to_plain(item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="session")
def qapp_cls(request):
    """pytest-qt makes the application of this class: it measures every handler where a test asks for that.

    A window takes twice as long there, since Qt asks Python about every event.
    """
    measured = any(item.get_closest_marker("measured") for item in request.session.items)
    return MeasuredApplication if measured else QApplication


class PatientBot(QtBot):
    """Waits long for what must come: on a busy machine the same takes many times as long."""

    def waitUntil(self, callback, *, timeout=PATIENCE_MS):  # noqa: N802 pytest-qt's name
        super().waitUntil(callback, timeout=timeout)

    def waitSignal(self, signal, *, timeout=PATIENCE_MS, **options):  # noqa: N802 pytest-qt's name
        return super().waitSignal(signal, timeout=timeout, **options)


@pytest.fixture
def qtbot(qapp, request):
    return PatientBot(request)


@pytest.fixture(scope="module", autouse=True)
def collector(qapp):
    """Collects as in the studio, so that no test dies of widgets that another left. Other folders' tests go without."""
    made = GarbageCollector()
    made.freeze_and_start()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def nothing_left():
    """Delete what the test closed, and release a key that it left held.

    Left to a later event loop, each change of style goes through all closed widgets. A key that was pressed with Ctrl
    where the press moved the focus leaves Ctrl held, and the next test would select rows in addition to others.
    """
    yield
    if QCoreApplication.instance() is not None:
        if QGuiApplication.keyboardModifiers():
            QTest.keyRelease(QWidget(), Qt.Key.Key_Control, Qt.KeyboardModifier.NoModifier)
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


@pytest.fixture(autouse=True)
def pages_only_when_visited(request, monkeypatch):
    """No window makes pages that its test does not visit, a dozen each; measured windows do, and those of test_window.

    As it does so beside other work, how many of them a test would meet depends on how busy the machine is.
    """
    if request.node.get_closest_marker("measured") is None:
        monkeypatch.setattr(window_module, "_PREPARE_MS", 3_600_000)


@pytest.fixture(scope="session", autouse=True)
def theme(qapp):
    """The studio's look and fonts, on which every width depends: each test has them, whichever tests ran before."""
    return Theme(qapp)


@pytest.fixture(autouse=True)
def closes_unasked(request, monkeypatch):
    """Windows close without a question, unless the test asks for the fixture `asked_on_closing`."""
    if "asked_on_closing" not in request.fixturenames:
        monkeypatch.setattr(Preferences, "asks_on_close", False)


@pytest.fixture
def asked_on_closing(closes_unasked):
    """The window asks before it closes, as it does for people."""


@pytest.fixture
def answers(tmp_path):
    return Answers(tmp_path / "answers.json")


@pytest.fixture
def make_client(qapp, answers):
    """Makes clients of the stand-in engine; not started."""
    made = []

    def make():
        made.append(EngineClient((sys.executable, "-S", str(FAKE), str(answers.file))))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def office(tmp_path, monkeypatch):
    """Answers of the engine of every other machine; a stand-in for the transport too, so that nothing is reached."""
    made = Answers(tmp_path / "office.json")
    command = (sys.executable, "-S", str(FAKE), str(made.file))
    monkeypatch.setattr(engine_there, "serve_on", lambda _where: command)
    return made


@pytest.fixture
def client(make_client):
    """A client of the stand-in engine; not started."""
    return make_client()


@pytest.fixture
def answered(qtbot, client):
    """Waits until the stand-in engine has answered all that it was asked: it does so in order."""

    def wait():
        done = []
        client.send(MachineRequest, on_result=done.append, on_failure=done.append)
        qtbot.waitUntil(lambda: len(done) > 0)

    return wait


@pytest.fixture
def bench(qapp, burnish_home):
    return Workbench()


@pytest.fixture
def run(tmp_path, bench):
    """The workbench's run: trained, and not exported yet."""
    folder = tmp_path / "runs" / "support-desk"
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter" / "adapter_model.safetensors").write_bytes(b"x")
    (folder / "export").mkdir()
    bench.set_run(str(folder))
    return folder


@pytest.fixture
def other_run(tmp_path):
    """The folder of a run that exports and stops in its own way."""
    folder = tmp_path / "another"
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter" / "adapter_model.safetensors").write_bytes(b"x")
    (folder / "recipe.toml").write_text('[export]\nquants = ["Q6_K"]\n[evaluation]\npatience = 4\n', encoding="utf-8")
    return folder


@pytest.fixture
def held(qapp):
    """A client whose engine answers when the test says so; no process."""
    made = HeldClient()
    yield made
    made.close()


@pytest.fixture
def open_window(qtbot, bench, theme):
    """Opens the whole window over a client, shown and begun."""

    def opened(client):
        made = Window(client, bench, Preferences(), theme)
        qtbot.addWidget(made)
        made.show()
        made.begin()
        return made

    return opened


@pytest.fixture
def window(open_window, client):
    """The whole window over the stand-in engine."""
    return open_window(client)


@pytest.fixture
def held_window(open_window, held):
    """The whole window over an engine that answers when the test says so."""
    return open_window(held)
