"""What cannot fit is refused before it is loaded; the prediction is recorded either way."""

import json

import pytest

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.run.events import PhaseChanged, PlanMade, StepDone, Warned
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run
from burnish_engine.train.lifecycle import run_setup
from burnish_engine.train.run import run_training

from support.machines.made_up import cpu_machine
from support.runs.tiny_runs import losses, tiny_recipe


def events_of(paths, kind):
    return [event for event in read_events(paths.events) if isinstance(event, kind)]


@pytest.fixture
def full_memory(monkeypatch):
    """A machine whose memory is taken."""
    machine = cpu_machine(ram=2**28)
    monkeypatch.setattr(run_setup, "probe", lambda: machine.model_copy(update={"ram_free_bytes": 2**20}))


def test_a_run_that_does_not_fit_is_refused_with_figures(tmp_path, full_memory):
    paths = create_run(tiny_recipe(tmp_path, max_steps=2), tmp_path / "run")
    outcome = run_training(paths)
    assert outcome.exit_code is ExitCode.DOES_NOT_FIT
    assert "free" in outcome.message
    assert not losses(paths)
    assert not events_of(paths, PlanMade)[0].fits
    assert "training" not in [event.phase for event in events_of(paths, PhaseChanged)]


@pytest.mark.full
def test_anyway_trains_and_warns_and_what_was_trained_is_not_refused_later(tmp_path, full_memory):
    paths = create_run(tiny_recipe(tmp_path, max_steps=2), tmp_path / "run")

    def stop(event):
        if isinstance(event, StepDone):
            send(paths, "stop")

    assert run_training(paths, anyway=True, listener=stop).exit_code is ExitCode.STOPPED
    assert run_training(paths).exit_code is ExitCode.DONE
    assert len(losses(paths)) == 2
    assert any(event.code == "plan" and "free" in event.message for event in events_of(paths, Warned))


@pytest.mark.full
def test_the_prediction_is_recorded_and_its_memory_plan_carried_out(tmp_path, monkeypatch):
    chosen, make = MemoryPlan(layers=("input", "narrow"), head_rows=32), run_setup.plan_recipe
    monkeypatch.setattr(
        run_setup,
        "plan_recipe",
        lambda *given, **options: make(*given, **options).model_copy(update={"memory_plan": chosen}),
    )
    paths = create_run(tiny_recipe(tmp_path, max_steps=2), tmp_path / "run")
    assert run_training(paths).exit_code is ExitCode.DONE
    (state,) = paths.checkpoints.glob("*/state.json")
    assert MemoryPlan.model_validate_json(json.loads(state.read_text())["plan"]) == chosen
    (plan,) = events_of(paths, PlanMade)
    assert plan.fits
    assert plan.memory_bytes > 0
    assert plan.tokens_per_s > 0
