"""Kill the engine at any moment, resume, and get the uninterrupted run's losses and adapter, to the bit, under dropout.

Both engines, also with matrices that sit out steps; every optimizer under the long mark. That each optimizer's state is
restored to the bit is test_resumed_optimizers.py's.
"""

import os
import random
import time

import pytest

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import RunStarted
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run, read_state, summarize

from support.models.tiny import write_jsonl
from support.runs.shelf import OPTIMIZERS, rate_of
from support.runs.tiny_runs import evaluations, losses, tiny_recipe

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the harness forks; the engine itself does not")

A_FEW = [("adamw", "fast", True, 1), ("muon", "fast", False, 1), ("adamw8bit", "plain", False, 1)]
A_HUNDRED = [
    ("adamw", "fast", False, 10), ("adamw", "fast", True, 6), ("adamw", "plain", False, 6),
    *((name, "fast", True, 7) for name in OPTIMIZERS[1:]),
    *((name, "plain", name == "muon", 6) for name in OPTIMIZERS[1:]),
]  # fmt: skip
assert sum(case[-1] for case in A_HUNDRED) == 100
_IN_SAVES = 0.3  # of the kills, in the middle of writing a checkpoint
_IN_STEPS = 0.4  # after some step; the others at any time, which mostly is while modules and model are loaded
_LONGEST_S = 600.0  # for a run; one that takes longer hangs


def recipe_of(folder, name, engine, masked):
    settings = {"optimizer": f'"{name}"', "engine": f'"{engine}"', "learning_rate": rate_of(name)}
    extra = '[masking]\nkind = "magma"\n' if masked else ""
    recipe = tiny_recipe(
        folder, rows=40, epochs=2.5, accumulation=2, weight_decay=0.1, warmup_share=0.4, extra=extra, **settings
    )
    assert recipe.adapter.dropout > 0
    if "8bit" in name:  # smaller matrices keep their moments in fp32
        recipe = recipe.model_copy(update={"adapter": recipe.adapter.model_copy(update={"rank": 64})})
    return recipe


@pytest.mark.full
@pytest.mark.parametrize(("name", "engine", "masked", "kills"), A_FEW)
def test_a_kill_resumes_to_the_uninterrupted_run(tmp_path, fork_server, name, engine, masked, kills):
    kill_and_resume(tmp_path, fork_server, recipe_of(tmp_path, name, engine, masked), engine, kills)


@pytest.mark.full
@pytest.mark.parametrize("objective", ["dpo", "kto"])
def test_a_kill_in_a_run_over_preferences_resumes_to_the_uninterrupted_run(tmp_path, fork_server, objective):
    recipe = recipe_of(tmp_path, "adamw", "fast", masked=False)
    rows = [
        {"prompt": f"Lamp {number}?", "chosen": "Gladly.", "rejected": "No."}
        if objective == "dpo"
        else {"prompt": f"Lamp {number}?", "completion": f"Gladly, {number}.", "label": number % 2 == 0}
        for number in range(30)
    ]
    files = {"files": [str(write_jsonl(tmp_path / "rows.jsonl", rows))], "validation_files": []}
    sections = {
        "data": recipe.data.model_copy(update=files),
        "preference": recipe.preference.model_copy(update={"objective": objective}),
        "train": recipe.train.model_copy(update={"max_steps": 10, "epochs": 30.0}),
    }
    kill_and_resume(tmp_path, fork_server, recipe.model_copy(update=sections), "fast", 2)


def rewarded(folder, updates):
    """A recipe that learns from a function's rewards for replies of its own."""
    file = folder / "vowels.py"
    file.write_text("def reward(prompt, reply, wanted):\n    return sum(letter in 'aeiou' for letter in reply) / 8\n")
    document = recipe_of(folder, "adamw", "fast", masked=False).model_dump()
    document["adapter"]["dropout"] = 0.0
    document["train"] |= {"max_steps": 12, "epochs": 30.0}
    document["preference"]["objective"] = "grpo"
    document["task"] |= {"metric": "regex", "pattern": "e", "max_tokens": 4, "max_rows": 3}
    document["reinforce"] |= {"groups": 2, "replies": 4, "max_tokens": 8, "updates": updates, "kl_weight": 0.1}
    document["reward"] = [{"kind": "python", "file": str(file)}]
    return Recipe.model_validate(document)


