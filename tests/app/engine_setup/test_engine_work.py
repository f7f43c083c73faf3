"""The window sets an engine up from a local release, in its own thread."""

import sys

import pytest

from burnish_app import window as window_module
from burnish_app.engine_setup import engine_command, setup_facts
from burnish_app.engine_setup.engine_work import EngineWork
from burnish_app.widgets.engine.first_start import FirstStart
from burnish_engine.contract.paths import user_data_dir
from burnish_engine.install import offer
from burnish_engine.install.engines import engine_python
from burnish_engine.install.machine.machine_facts import SetupFacts

from support.engine_mirror import KEY, MadeUpRelease, mirror

pytestmark = [pytest.mark.gui, pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for uv is a script")]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(setup_facts, "detect", lambda _root, _env, python: SetupFacts("Linux", "x86_64", python))
    monkeypatch.setenv(offer.KEY_VARIABLE, KEY.text().splitlines()[1])
    return tmp_path / "home"


def done(qtbot, work):
    qtbot.waitUntil(lambda: not work.facts.doing, timeout=120_000)
    return work.facts


def test_the_window_sets_an_engine_up_updates_it_and_goes_back(home, qtbot, monkeypatch):
    with mirror(MadeUpRelease()) as served:
        monkeypatch.setenv(offer.RELEASE_VARIABLE, served.address)
        work, switched = EngineWork(), []
        work.switched.connect(lambda: switched.append(work.facts.in_use))
        work.find()
        facts = done(qtbot, work)
        assert facts.problem == ("", "")
        assert facts.fetch_bytes > 0
        work.set_up()
        assert done(qtbot, work).in_use.startswith("0.1.0")
        served.serve(MadeUpRelease("0.2.0"))
        work.find(was_asked=True)
        assert done(qtbot, work).is_update
        work.set_up()
        assert done(qtbot, work).former.startswith("0.1.0")
        work.roll_back()
        assert done(qtbot, work).in_use.startswith("0.1.0")
        assert [one[:5] for one in switched] == ["0.1.0", "0.2.0", "0.1.0"]
        monkeypatch.setattr(engine_command, "sets_engine_up", lambda: True)
        assert engine_command.serve_command()[0] == str(engine_python(user_data_dir()))
        work.remove()
        done(qtbot, work)
        assert engine_command.serve_command() == ()


@pytest.mark.parametrize("sets_engine_up", [False, True])
def test_a_python_that_is_named_runs_the_engine(monkeypatch, sets_engine_up):
    monkeypatch.setattr(engine_command, "sets_engine_up", lambda: sets_engine_up)
    monkeypatch.setenv(engine_command.ENGINE_VARIABLE, "other/python")
    assert engine_command.serve_command()[0] == "other/python"


def test_a_release_that_is_not_there_is_told(home, qtbot, monkeypatch):
    monkeypatch.delenv(offer.RELEASE_VARIABLE, raising=False)
    work = EngineWork()
    work.find()
    assert "No release" in done(qtbot, work).problem[0]


def test_a_bundle_is_taken_and_the_engine_goes_where_it_was_chosen(home, qtbot, tmp_path, monkeypatch):
    monkeypatch.delenv(offer.RELEASE_VARIABLE, raising=False)
    work = EngineWork()
    work.take_bundle(str(MadeUpRelease().write(tmp_path / "release")))
    assert done(qtbot, work).fetch_bytes == 0
    work.choose_place(str(tmp_path / "drive"))
    work.set_up()
    assert done(qtbot, work).place == str(tmp_path / "drive" / "burnish-engine")
    assert engine_python(home).is_relative_to(tmp_path / "drive")


def test_a_window_without_an_engine_asks_to_set_one_up(home, window, qtbot, monkeypatch):
    monkeypatch.delenv(offer.RELEASE_VARIABLE, raising=False)
    monkeypatch.setattr(window_module, "sets_engine_up", lambda: True)
    window.show()
    window.begin()
    first = window.findChild(FirstStart)
    assert first.isVisible()
    qtbot.waitUntil(lambda: "No release" in first.card.problem.text(), timeout=60_000)
    window.close()
