"""The window sets an engine up from a local release, in its own thread."""

import sys
import threading
import time

import pytest

from burnish_app import window as window_module
from burnish_app.engine_setup import engine_command, engine_work, setup_facts
from burnish_app.engine_setup.engine_work import EngineWork
from burnish_app.widgets.engine.first_start import FirstStart
from burnish_app.wording.activity import Activity
from burnish_engine.contract.paths import user_data_dir
from burnish_engine.install import offer
from burnish_engine.install.engines import engine_python
from burnish_engine.install.machine.machine_facts import Gpu, SetupFacts

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
    assert done(qtbot, work).place.startswith(str(tmp_path / "drive" / "burnish-engine"))
    assert engine_python(home).is_relative_to(tmp_path / "drive")


def test_a_chosen_drive_is_remembered_over_a_restart(home, tmp_path):
    work = EngineWork()
    work.choose_place(str(tmp_path / "drive"))
    assert EngineWork().facts.place == work.facts.place != str(home / "engine")


@pytest.fixture
def engine(home, qtbot, tmp_path, monkeypatch):
    """The work on an engine that is set up from a folder."""
    monkeypatch.delenv(offer.RELEASE_VARIABLE, raising=False)
    work = EngineWork()
    work.take_bundle(str(MadeUpRelease().write(tmp_path / "release")))
    done(qtbot, work)
    work.set_up()
    assert done(qtbot, work).in_use
    return work


def test_a_repair_takes_the_engines_own_release_though_a_newer_one_is_there(engine, home, qtbot, tmp_path):
    work, release = engine, tmp_path / "release"
    newer = MadeUpRelease("0.2.0").write(tmp_path / "newer")
    for path in newer.glob("engine.json*"):
        path.replace(release / path.name)
    work.find()
    assert done(qtbot, work).is_update
    next(engine_python(home).parents[1].rglob("torch/version.py")).write_text("cuda = 13\n", encoding="utf-8")
    work.repair()
    facts = done(qtbot, work)
    assert facts.problem == ("", "")
    assert facts.in_use.startswith("0.1.0")
    assert "damaged" in facts.note


def test_what_failed_is_what_is_tried_again(engine, home, qtbot, tmp_path):
    work, before = engine, engine.facts.place
    (tmp_path / "drive").touch()
    work.move_to(str(tmp_path / "drive"))
    facts = done(qtbot, work)
    assert (facts.failed, facts.place) == ("moving", before)
    (tmp_path / "drive").unlink()
    work.again()
    facts = done(qtbot, work)
    assert (facts.failed, facts.problem) == ("", ("", ""))
    assert engine_python(home).is_relative_to(tmp_path / "drive")


def test_nothing_is_taken_from_under_a_run(engine, home, qtbot):
    engine.set_has_runs(True)
    for act in (engine.repair, engine.remove, lambda: engine.move_to("elsewhere")):
        act()
        assert "running" in done(qtbot, engine).problem[0]
    assert engine_python(home).is_file()


def test_a_window_closes_though_something_hangs(home, qtbot, monkeypatch):
    hangs = threading.Event()
    monkeypatch.setattr(engine_work, "find_release", lambda *_: hangs.wait(60))
    work = EngineWork()
    work.find()
    began_s = time.monotonic()
    work.close()
    hangs.set()
    assert time.monotonic() - began_s < 30


def test_what_nobody_expected_is_reported(home, qtbot, monkeypatch):
    seen = []

    def fails(*_):
        raise LookupError("made up")

    monkeypatch.setattr(engine_work, "find_release", fails)
    monkeypatch.setattr(sys, "excepthook", lambda *caught: seen.append(caught[0]))
    work = EngineWork()
    work.find()
    assert "made up" in done(qtbot, work).problem[0]
    assert seen == [LookupError]


def test_a_window_needs_no_headers_of_its_own_for_an_engine_with_kernels(home, tmp_path, monkeypatch):
    gpu = Gpu("RTX 4090", (8, 9), 24 * 2**30)
    facts = SetupFacts("Linux", "x86_64", (3, 12), gpus=(gpu,), driver=(580,), python_headers=False)
    monkeypatch.setattr(setup_facts, "detect", lambda *_: facts)
    release = MadeUpRelease(target="linux-x86_64-cu130").write(tmp_path / "release")
    found = setup_facts.find_release([str(release)], home)
    assert found.order.target.uses_gpu


def test_a_window_without_an_engine_asks_to_set_one_up(home, window, qtbot, monkeypatch):
    monkeypatch.delenv(offer.RELEASE_VARIABLE, raising=False)
    monkeypatch.setattr(window_module, "sets_engine_up", lambda: True)
    window.show()
    window.begin()
    first = window.findChild(FirstStart)
    assert first.isVisible()
    qtbot.waitUntil(lambda: "No release" in first.card.problem.text(), timeout=60_000)
    window.activity.board.put("runs", [Activity("train", "folder", "run", "Training", 0.5)])
    assert EngineWork.beside(window.client).facts.has_runs
    window.activity.board.put("runs", [])
    window.close()