@pytest.mark.full
def test_a_kill_in_a_run_that_learns_from_rewards_resumes_to_the_uninterrupted_run(tmp_path, fork_server):
    kill_and_resume(tmp_path, fork_server, rewarded(tmp_path, updates=1), "fast", 2)


@pytest.mark.long
def test_ten_kills_in_a_run_that_learns_from_rewards_resume_to_the_uninterrupted_run(tmp_path, fork_server):
    kill_and_resume(tmp_path, fork_server, rewarded(tmp_path, updates=2), "fast", 10)


@pytest.mark.long
@pytest.mark.parametrize(("name", "engine", "masked", "kills"), A_HUNDRED)
def test_a_hundred_kills_resume_to_the_uninterrupted_runs(tmp_path, fork_server, name, engine, masked, kills):
    moments = kill_and_resume(tmp_path, fork_server, recipe_of(tmp_path, name, engine, masked), engine, kills)
    assert len(moments) > 1  # the kills really hit different moments


ON_A_GPU = [
    ("adamw", "fast", False, 3), ("adamw", "fast", True, 2), ("adamw8bit", "fast", False, 1), ("muon", "fast", True, 1),
    ("lion", "fast", False, 1), ("schedule_free", "fast", False, 1), ("adamw", "plain", False, 1),
]  # fmt: skip
assert sum(case[-1] for case in ON_A_GPU) == 10


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "engine", "masked", "kills"), ON_A_GPU)
def test_ten_kills_on_a_gpu_resume_to_the_uninterrupted_runs(tmp_path, fork_server, name, engine, masked, kills):
    recipe = recipe_of(tmp_path, name, engine, masked)
    recipe = recipe.model_copy(update={"devices": recipe.devices.model_copy(update={"kind": "cuda"})})
    kill_and_resume(tmp_path, fork_server, recipe, engine, kills)


def kill_and_resume(folder, server, recipe, engine, kills):
    """Kill a run so many times, each time anew; returns the moments at which it was."""
    whole = create_run(recipe, folder / "whole")
    began = time.monotonic()
    assert server.start_run(whole).wait(_LONGEST_S) == 0, read_state(whole).message
    duration = time.monotonic() - began
    expected = found_in(whole)
    assert engines(whole) == {engine}
    assert len(expected[0]) > 8

    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    moments, number = set(), 0
    while number < kills:
        paths = create_run(recipe, folder / f"killed {number} {chance.random()}")
        process = server.start_run(paths)
        where = chance.random()
        if where < _IN_SAVES:
            wait_for_save(paths, skip=chance.randrange(4), delay_s=chance.random() * 0.01)
        elif where < _IN_SAVES + _IN_STEPS:
            wait_for_step(paths, chance.randrange(len(expected[0])), delay_s=chance.random() * 0.05)
        else:
            time.sleep(chance.random() * duration)
        process.kill()
        if process.wait() == 0:
            assert found_in(paths) == expected  # it was done already, which does not count
            continue
        number += 1
        moment = summarize(paths).state.phase, len(losses(paths))
        moments.add(moment)
        print("killed at", *moment)
        if read_state(paths).status == "running":
            assert summarize(paths).status == "interrupted"
        assert server.start_run(paths).wait(_LONGEST_S) == 0, f"seed {seed}, kill {number}: {read_state(paths).message}"
        assert found_in(paths) == expected, f"seed {seed}, kill {number}, at {moment}"
        assert engines(paths) == {engine}
    return moments


def found_in(paths):
    """Losses, held-out losses and the adapter's bytes."""
    adapter = (paths.adapter / "adapter_model.safetensors").read_bytes()
    return losses(paths), evaluations(paths), adapter


def engines(paths):
    """Which engines trained a run."""
    return {event.engine for event in read_events(paths.events) if isinstance(event, RunStarted)}


def wait_for_step(paths, steps, *, delay_s):
    """Return so long after this many steps, or when the run is over."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(losses(paths)) < steps:
        if read_state(paths).status in ("finished", "failed"):
            return
        time.sleep(0.005)
    time.sleep(delay_s)


def wait_for_save(paths, *, skip, delay_s):
    """Return while a checkpoint is being written (after `skip` finished ones)."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done = len(list(paths.checkpoints.glob("step-*"))) if paths.checkpoints.exists() else 0
        if done >= min(skip, 2) and paths.checkpoints.exists() and list(paths.checkpoints.glob(".*.partial")):
            time.sleep(delay_s)
            return
        if read_state(paths).status in ("finished", "failed"):
            return
