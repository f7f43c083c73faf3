"""An update that memory ran out in goes back to the newest checkpoint."""

import importlib
import weakref
from contextlib import suppress

import pytest
import torch

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.run.events import RunStarted, StepDone
from burnish_engine.train import engine_loader
from burnish_engine.train.fast import fast_engine
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.run import run_training
from burnish_kernels.adamw import op as adamw

from support.memory.scarce import scarce
from support.runs.recovered import STEPS, newest_of, smaller_plans
from support.runs.tiny_runs import WATCHED, evaluations, losses, of_kind, trained

pytestmark = pytest.mark.usefixtures("unplanned")


@pytest.mark.full
@pytest.mark.parametrize(
    ("engine", "place", "call"),
    [
        ("fast", (adamw, "step_"), 5),
        ("fast", (adamw, "prepare"), 1),
        ("plain", (torch.optim.AdamW, "step"), 5),
    ],
)
def test_half_an_update_goes_back_to_the_newest_checkpoint(made, smaller, monkeypatch, engine, place, call):
    """The changed weights cannot be told from the others. The first model is gone before it is loaded again."""
    with suppress(ImportError):  # loaded in a run, it may log an error; pytest keeps that, and with it the run's frames
        importlib.import_module("bitsandbytes")
    paths = made(engine, extra=WATCHED)
    loaded, still = [], []
    real = engine_loader.make_engine

    def making(*args, **settings):
        still.extend(engine() for engine in loaded)
        found = real(*args, **settings)
        loaded.append(weakref.ref(found))
        return found

    monkeypatch.setattr(engine_loader, "make_engine", making)
    with scarce(place, calls=[call], after=True):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert still == [None]
    back = {1: 0, 5: 3}[call]
    assert [event.step for event in of_kind(paths, StepDone)] == [*range(1, call), *range(back + 1, STEPS + 1)]
    assert [event.resumed_from_step for event in of_kind(paths, RunStarted)] == [None, back or None]
    assert losses(paths) == losses(smaller(engine))
    assert evaluations(paths) == evaluations(smaller(engine))
    assert trained(paths) == trained(smaller(engine))
    assert len(smaller_plans(paths)) == 1


def test_half_an_update_goes_back_although_no_plan_could_be_taken_up(made, smaller, monkeypatch):
    """Then the engine has nothing left that trains, until it is loaded again."""
    narrow = MemoryPlan.model_validate_json(checkpoints.read_position(newest_of(smaller("fast"))).plan)
    monkeypatch.setattr(FastEngine, "loading_plan", property(lambda _: narrow.model_dump_json()))
    paths = made(extra=WATCHED)
    with scarce((adamw, "step_"), calls=[5]), scarce((fast_engine, "FastTrainer"), calls=range(2, 6)):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.resumed_from_step for event in of_kind(paths, RunStarted)] == [None, 3]
    assert losses(paths) == losses(smaller("fast"))
    assert trained(paths) == trained(smaller("fast"))
