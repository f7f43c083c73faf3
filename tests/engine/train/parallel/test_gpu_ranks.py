"""Runs on two GPUs and more: the same bits as on one where that is asked for, captured, and whole after a kill."""

import os
import signal

import pytest
import torch
from engine.train.parallel.test_shared_runs import at_step

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.run.events import PhaseChanged, Warned
from burnish_engine.runs.control import send
from burnish_engine.runs.store import create_run
from burnish_engine.train.parallel import launch
from burnish_engine.train.run import run_training

from support.models.tiny import make_llama
from support.runs.tiny_runs import WATCHED, losses, of_kind, tiny_recipe, trained

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
COUNTS = [count for count in (2, 4) if count <= torch.cuda.device_count()]


def recipe_of(folder, *, exact=True, **train):
    settings = {"accumulation": 4, "micro_batch_tokens": 256, "max_steps": 12, "epochs": 20.0, **train}
    recipe = tiny_recipe(folder, rows=60, extra=WATCHED, **settings)
    devices = DevicesSection(kind="cuda", threads=1, strategy="data_parallel", gpus=[0], exact=exact)
    return recipe.model_copy(update={"devices": devices})


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_exact_gpus_train_the_bits_of_one(tmp_path, forks, precision):
    recipe = recipe_of(tmp_path, precision=f'"{precision}"')
    alone = create_run(recipe, tmp_path / "alone")
    assert run_training(alone).exit_code is ExitCode.DONE
    for count in COUNTS:
        paths = create_run(recipe, tmp_path / str(count))
        assert run_training(paths, gpus=range(count)).exit_code is ExitCode.DONE
        assert losses(paths) == losses(alone)
        assert trained(paths) == trained(alone)
        engine = [event.message for event in of_kind(paths, Warned) if event.code == "engine"]
        assert not any("CUDA graphs" in message for message in engine), "steps are captured"


@pytest.mark.parametrize("quantize", ["none", "nf4"])
def test_gpus_train_what_one_does(tmp_path, forks, quantize):
    recipe = recipe_of(tmp_path, exact=False, precision='"bf16"')
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"quantize": quantize})})
    alone = create_run(recipe, tmp_path / "alone")
    assert run_training(alone).exit_code is ExitCode.DONE
    for count in COUNTS:
        paths = create_run(recipe, tmp_path / str(count))
        assert run_training(paths, gpus=range(count)).exit_code is ExitCode.DONE
        assert losses(paths) == pytest.approx(losses(alone), rel=2e-3)


def test_captured_slices_give_the_bits_of_one_exchange_and_rounded_ones_train(tmp_path, forks):
    """On two GPUs, where each element of a sum has two terms in any slice."""
    found = {}
    for exchange in ("whole", "sliced", "bf16"):
        recipe = recipe_of(tmp_path, exact=False, precision='"bf16"')
        devices = recipe.devices.model_copy(update={"exchange": exchange})
        paths = create_run(recipe.model_copy(update={"devices": devices}), tmp_path / exchange)
        assert run_training(paths, gpus=range(2)).exit_code is ExitCode.DONE
        assert not any("CUDA graphs" in event.message for event in of_kind(paths, Warned)), "steps are captured"
        found[exchange] = losses(paths), trained(paths)
    assert found["sliced"] == found["whole"]
    assert found["bf16"][0] == pytest.approx(found["whole"][0], rel=5e-3)


def test_a_long_run_tries_itself_first_beside_nccl(tmp_path, forks):
    """A dry run captures passes on the leader alone, while NCCL's threads look at events of their own."""
    recipe = recipe_of(tmp_path, precision='"bf16"', max_steps=60, epochs=60.0, checkpoint_every=30)
    alone = create_run(recipe, tmp_path / "alone")
    assert run_training(alone).exit_code is ExitCode.DONE
    for count in COUNTS:
        paths = create_run(recipe, tmp_path / str(count))
        assert run_training(paths, gpus=range(count)).exit_code is ExitCode.DONE
        assert "dry_run" in [event.phase for event in of_kind(paths, PhaseChanged)]
        assert not any("CUDA graphs" in event.message for event in of_kind(paths, Warned)), "steps are captured"
        assert losses(paths) == losses(alone)
        assert trained(paths) == trained(alone)


