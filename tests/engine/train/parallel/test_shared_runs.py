"""Whole runs on several ranks, each a process: killed, stopped, resumed on other numbers, started by torchrun."""

import json
import os
import signal
import subprocess
import sys

import pytest

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.run.events import RunStarted, StepDone, Warned
from burnish_engine.runs.control import send
from burnish_engine.runs.store import create_run, read_state
from burnish_engine.train.lifecycle.checkpoint import find_checkpoint
from burnish_engine.train.parallel import launch
from burnish_engine.train.run import run_training

from support.models import tiny_models
from support.runs.tiny_runs import WATCHED, evaluations, losses, of_kind, tiny_recipe, trained

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the harness forks; the engine itself does not")


def recipe_of(folder, *, exact=True, **train):
    settings = {"accumulation": 4, "micro_batch_tokens": 128, "max_steps": 9, "epochs": 9.0, **train}
    recipe = tiny_recipe(folder, rows=30, extra=WATCHED, **settings)
    devices = DevicesSection(kind="cpu", threads=1, strategy="data_parallel", gpus=[0, 1], exact=exact)
    return recipe.model_copy(update={"devices": devices})


def at_step(step, action):
    """A listener that acts after a step, each time that it is made."""

    def listen(event):
        if isinstance(event, StepDone) and event.step == step:
            action()

    return listen


@pytest.fixture
def whole(tmp_path, forks):
    """The recipe, and an uninterrupted run of it on one rank."""
    recipe = recipe_of(tmp_path)
    paths = create_run(recipe, tmp_path / "whole")
    assert run_training(paths, gpus=[0]).exit_code is ExitCode.DONE
    assert not forks
    return recipe, paths


@pytest.mark.full
def test_killed_and_resumed_on_other_numbers_of_ranks_a_run_is_the_uninterrupted_one(tmp_path, forks, whole):
    """Two ranks, of which one is killed; then one rank, which is stopped; then four to the end."""
    recipe, alone = whole
    paths = create_run(recipe, tmp_path / "shared")
    kill = at_step(4, lambda: os.kill(forks[0].pid, signal.SIGKILL))
    killed = run_training(paths, listener=kill, restarts=0)
    assert killed.exit_code is ExitCode.DRIVER
    assert "rank 1" in killed.message
    assert "SIGKILL" in killed.message
    assert read_state(paths).status == "failed"
    newest, broken = find_checkpoint(paths.checkpoints)
    assert newest is not None
    assert not broken
    stopped = run_training(paths, gpus=[0], listener=at_step(6, lambda: send(paths, "stop")))
    assert stopped.exit_code is ExitCode.STOPPED
    assert run_training(paths, gpus=range(4)).exit_code is ExitCode.DONE
    assert len(forks) == 1 + 3
    assert losses(paths) == losses(alone)
    assert evaluations(paths) == evaluations(alone)
    assert trained(paths) == trained(alone)


@pytest.mark.full
def test_after_a_kill_all_ranks_begin_again_at_the_newest_checkpoint_by_themselves(tmp_path, forks, whole):
    recipe, alone = whole
    paths = create_run(recipe, tmp_path / "shared")
    kill = at_step(5, lambda: len(forks) == 2 and os.kill(forks[-1].pid, signal.SIGKILL))
    outcome = run_training(paths, gpus=range(3), listener=kill)
    assert outcome.exit_code is ExitCode.DONE, outcome.message
    assert len(forks) == 2 + 2
    assert read_state(paths).further_devices == ["cpu"]
    assert [event.code for event in of_kind(paths, Warned) if event.code == "rank_lost"] == ["rank_lost"]
    assert [event.resumed_from_step for event in of_kind(paths, RunStarted)] == [None, 3]
    assert losses(paths) == losses(alone)
    assert evaluations(paths) == evaluations(alone)
    assert trained(paths) == trained(alone)


def test_ranks_that_are_lost_again_and_again_end_the_run(tmp_path, forks):
    """After one step that was made anew, and before a first step at once: it would not help."""
    recipe = recipe_of(tmp_path, max_steps=6)
    for step, starts in ((4, 2), (0, 1)):
        forks.clear()
        paths = create_run(recipe, tmp_path / f"lost after {step}")

        def kill(event, step=step):
            began = isinstance(event, RunStarted) and not step
            if began or (isinstance(event, StepDone) and event.step == step):
                os.kill(forks[-1].pid, signal.SIGKILL)

        outcome = run_training(paths, listener=kill, restarts=1)
        assert outcome.exit_code is ExitCode.DRIVER
        assert "SIGKILL" in outcome.message
        assert len(forks) == starts


