"""`burnish runs show` and `burnish runs queue`: what a run's figures were, how it continues, and what it waits for."""

import time

import pytest

from burnish_engine.cli.main import main
from burnish_engine.cli.training import runs as module
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.commands import Command
from burnish_engine.contract.run.events import StepDone
from burnish_engine.runs.events_file import EventWriter
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.process import own_identity
from burnish_engine.runs.store import create_run, read_state, write_state


def make(name, status="finished", **figures):
    """A run with one step."""
    paths = create_run(Recipe(), runs_dir() / name)
    write_state(paths, read_state(paths).model_copy(update={"status": status}))
    events = EventWriter(paths.events)
    events.write(
        StepDone(
            step=1, epoch=0.0, loss=0.5, learning_rate=1e-3, grad_norm=1.0, tokens=9, supervised_tokens=5,
            tokens_per_s=1.0, supervised_tokens_per_s=1.0, step_s=1.0, memory_bytes=1, eta_s=0.0, **figures,
        )
    )  # fmt: skip
    events.close()
    return paths


def bring_to_life(paths):
    """Make this process the one that trains a run."""
    pid, created = own_identity()
    own = {"pid": pid, "process_created": created, "heartbeat": time.time()}
    write_state(paths, read_state(paths).model_copy(update=own))


@pytest.mark.full
def test_steps_of_preferences_have_their_margin(capsys):
    make("pairs", margin=0.25, accuracy=1.0)
    make("rows")
    for name, known in (("pairs", True), ("rows", False)):
        assert main(["runs", "show", name]) == 0
        assert ("margin 0.25" in capsys.readouterr().out) is known


@pytest.mark.parametrize(
    ("status", "alive", "goes_on"),
    [
        ("stopped", False, True), ("suspended", False, True), ("running", False, True), ("paused", True, True),
        ("running", True, False), ("finished", False, False),
    ],
)  # fmt: skip
def test_a_run_that_can_go_on_says_by_which_command(capsys, status, alive, goes_on):
    paths = make("lamp", status)
    if alive:
        bring_to_life(paths)
    assert main(["runs", "show", "lamp"]) == 0
    assert ("burnish runs resume lamp" in capsys.readouterr().out) is goes_on


@pytest.mark.parametrize(
    ("typed", "sent"),
    [(["stop"], "stop"), (["stop", "--now"], "stop_now"), (["smaller-plan"], "smaller_plan"), (["pause"], "pause")],
)
def test_a_command_reaches_the_run_as_it_was_meant(capsys, monkeypatch, typed, sent):
    monkeypatch.setattr(module, "_ACK_TIMEOUT_S", 0.0)
    paths = make("lamp", "running")
    bring_to_life(paths)
    assert main(["runs", typed[0], "lamp", *typed[1:]]) == 0
    assert [Command.model_validate_json(line).name for line in paths.control.read_text().splitlines()] == [sent]
    assert "not answered yet" in capsys.readouterr().out


def test_a_run_that_waits_is_not_listed_as_started(capsys):
    lease.enqueue(make("wick", "created"), "cpu")
    assert main(["runs", "list"]) == 0
    listed = capsys.readouterr().out
    assert "queued" in listed
    assert "started" not in listed
    assert "0/0" not in listed


def test_a_waiting_run_names_the_run_that_holds_its_device(capsys):
    holder, waiting = make("lamp", "running"), make("wick", "created")
    lease.acquire("cpu", holder)
    lease.enqueue(waiting, "cpu")
    try:
        assert main(["runs", "queue"]) == 0
    finally:
        lease.release(holder)
    line = capsys.readouterr().out
    assert line.index("wick") < line.index("cpu") < line.index("lamp")
    assert str(holder.root) not in line


def test_a_run_has_a_page_that_says_how_it_is_used(tmp_path, capsys):
    make("lamp")
    page = tmp_path / "lamp.html"
    assert main(["runs", "report", "lamp", "--out", str(page)]) == 0
    assert str(page) in capsys.readouterr().out.replace("\n", "")
    text = page.read_text(encoding="utf-8")
    assert "burnish chat lamp" in text
    assert "<h1>lamp</h1>" in text
    page.write_text("mine", encoding="utf-8")
    assert main(["runs", "report", "lamp", "--out", str(page)]) == 2
    assert page.read_text(encoding="utf-8") == "mine"
