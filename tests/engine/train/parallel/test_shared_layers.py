"""Layers whose weights ranks share: the bits of a resident base, on any number of ranks, and after trouble."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.run.events import PhaseChanged, StepDone
from burnish_engine.models.host_memory.layer_shares import part_bytes
from burnish_engine.models.host_memory.weight_ring import SLOTS
from burnish_engine.runs.card import read_card
from burnish_engine.runs.store import create_run
from burnish_engine.train.base.engine import EvaluationRequest
from burnish_engine.train.engine_loader import make_engine
from burnish_engine.train.exchange import windows
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.guard.checksums import changed as changed_sums
from burnish_engine.train.guard.checksums import checksums
from burnish_engine.train.guard.fast_probe import FastProbe
from burnish_engine.train.parallel import launch
from burnish_engine.train.recovery.recovery import load_recovering
from burnish_engine.train.run import run_training

import support.runs.ranks
from support.models.tiny import make_llama
from support.runs.ranks import CPU
from support.runs.tiny_runs import WATCHED, evaluations, losses, of_kind, tiny_recipe, trained

LAYERS = 5


def recipe_of(folder, *, weights="ranks", quantize="none", exact=True, extra="", **train):
    """A recipe for a model of several layers, with passes of unequal length."""
    if not (folder / "base").exists():
        make_llama(folder / "base", num_hidden_layers=LAYERS)
    settings = {"accumulation": 5, "micro_batch_tokens": 128, **train}
    recipe = tiny_recipe(folder, rows=30, extra=extra, **settings)
    devices = DevicesSection(kind="cpu", threads=1, strategy="data_parallel", gpus=[0, 1], exact=exact)
    changes = {
        "devices": devices,
        "memory": recipe.memory.model_copy(update={"weights": weights}),
        "model": recipe.model.model_copy(update={"quantize": quantize}),
    }
    return recipe.model_copy(update=changes)


@pytest.mark.full
@pytest.mark.parametrize("quantize", ["none", "nf4"])
def test_shared_layers_train_the_bits_of_resident_ones(tmp_path, shared, quantize):
    """With unequal numbers of passes: five a step, of which three ranks make two, two and one."""
    results, masters = shared(recipe_of(tmp_path, weights="card", quantize=quantize), 1).steps(3)
    for size, weights in ((2, "ranks"), (3, "ranks"), (3, "ranks:2,card,ranks")):
        made = shared(recipe_of(tmp_path, weights=weights, quantize=quantize), size)
        found, theirs = made.steps(3)
        assert [one.loss for one in found] == [one.loss for one in results], (size, weights)
        assert torch.equal(theirs, masters), (size, weights)
        assert len(made.engine.plan.layers_on_ranks) == LAYERS - weights.count("card")


@pytest.mark.full
def test_each_rank_holds_its_part_and_two_layers_at_most(tmp_path, shared):
    made = shared(recipe_of(tmp_path), 3)
    ring = made.engine.model.loaded.decoder.ring
    blocks = {layer: len(ring.slot(layer)) for layer in range(LAYERS)}
    assert ring.shares.bytes == sum(part_bytes(count, 3) for count in blocks.values())
    assert ring.shares.bytes < sum(blocks.values()) / 2
    assert sum(slot.nbytes for slot in ring._slots) == SLOTS * max(blocks.values())
    assert not ring.host_bytes


@pytest.mark.full
def test_ranks_without_a_pass_or_supervised_tokens_take_part(tmp_path, shared):
    """Two passes a step for three ranks, most of them without supervised tokens."""
    settings = {"accumulation": 2, "pack": False}

    def silent(rows):
        return [
            replace(row, supervised=row.supervised if index % 6 == 0 else np.zeros_like(row.supervised))
            for index, row in enumerate(rows[index] for index in range(len(rows)))
        ]

    results, masters = shared(recipe_of(tmp_path, weights="card", **settings), 1, change=silent).steps(7)
    found, theirs = shared(recipe_of(tmp_path, **settings), 3, change=silent).steps(7)
    assert 0 in [one.supervised for one in found]
    assert [one.loss for one in found] == [one.loss for one in results]
    assert torch.equal(theirs, masters)


@pytest.mark.full
def test_what_one_rank_does_alone_needs_no_other(tmp_path, shared):
    """Held-out rows, dealt unevenly; and passes of the leader alone, while the others wait for its next order."""
    alone, made = (shared(recipe_of(tmp_path, weights=weights), size) for weights, size in (("card", 1), ("ranks", 3)))
    for one in (alone, made):
        one.steps(2)
    documents = made.data.validation
    request = EvaluationRequest(documents, 128)
    assert made.engine.held_out_loss(request) == alone.engine.held_out_loss(request)
    assert FastEngine.held_out_loss(made.engine, request) == alone.engine.held_out_loss(request)
    assert np.array_equal(made.engine.log_probs(request), alone.engine.log_probs(request))


def test_a_changed_part_is_noticed(tmp_path, shared):
    engine = shared(recipe_of(tmp_path), 2).engine
    before = checksums(FastProbe(engine).frozen())
    engine.model.loaded.decoder.ring.layers[3][:8].add_(1)
    assert changed_sums(before, checksums(FastProbe(engine).frozen())) == ["own part of layer 3"]


class FullOnce:
    """Makes one rank's so many-th window fail for lack of memory, once."""

    def __init__(self, monkeypatch, at):
        self.made, self.at, self.real = 0, at, windows.FileWindow.__init__
        monkeypatch.setattr(windows.FileWindow, "__init__", self.make())

    def make(self):
        def init(window, *arguments):
            self.made += 1
            if self.made == self.at:
                raise MemoryError("no room")
            self.real(window, *arguments)

        return init


