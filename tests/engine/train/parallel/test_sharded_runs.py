"""Whole models that ranks share out (FSDP2), each a process: the run of one process, resumed on other numbers."""

import os
import signal

import pytest
import torch
from engine.train.parallel.test_shared_runs import at_step
from safetensors.torch import load_file

from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.run.events import PhaseChanged, SampleDone, StepDone
from burnish_engine.runs.control import send
from burnish_engine.runs.store import create_run
from burnish_engine.train.parallel.sharded_engine import OPTIMIZERS, refuse_sharded
from burnish_engine.train.run import run_training

from support.runs.ranks import CPU
from support.runs.tiny_runs import WATCHED, evaluations, losses, of_kind, tiny_recipe

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the harness forks; the engine itself does not")


def recipe_of(folder, **train):
    settings = {"accumulation": 3, "micro_batch_tokens": 128, "max_steps": 6, "epochs": 9.0, "learning_rate": 1e-3,
                "max_grad_norm": 0.05, **train}  # fmt: skip
    recipe = tiny_recipe(folder, rows=20, extra=WATCHED, **settings)
    devices = DevicesSection(kind="cpu", threads=1, strategy="sharded", gpus=[0, 1])
    return recipe.model_copy(
        update={"devices": devices, "adapter": recipe.adapter.model_copy(update={"method": "full"})}
    )


def weights(paths):
    return load_file(paths.root / "model" / "model.safetensors")


def same_weights(paths, others):
    """Whether two results agree but for the last digits."""
    ours, theirs = weights(paths), weights(others)
    assert ours.keys() == theirs.keys()
    return all(torch.allclose(ours[name], theirs[name], rtol=1e-3, atol=2e-5) for name in ours)


@pytest.mark.parametrize(
    "optimizer", [name if name == "adamw" else pytest.param(name, marks=pytest.mark.long) for name in OPTIMIZERS]
)
def test_shared_out_over_two_ranks_a_whole_model_trains_as_on_one(tmp_path, forks, optimizer):
    recipe = recipe_of(tmp_path, optimizer=f'"{optimizer}"', max_steps=4)
    alone, shared = (create_run(recipe, tmp_path / name) for name in ("alone", "shared"))
    assert run_training(alone, gpus=[0]).exit_code is ExitCode.DONE
    assert not forks
    assert run_training(shared).exit_code is ExitCode.DONE
    assert len(forks) == 1
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-4)
    assert evaluations(shared) == pytest.approx(evaluations(alone), rel=1e-4)
    norms, others = ([event.grad_norm for event in of_kind(paths, StepDone)] for paths in (shared, alone))
    assert norms == pytest.approx(others, rel=1e-3), "sums of gradients, not means"
    assert same_weights(shared, alone)
    base = load_file(tmp_path / "base" / "model.safetensors")
    assert not all(torch.equal(base[name], value) for name, value in weights(shared).items() if name in base)
    for one, other in zip(of_kind(shared, SampleDone), of_kind(alone, SampleDone), strict=True):
        assert (one.step, one.prompt) == (other.step, other.prompt)


def test_a_checkpoint_goes_on_on_another_number_of_ranks(tmp_path, forks):
    """Two ranks, of which one is killed; then three, which are stopped; then one to the end."""
    recipe = recipe_of(tmp_path)
    alone, shared = (create_run(recipe, tmp_path / name) for name in ("alone", "shared"))
    assert run_training(alone, gpus=[0]).exit_code is ExitCode.DONE
    kill = at_step(4, lambda: os.kill(forks[0].pid, signal.SIGKILL))
    killed = run_training(shared, listener=kill, restarts=0)
    assert killed.exit_code is ExitCode.DRIVER
    assert "rank 1" in killed.message
    stopped = run_training(shared, gpus=range(3), listener=at_step(5, lambda: send(shared, "stop")))
    assert stopped.exit_code is ExitCode.STOPPED
    assert run_training(shared, gpus=[0]).exit_code is ExitCode.DONE
    assert len(forks) == 1 + 2
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-4)
    assert evaluations(shared) == pytest.approx(evaluations(alone), rel=1e-4)
    assert same_weights(shared, alone)


def test_a_rank_that_ends_while_replies_are_generated_is_told(tmp_path, forks):
    """There the leader runs the model by itself, and the others keep it company."""

    def kill(event):
        if isinstance(event, PhaseChanged) and event.phase == "sampling":
            os.kill(forks[0].pid, signal.SIGKILL)

    paths = create_run(recipe_of(tmp_path, max_steps=2), tmp_path / "run")
    outcome = run_training(paths, listener=kill, restarts=0)
    assert outcome.exit_code is ExitCode.DRIVER
    assert "SIGKILL" in outcome.message


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("section", "changes", "reason"),
    [
        ("adapter", {"method": "lora"}, "whole models"),
        ("train", {"optimizer": "muon"}, "muon"),
        ("masking", {"kind": "magma"}, "Masking"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(tmp_path, section, changes, reason):
    recipe = recipe_of(tmp_path)
    refuse_sharded(recipe, CPU, "fp32")
    changed = recipe.model_copy(update={section: getattr(recipe, section).model_copy(update=changes)})
    with pytest.raises(UsageError, match=reason):
        refuse_sharded(changed, CPU, "fp32")
    with pytest.raises(UsageError, match="fp32"):
        refuse_sharded(recipe, CPU, "bf16")
