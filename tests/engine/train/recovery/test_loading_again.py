"""Models that are loaded again with less memory: by a smaller plan, by resuming, or not at all."""

import pytest

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.run.events import CheckpointSaved, RunStarted, StepDone
from burnish_engine.runs.control import send
from burnish_engine.train import engine_loader
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.lifecycle import dry_run
from burnish_engine.train.run import run_training
from burnish_kernels.adamw import op as adamw

from support.memory.scarce import scarce
from support.runs.recovered import ENGINES, PLACES, SMALLER, assert_like, newest_of, smaller_plans
from support.runs.tiny_runs import WATCHED, losses, of_kind, trained

pytestmark = pytest.mark.usefixtures("unplanned")


def test_a_model_that_cannot_be_loaded_again_ends_the_run(made):
    paths = made()
    with scarce((adamw, "step_"), calls=[5]), scarce((engine_loader, "FastEngine"), calls=[2, 3]):
        outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.DOES_NOT_FIT
    assert "CUDA out of memory" in outcome.message
    assert [event.step for event in of_kind(paths, CheckpointSaved)] == [3]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("engine", ENGINES)
def test_loading_is_tried_once_more_with_the_smallest_plan(made, engine):
    owner = {"fast": "FastEngine", "plain": "PlainEngine"}[engine]
    paths = made(engine, max_steps=1)
    with scarce((engine_loader, owner), calls=[1]):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert "loaded again with the smallest plan" in smaller_plans(paths)[0]
    newest, _ = checkpoints.find_checkpoint(paths.checkpoints)
    plan = checkpoints.read_position(newest).plan
    assert plan == "recompute" if engine == "plain" else set(MemoryPlan.model_validate_json(plan).layers) == {"input"}
    lost = made(engine)
    with scarce((engine_loader, owner), calls=[1, 2]):
        assert run_training(lost).exit_code == ExitCode.DOES_NOT_FIT


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_a_resumed_run_begins_with_the_plan_that_it_fell_back_to(made, smaller, engine, monkeypatch):
    paths = made(engine, extra=WATCHED)

    def stop(event):
        if isinstance(event, StepDone) and event.step == 4:
            send(paths, "stop")

    with scarce(PLACES[engine]["pass"], calls=[4]):
        assert run_training(paths, listener=stop).exit_code == ExitCode.STOPPED
    taken_up = []
    real = engine_loader.make_engine

    def making(*args, **settings):
        made_engine = real(*args, **settings)
        taken_up.append(made_engine.facts.memory_plan)
        return made_engine

    monkeypatch.setattr(engine_loader, "make_engine", making)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert SMALLER[engine] in taken_up[0]
    assert losses(paths) == losses(smaller(engine))
    assert trained(paths) == trained(smaller(engine))
    assert len(smaller_plans(paths)) == 1


@pytest.mark.full
@pytest.mark.parametrize("tries", [False, True], ids=["training", "dry run"])
def test_where_nothing_smaller_is_left_but_by_loading_it_is_loaded_again(made, smaller, monkeypatch, tries):
    """In the middle of a run, with its moments; here to the plan that it is compared with."""
    narrow = MemoryPlan.model_validate_json(checkpoints.read_position(newest_of(smaller("fast"))).plan)
    monkeypatch.setattr(FastEngine, "shrink", lambda _: "")
    monkeypatch.setattr(
        FastEngine, "loading_plan", property(lambda self: "" if self.plan == narrow else narrow.model_dump_json())
    )
    monkeypatch.setattr(dry_run, "is_worthwhile", lambda *_: tries)
    paths = made(extra=WATCHED)
    with scarce(PLACES["fast"]["pass"], calls=[3 if tries else 8]):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert_like(paths, "fast", smaller)
    assert "loaded again" in smaller_plans(paths)[0]
    assert MemoryPlan.model_validate_json(checkpoints.read_position(newest_of(paths)).plan) == narrow
    assert len(of_kind(paths, RunStarted)) == 1


@pytest.mark.full
def test_where_that_cannot_be_loaded_either_the_run_ends(made, monkeypatch):
    monkeypatch.setattr(FastEngine, "shrink", lambda _: "")
    monkeypatch.setattr(FastEngine, "loading_plan", property(lambda self: self.facts.memory_plan))
    paths = made(extra=WATCHED)
    with scarce(PLACES["fast"]["pass"], calls=[8]), scarce((engine_loader, "FastEngine"), calls=[2]):
        outcome = run_training(paths)
    assert (outcome.exit_code, outcome.step) == (ExitCode.DOES_NOT_FIT, 3)
    assert "CUDA out of memory" in outcome.message
