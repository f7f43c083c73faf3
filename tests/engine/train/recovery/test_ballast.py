"""Runs on a GPU whose memory is really taken away at some moment, by another process: they end as if it had been so
from the beginning."""

import random

import pytest
import torch

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.run.events import Warned
from burnish_engine.models.decoder import decoder_load
from burnish_engine.models.decoder.lora_adapter import LoraAdapter
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run
from burnish_engine.train.fast import fast_engine, fast_trainer
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.fast_trainer import FastTrainer
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.lifecycle import run_setup
from burnish_engine.train.recovery import recovery
from burnish_engine.train.run import run_training

from support.memory.ballast import Ballast
from support.memory.scarce import counted
from support.runs.tiny_runs import WATCHED, evaluations, losses, tiny_recipe

pytestmark = pytest.mark.gpu

STEPS, INJECTIONS = 8, 50
PLACES = {
    "loading": (decoder_load, "build_decoder"),
    "the trainer, its page-locked memory too": (fast_engine, "FastTrainer"),
    "the first step, cuBLAS's memory": (fast_trainer, "_take_workspace"),
    "a pass": (FastTrainer, "_pass"),
    "a capture": (FastTrainer, "_capture"),
    "the head, eager or captured": (MicroBatchStep, "_head_chunk"),
    "backward, eager or captured": (MicroBatchStep, "_backward"),
    "an update": (FastTrainer, "_update"),
    "an evaluation": (fast_engine, "pass_losses"),
    "replies": (fast_engine, "generate_replies"),
    "a save": (LoraAdapter, "save"),
    "the moments": (FastEngine, "optimizer_tensors"),
}


@pytest.fixture(scope="module")
def ballast():
    with Ballast() as one:
        yield one


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make a run on the GPU whose layers keep a level: its paths."""
    folder, count = tmp_path_factory.mktemp("ballast"), iter(range(999))

    def make(level):
        extra = f'{WATCHED}\n[memory]\nlayers = "{level}"\n'
        recipe = tiny_recipe(folder, engine='"fast"', extra=extra, max_steps=STEPS, accumulation=2, precision='"bf16"')
        recipe = recipe.model_copy(update={"devices": DevicesSection(kind="cuda")})
        return create_run(recipe, folder / f"run {next(count)}")

    return make


def unload_kernels():
    """Forget Triton's compiled kernels, so that their code is loaded into the GPU's memory again."""
    import gc

    from triton.runtime.jit import JITFunction

    for kernel in (one for one in gc.get_objects() if isinstance(one, JITFunction)):
        getattr(kernel, "device_caches", {}).clear()


def test_memory_that_another_process_takes_at_any_moment(made, ballast, monkeypatch):
    """At fifty moments, kernels loaded anew in a third of the runs: data order, losses, evaluations and adapter are
    those of an undisturbed run, whose bits do not depend on what layers keep."""
    monkeypatch.setattr(run_setup, "check_fit", lambda *_args, **_settings: None)
    whole = made("products")
    with counted(PLACES) as counts:
        assert run_training(whole).exit_code == ExitCode.DONE
    adapter = (whole.adapter / "adapter_model.safetensors").read_bytes()
    seed = random.SystemRandom().randrange(2**32)
    chance, real_release = random.Random(seed), recovery.release

    def release(device):
        real_release(device)
        ballast.drop()

    monkeypatch.setattr(recovery, "release", release)
    fell_back, found = 0, []
    for number in range(INJECTIONS):
        place = chance.choice(sorted(PLACES))
        call, level = chance.randint(1, counts[place]), chance.choice(["products", "offloaded"])
        if chance.random() < 0.3:
            unload_kernels()
        paths, told = made(level), f"seed {seed}, run {number}: {place}, call {call}, {level}"
        with monkeypatch.context() as patch:
            taken = _take_at(patch, ballast, *PLACES[place], call)
            outcome = run_training(paths)
        ballast.drop()
        assert outcome.exit_code == ExitCode.DONE, f"{told}: {outcome.message}"
        said = [event.message for event in read_events(paths.events) if isinstance(event, Warned)]
        if any("loaded again" in message for message in said):  # with the smallest plan, which has tiles of its own
            assert losses(paths) == pytest.approx(losses(whole), rel=0.01), told
        else:
            assert losses(paths) == losses(whole), told
            assert evaluations(paths) == evaluations(whole), told
            assert (paths.adapter / "adapter_model.safetensors").read_bytes() == adapter, told
        found.append((place, call, level, taken, said))
        fell_back += bool(said)
    print(f"seed {seed}: {fell_back} of {INJECTIONS} runs fell back", *found, sep="\n")
    assert all(taken for *_, taken, _ in found)  # each moment came
    assert fell_back >= INJECTIONS // 4


def _take_at(patch, ballast, owner, name, call):
    """From a call of a function on, the GPU is full; what was free then goes into the list that returns."""
    real, count, taken = getattr(owner, name), 0, []

    def called(*args, **settings):
        nonlocal count
        count += 1
        if count == call:
            torch.cuda.empty_cache()  # what the allocator has in store would do for long
            taken.append(ballast.take())
        return real(*args, **settings)

    patch.setattr(owner, name, called)
    return taken