@pytest.mark.full
def test_a_termination_of_all_processes_ends_after_a_saved_step(tmp_path, forks, whole):
    recipe, alone = whole
    paths = create_run(recipe, tmp_path / "shared")

    def terminate():
        for pid in (*(process.pid for process in forks), os.getpid()):
            os.kill(pid, signal.SIGTERM)

    stopped = run_training(paths, listener=at_step(4, terminate))
    assert stopped.exit_code is ExitCode.STOPPED
    newest, _ = find_checkpoint(paths.checkpoints)
    assert newest is not None
    assert newest.name == f"step-{stopped.step:06d}"
    assert run_training(paths).exit_code is ExitCode.DONE
    assert losses(paths) == losses(alone)
    assert trained(paths) == trained(alone)


def test_a_rank_that_cannot_start_is_told_with_its_reason(tmp_path, forks, monkeypatch, fork_server):
    def start(world, rank, logs, module):
        return fork_server.start_rank(launch.replace(world, size=1), rank, logs, module)  # a world without ranks

    monkeypatch.setattr(launch, "_start", start)
    outcome = run_training(create_run(recipe_of(tmp_path), tmp_path / "run"))
    assert outcome.exit_code is ExitCode.DRIVER
    assert "rank 1" in outcome.message
    assert "torchrun" in outcome.message


@pytest.mark.full
def test_a_run_among_processes_that_cannot_meet_is_recorded_as_failed(tmp_path, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "none"}.items():
        monkeypatch.setenv(name, value)
    paths = create_run(recipe_of(tmp_path), tmp_path / "run")
    assert run_training(paths).exit_code is ExitCode.ENVIRONMENT
    assert "MASTER_PORT" in read_state(paths).message


def test_idle_ranks_are_warned_of(tmp_path, forks):
    paths = create_run(recipe_of(tmp_path, accumulation=1, max_steps=2), tmp_path / "run")
    assert run_training(paths).exit_code is ExitCode.DONE
    (warning,) = [event for event in of_kind(paths, Warned) if event.code == "idle_gpus"]
    assert "1 pass " in warning.message
    assert "accumulation = 2" in warning.message


@pytest.mark.full
def test_the_plain_engine_refuses_to_share(tmp_path, forks):
    paths = create_run(recipe_of(tmp_path, engine='"plain"'), tmp_path / "run")
    outcome = run_training(paths)
    assert outcome.exit_code is ExitCode.USAGE
    assert "devices.strategy" in outcome.message


def command(*arguments):
    return [sys.executable, "-m", "burnish_engine.cli.main", *map(str, arguments)]


@pytest.mark.long
def test_the_command_line_starts_ranks_by_itself_and_torchrun_does_too(tmp_path):
    recipe = recipe_of(tmp_path, max_steps=3)
    single = recipe.model_copy(update={"devices": recipe.devices.model_copy(update={"gpus": [0]})})
    file = tmp_path / "recipe.toml"
    file.write_text(dump_recipe(single), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    elastic = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "-m"]
    found = {}
    for name, words in {
        "alone": command("train", file, "--run-dir", tmp_path / "alone"),
        "ours": command("train", file, "--gpus", 2, "--run-dir", tmp_path / "ours"),
        "torchrun": [*elastic, *command("train", file, "--run-dir", tmp_path / "torchrun")[2:]],
    }.items():
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        adapter = tmp_path / name / "adapter" / "adapter_model.safetensors"
        found[name] = adapter.read_bytes()
    assert found["ours"] == found["alone"]
    assert found["torchrun"] == found["alone"]


@pytest.mark.long
def test_the_benchmark_of_shared_steps_prints_a_row_for_each_number(tmp_path):
    words = command(
        "bench", "step", "--shape", "smollm2-135m", "--tokens", 64, "--device", "cpu", "--precision", "fp32",
        "--steps", 1, "--warm-up", 2, "--gpus", 1, "--gpus", 2,
    )  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True, cwd=tmp_path)
    one, two = [json.loads(line) for line in done.stdout.splitlines()]
    assert (one["gpus"], two["gpus"]) == (1, 2)
    assert two["times_one_gpu"] == pytest.approx(two["tok_s"] / one["tok_s"])
    assert two["exchange_ms"] > 0
    assert two["loss"][0] > 0


@pytest.mark.full
def test_experts_on_two_ranks_are_those_of_one(tmp_path, forks):
    tiny_models.make("qwen3-moe", tmp_path / "base", tokenizer=True)
    recipe = recipe_of(tmp_path, max_steps=4)
    section = recipe.adapter.model_copy(update={"dropout": 0.0, "rank": 6})
    recipe = recipe.model_copy(update={"adapter": section})
    alone, shared = (create_run(recipe, tmp_path / name) for name in ("alone", "shared"))
    assert run_training(alone, gpus=[0]).exit_code is ExitCode.DONE
    assert not forks
    assert run_training(shared).exit_code is ExitCode.DONE
    assert len(forks) == 1
    assert losses(shared) == losses(alone)
    assert trained(shared) == trained(alone)
