"""Window, command line, comparison, export and duel tell the same about a run that resumed and rolled back."""

import json
import math
import shutil
from pathlib import Path

import pytest

from burnish_app.engine.run_follower import EventsReader
from burnish_app.wording.run_text import plan_text
from burnish_engine.cli.main import main
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.run.events import BestKept, EvaluationDone, RolledBack, RunEnded, RunMeasurement
from burnish_engine.contract.units import memory_size
from burnish_engine.duel.measures.outcome import outcome_of
from burnish_engine.duel.sides.spec import RunSpec
from burnish_engine.runs.compare.compare import compared_run
from burnish_engine.runs.events_file import EventWriter, read_events
from burnish_engine.runs.held_out import reported_loss
from burnish_engine.runs.store import open_run

RECORDED = Path(__file__).resolve().parent / "golden" / "runs"
SPEC = RunSpec(side=0, phase="seeds", seed=1, rate=1e-3)


def until(events, kind, step):
    """The events up to the one of this kind and step."""
    last = next(place for place, event in enumerate(events) if event.type == kind and event.step == step)
    return events[: last + 1]


def spoiled(event):
    """A step that does not count: whoever counts it shows it."""
    return event.model_copy(update={"loss": math.nan, "tokens": 10**6, "step_s": 1000.0, "tokens_per_s": 1e6})


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A recorded run, killed after step 4 and resumed from step 3, which rolled back from step 8 to step 6."""
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    shutil.copytree(RECORDED / "fast-part", runs_dir() / "run")
    paths = open_run("run")
    whole = list(read_events(RECORDED / "fast-whole" / "events.jsonl"))
    *first, lost = until(list(read_events(paths.events)), "step", 4)
    started = next(event for event in whole if event.type == "run_started")
    resumed = started.model_copy(update={"pid": started.pid + 1, "resumed_from_step": 3})
    to_6 = until(whole, "checkpoint", 6)
    again = [event for event in to_6 if getattr(event, "step", 4) > 3]
    wrong_way = [spoiled(event) for event in whole if event.type == "step" and event.step in {7, 8}]
    wrong_way.append(EvaluationDone(step=8, loss=99.0, tokens=1, seconds=1.0))
    events = [
        *first, spoiled(lost),
        *(resumed if event.type == "run_started" else event for event in again), *wrong_way,
        resumed.model_copy(update={"resumed_from_step": 6}),
        RolledBack(step=8, to_step=6, factor=0.5, reason="The loss was nan."),
        *whole[len(to_6) :],
    ]  # fmt: skip
    paths.events.unlink()
    writer = EventWriter(paths.events)
    for event in events:
        writer.write(event)
    writer.close()
    return paths


def test_everybody_tells_the_same(run, capsys):
    reader = EventsReader(run.events)
    reader.read()
    window = reader.state
    compared, duel = compared_run(run), outcome_of(SPEC, run, run.root / "no energy")
    assert main(["runs", "show", "run", "--json"]) in {None, 0}
    shown = json.loads(capsys.readouterr().out)
    assert main(["runs", "show", "run"]) in {None, 0}
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]

    steps, losses = list(window.steps.step.values()), list(window.steps.loss.values())
    assert steps == list(range(1, 11))
    assert window.step == compared.step == duel.steps == 10
    assert printed == [f"step {step}: loss {loss:.4f}" for step, loss in zip(steps, losses, strict=True)]
    assert [(point.step, point.loss) for point in duel.training] == list(zip(steps, losses, strict=True))
    assert compared.loss == losses[-1]

    evaluations = dict(zip(window.evaluations.step.values(), window.evaluations.loss.values(), strict=True))
    assert list(evaluations) == [0, 3, 6, 9, 10]
    assert {point.step: point.loss for point in duel.evaluations} == evaluations
    tokens = window.evaluations.tokens.last
    assert (compared.held_out_loss, compared.held_out_tokens) == reported_loss(run) == (duel.held_out_loss, tokens)

    seconds = pytest.approx(sum(window.steps.step_s.values()))
    assert (compared.training_s, duel.training_s) == (seconds, seconds)
    assert duel.tokens == sum(window.steps.tokens.values()) < 10**6
    assert duel.tokens_per_s == pytest.approx(window.last_step.tokens_per_s), "the others are warm-up"

    assert compared.memory_bytes == duel.memory_bytes == window.highest_bytes
    assert shown["measured_bytes"] == window.peak_bytes > 0
    memory = f"predicted {memory_size(shown['predicted_bytes'])}, measured {memory_size(shown['measured_bytes'])}"
    assert memory in plan_text(window)
    assert (duel.resumes, window.processes, len(window.rollbacks)) == (1, 2, 1)


def test_the_loss_of_a_run_is_that_of_the_step_it_kept_and_its_memory_the_highest(run):
    writer = EventWriter(run.events)
    writer.write(BestKept(step=6, loss=1.25, at_step=10, stopped_early=True))
    highest = RunMeasurement(process_bytes=2**40)
    writer.write(RunEnded(outcome="finished", exit_code=0, step=10, message="", seconds=1.0, measured=highest))
    writer.close()
    compared, duel = compared_run(run), outcome_of(SPEC, run, run.root / "no energy")
    assert (compared.held_out_step, compared.held_out_loss) == (6, 1.25)
    assert reported_loss(run)[0] == 1.25
    assert compared.memory_bytes == duel.memory_bytes == 2**40