@pytest.mark.full
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_rank_without_room_lets_all_load_again(tmp_path, shared, monkeypatch, at):
    """Any of the three, the leader among them; then all load the smallest plan, in which layers are shared still."""
    results, masters = shared(recipe_of(tmp_path, weights="card"), 1).steps(2)
    full, told = FullOnce(monkeypatch, at), []

    def recovering(spec, ranks, replica):
        def load(plan, _trained):
            return make_engine(replace(spec, plan=plan), ranks, replica)

        return load_recovering(load, "", CPU, told.append)._engine

    monkeypatch.setattr(support.runs.ranks, "make_engine", recovering)
    made = shared(recipe_of(tmp_path), 3)
    found, theirs = made.steps(2)
    assert full.made == 6
    assert len(told) == 1
    assert len(made.engine.plan.layers_on_ranks) == LAYERS
    assert [one.loss for one in found] == pytest.approx([one.loss for one in results], rel=1e-5)
    assert torch.allclose(theirs, masters, rtol=1e-3, atol=1e-5)


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the harness forks; the engine itself does not")
def test_killed_terminated_and_resumed_on_other_numbers_a_run_is_that_of_a_resident_base(
    tmp_path, fork_server, monkeypatch
):
    """A long run, which tries itself first: two ranks, of which one is killed; three, which are stopped; one; two."""
    forks = fork_server.ranks
    forks.clear()
    monkeypatch.setattr(launch, "_start", fork_server.start_rank)
    long = {"extra": WATCHED, "max_steps": 54, "epochs": 54.0, "accumulation": 2, "checkpoint_every": 4}
    alone = create_run(recipe_of(tmp_path, weights="card", **long), tmp_path / "alone")
    assert run_training(alone, gpus=[0]).exit_code is ExitCode.DONE
    paths = create_run(recipe_of(tmp_path, **long), tmp_path / "shared")

    def at(step, action):
        return lambda event: action() if isinstance(event, StepDone) and event.step == step else None

    killed = run_training(paths, listener=at(6, lambda: os.kill(forks[0].pid, signal.SIGKILL)), restarts=0)
    assert killed.exit_code is ExitCode.DRIVER
    assert "dry_run" in [event.phase for event in of_kind(paths, PhaseChanged)]
    stopped = run_training(paths, gpus=range(3), listener=at(12, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert stopped.exit_code is ExitCode.STOPPED
    held = run_training(paths, gpus=[0], listener=at(20, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert held.exit_code is ExitCode.STOPPED
    assert run_training(paths).exit_code is ExitCode.DONE
    assert len(forks) == 1 + 2 + 1
    assert f"ranks:{LAYERS}" in read_card(paths).result.memory_plan
    assert losses(paths) == losses(alone)
    assert evaluations(paths) == evaluations(alone)
    assert trained(paths) == trained(alone)
    assert all(process.poll() is not None for process in forks), "no rank outlives its run"