@pytest.mark.parametrize(
    ("quantize", "weights"), [("none", "ranks"), ("nf4", "ranks"), ("none", "ranks:2,card,host,ranks")]
)
def test_shared_layers_train_the_bits_of_resident_ones(tmp_path, forks, quantize, weights):
    """Captured, with unequal numbers of passes, a dry run of the leader alone, and held-out rows on all."""
    make_llama(tmp_path / "base", num_hidden_layers=7)
    recipe = recipe_of(tmp_path, precision='"bf16"', max_steps=54, epochs=90.0, checkpoint_every=30, accumulation=3)
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"quantize": quantize})})
    alone = create_run(recipe, tmp_path / "alone")
    assert run_training(alone).exit_code is ExitCode.DONE
    recipe = recipe.model_copy(update={"memory": recipe.memory.model_copy(update={"weights": weights})})
    for count in COUNTS if weights == "ranks" else COUNTS[-1:]:
        paths = create_run(recipe, tmp_path / str(count))
        outcome = run_training(paths, gpus=range(count))
        assert outcome.exit_code is ExitCode.DONE, outcome.message
        assert "dry_run" in [event.phase for event in of_kind(paths, PhaseChanged)]
        assert not any("CUDA graphs" in event.message for event in of_kind(paths, Warned)), "steps are captured"
        assert losses(paths) == losses(alone)
        assert trained(paths) == trained(alone)


def test_a_run_with_shared_layers_goes_on_after_a_kill_and_on_one_gpu(tmp_path, forks):
    """Memory that the killed process shared is read until the leader knows of its end; it must not fail over that."""
    make_llama(tmp_path / "base", num_hidden_layers=7)
    recipe = recipe_of(tmp_path)
    alone = create_run(recipe, tmp_path / "alone")
    assert run_training(alone).exit_code is ExitCode.DONE
    recipe = recipe.model_copy(update={"memory": recipe.memory.model_copy(update={"weights": "ranks"})})
    paths = create_run(recipe, tmp_path / "shared")
    kill = at_step(5, lambda: os.kill(forks[0].pid, signal.SIGKILL))
    outcome = run_training(paths, listener=kill, gpus=range(COUNTS[-1]), restarts=0)
    assert outcome.exit_code is ExitCode.DRIVER
    assert "SIGKILL" in outcome.message
    stop = at_step(9, lambda: send(paths, "stop"))
    assert run_training(paths, listener=stop, gpus=range(2)).exit_code is ExitCode.STOPPED
    assert run_training(paths).exit_code is ExitCode.DONE
    assert losses(paths) == losses(alone)
    assert trained(paths) == trained(alone)


def test_a_whole_model_shared_out_trains_as_on_one_and_a_killed_rank_ends_it(tmp_path, forks):
    """In bf16, which only GPUs gather. A rank is killed while all compute together."""
    recipe = recipe_of(tmp_path, exact=False, precision='"bf16"', learning_rate=1e-3)
    devices = recipe.devices.model_copy(update={"strategy": "sharded"})
    adapter = recipe.adapter.model_copy(update={"method": "full"})
    recipe = recipe.model_copy(update={"devices": devices, "adapter": adapter})
    alone, paths = (create_run(recipe, tmp_path / name) for name in ("alone", "shared"))
    assert run_training(alone).exit_code is ExitCode.DONE
    assert run_training(paths, gpus=range(COUNTS[-1])).exit_code is ExitCode.DONE
    assert losses(paths) == pytest.approx(losses(alone), rel=1e-2)
    cut = create_run(recipe, tmp_path / "cut")
    kill = at_step(5, lambda: os.kill(forks[-1].pid, signal.SIGKILL))
    outcome = run_training(cut, listener=kill, gpus=range(COUNTS[-1]), restarts=0)
    assert outcome.exit_code is ExitCode.DRIVER
    assert "SIGKILL" in outcome.message
    assert run_training(cut).exit_code is ExitCode.DONE
    assert losses(cut) == pytest.approx(losses(alone), rel=1e-2)


def test_after_a_kill_all_gpus_begin_again_and_another_number_goes_on(tmp_path, monkeypatch):
    """The leader waits for a sum that will never come; it must neither hang nor damage what is saved.

    The ranks are started as always, not forked.
    """
    recipe, started, start = recipe_of(tmp_path), [], launch._start
    monkeypatch.setattr(launch, "_start", lambda *given: started.append(start(*given)) or started[-1])
    alone = create_run(recipe, tmp_path / "alone")
    assert run_training(alone).exit_code is ExitCode.DONE
    paths = create_run(recipe, tmp_path / "shared")

    def act(event):
        kill(event)
        stop(event)

    kill = at_step(5, lambda: len(started) < COUNTS[-1] and os.kill(started[0].pid, signal.SIGKILL))
    stop = at_step(9, lambda: send(paths, "stop"))
    outcome = run_training(paths, listener=act, gpus=range(COUNTS[-1]))
    assert outcome.exit_code is ExitCode.STOPPED, outcome.message
    assert len(started) == 2 * (COUNTS[-1] - 1)
    assert "rank_lost" in [event.code for event in of_kind(paths, Warned)]
    assert run_training(paths).exit_code is ExitCode.DONE
    assert losses(paths) == losses(alone)
    assert trained(paths) == trained(alone)
