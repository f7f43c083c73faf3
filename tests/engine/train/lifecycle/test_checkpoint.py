"""Checkpoints are whole or not trusted, whichever engine trains."""

import errno
import hashlib
import json
import os
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from burnish_engine.contract.errors import NoSpaceError, UsageError
from burnish_engine.data.prepare import prepare
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.engine_loader import make_engine
from burnish_engine.train.guard.watch import Trouble
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.recovery.rollback import choose_rollback

from support.runs.tiny_runs import tiny_recipe

CPU = torch.device("cpu")


def position(step, engine="fast"):
    return checkpoints.Position(
        step=step, micro_batches=step, tokens=10 * step, dataset_hash="d", recipe_hash="r", threads=1,
        precision="fp32", layout="packed", device="cpu", engine=engine,
    )  # fmt: skip


@pytest.fixture(scope="module")
def open_engine(tmp_path_factory):
    """Open engines over one tiny recipe: (name, adapter folder, step) -> engine."""
    recipe = tiny_recipe(tmp_path_factory.mktemp("recipe"))
    source = open_model(recipe.model.path)
    tokenizer = load_tokenizer(source)
    stream = BatchStream(prepare(recipe, tokenizer).train, recipe.train)
    made = []

    def open_engine(name, adapter=None, step=0):
        torch.manual_seed(0)
        engine = make_engine(EngineSpec(source, recipe, stream, tokenizer, "fp32", CPU, adapter, name, "packed"))
        engine.start(step, 40, 40)
        made.append(engine)
        return engine

    yield open_engine
    for engine in made:
        engine.close()


def after_steps(engine, count=2):
    for _ in range(count):
        engine.queue_step()
    return list(engine.results(wait=True))


@pytest.fixture(scope="module")
def trained(open_engine):
    """A fast engine after two steps."""
    engine = open_engine("fast")
    after_steps(engine)
    return engine


@pytest.mark.full
@pytest.mark.parametrize("name", ["fast", "plain"])
def test_everything_comes_back(tmp_path, open_engine, name):
    engine = open_engine(name)
    after_steps(engine)
    folder = checkpoints.save_checkpoint(tmp_path, engine, position(2, name), CPU)
    drawn = torch.rand(3), np.random.rand(3), random.random()
    following = [(step.step, step.loss, step.grad_norm) for step in after_steps(engine, 3)]
    assert checkpoints.find_checkpoint(tmp_path) == (folder, [])
    assert checkpoints.read_position(folder) == replace(position(2, name), plan=engine.facts.memory_plan)

    again = open_engine(name, folder / "adapter", step=2)
    checkpoints.restore_training(folder, again, CPU)
    assert torch.equal(torch.rand(3), drawn[0])
    assert (np.random.rand(3) == drawn[1]).all()
    assert random.random() == drawn[2]
    saved = checkpoints.load_file(folder / "optimizer.safetensors")
    restored = again.optimizer_tensors()
    assert restored.keys() == saved.keys()
    assert all(torch.equal(restored[key], value) for key, value in saved.items())
    # The plain engine draws dropout from torch's generator, which is where it was when the first engine continued.
    assert [(step.step, step.loss, step.grad_norm) for step in after_steps(again, 3)] == following


@pytest.mark.full
def test_the_optimizer_of_another_adapter_is_not_taken(tmp_path, trained, open_engine):
    folder = checkpoints.save_checkpoint(tmp_path, trained, position(1), CPU)
    tensors = checkpoints.load_file(folder / "optimizer.safetensors")
    (lost, *_) = sorted(key for key in tensors if key.endswith("/exp_avg"))
    del tensors[lost]
    checkpoints.save_file(tensors, folder / "optimizer.safetensors")
    with pytest.raises(KeyError):
        checkpoints.restore_training(folder, open_engine("fast"), CPU)


def test_checkpoints_from_before_there_were_two_engines_are_of_the_plain_one(tmp_path, trained):
    folder = checkpoints.save_checkpoint(tmp_path, trained, position(1), CPU)
    state = json.loads((folder / "state.json").read_text())
    del state["engine"]
    (folder / "state.json").write_text(json.dumps(state))
    assert checkpoints.read_position(folder).engine == "plain"


def test_no_pickles_are_written(tmp_path, trained):
    folder = checkpoints.save_checkpoint(tmp_path, trained, position(1), CPU)
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".safetensors", ".json", ""}


@pytest.mark.parametrize("damage", ["marker", "truncate", "flip", "missing"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path, trained, damage):
    good = checkpoints.save_checkpoint(tmp_path, trained, position(1), CPU)
    bad = checkpoints.save_checkpoint(tmp_path, trained, position(2), CPU)
    file = bad / "optimizer.safetensors"
    if damage == "marker":
        (bad / "COMPLETE").unlink()
    elif damage == "truncate":
        file.write_bytes(file.read_bytes()[:-7])
    elif damage == "flip":
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    else:
        file.unlink()
    assert checkpoints.find_checkpoint(tmp_path) == (good, ["step-000002"])


@pytest.mark.parametrize("marker", [b"", b"{}", b"[]", b"null", b"3", b"\xff", b"[" * 5000, b'{"state.json": 3}'])
def test_a_checkpoint_with_a_damaged_marker_is_passed_over(tmp_path, marker):
    for step in (1, 2):
        folder = tmp_path / f"step-{step:06d}"
        folder.mkdir()
        (folder / "state.json").write_bytes(b"state")
        (folder / "COMPLETE").write_text(json.dumps({"state.json": hashlib.sha256(b"state").hexdigest()}))
    (folder / "COMPLETE").write_bytes(marker)
    assert checkpoints.find_checkpoint(tmp_path) == (tmp_path / "step-000001", ["step-000002"])


@pytest.mark.parametrize("state", [None, b"", b"[]", b"\xff", b'{"v": 1}', b'{"v": 99}', b"[" * 5000])
def test_a_damaged_older_checkpoint_stops_no_save(tmp_path, trained, state):
    older = checkpoints.save_checkpoint(tmp_path, trained, position(1), CPU)
    checkpoints.save_checkpoint(tmp_path, trained, position(2), CPU)
    (older / "state.json").unlink()
    if state is not None:
        (older / "state.json").write_bytes(state)
    assert [kept.step for kept in checkpoints.positions(tmp_path)] == [2]


def test_only_the_newest_are_kept_and_leftovers_go(tmp_path, trained):
    for step in (1, 2, 3):
        checkpoints.save_checkpoint(tmp_path, trained, position(step), CPU)
    (tmp_path / ".step-000004.partial").mkdir()
    checkpoints.prune_checkpoints(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000003"]


def test_an_unfinished_later_checkpoint_never_pushes_out_a_good_one(tmp_path, trained):
    """A save at step 9 was killed before its marker; the run continued from before and saved at step 4."""
    (checkpoints.save_checkpoint(tmp_path, trained, position(9), CPU) / "COMPLETE").unlink()
    good = checkpoints.save_checkpoint(tmp_path, trained, position(4), CPU)
    checkpoints.prune_checkpoints(tmp_path, 1)
    assert checkpoints.find_checkpoint(tmp_path) == (good, [])


def test_going_back_leaves_no_later_checkpoint(tmp_path, trained):
    """A run that is killed right after must not continue from what it went back from."""
    saved = {step: checkpoints.save_checkpoint(tmp_path, trained, position(step), CPU) for step in (3, 6, 9, 12)}
    good, rollback = choose_rollback(tmp_path, Trouble(step=11, first=8, reason="The loss was nan."))
    assert (good, rollback.to_step, rollback.step) == (saved[6], 6, 11)
    assert checkpoints.find_checkpoint(tmp_path) == (saved[6], [])
    assert choose_rollback(tmp_path, Trouble(step=4, first=2, reason=""))[0] is None
    assert checkpoints.find_checkpoint(tmp_path) == (None, [])


def test_steps_are_ordered_by_number(tmp_path, trained):
    checkpoints.save_checkpoint(tmp_path, trained, position(999_999), CPU)
    newest = checkpoints.save_checkpoint(tmp_path, trained, position(1_000_000), CPU)
    assert checkpoints.find_checkpoint(tmp_path)[0] == newest


def test_a_full_disk_leaves_the_older_checkpoint(tmp_path, trained, monkeypatch):
    good = checkpoints.save_checkpoint(tmp_path, trained, position(1), CPU)

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(NoSpaceError, match="disk is full"):
        checkpoints.save_checkpoint(tmp_path, trained, position(2), CPU)
    assert checkpoints.find_checkpoint(tmp_path) == (good, [])


@pytest.mark.parametrize("number", ["28", "112"])
def test_a_disk_that_fills_while_the_adapter_is_written_is_told_as_such(tmp_path, trained, monkeypatch, number):
    """safetensors raises an error of its own, with the system's number in words only."""
    from safetensors import SafetensorError

    from burnish_engine.models.decoder import lora_adapter

    def full(*_args, **_kwargs):
        raise SafetensorError(f"Error while serializing: I/O error: no room (os error {number})")

    monkeypatch.setattr(lora_adapter, "save_file", full)
    with pytest.raises(NoSpaceError, match="disk is full"):
        checkpoints.save_checkpoint(tmp_path, trained, position(2), CPU)
    with pytest.raises(NoSpaceError, match="disk is full"):
        checkpoints.save_adapter(trained, tmp_path / "adapter")


def test_other_versions_are_refused(tmp_path, trained):
    folder = checkpoints.save_checkpoint(tmp_path, trained, position(1), CPU)
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, "v": 99}))
    with pytest.raises(UsageError, match="version 99"):
        checkpoints.read_position(folder)


@pytest.mark.parametrize("name", ["fast", "plain"])
def test_the_adapter_folder_is_replaced_in_place(tmp_path, open_engine, name):
    engine = open_engine(name)
    checkpoints.save_adapter(engine, tmp_path / "adapter")
    before = (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes()
    after_steps(engine, 1)
    checkpoints.save_adapter(engine, tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes() != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter"]
    names = {"adapter_config.json", "adapter_model.safetensors"}
    assert {path.name for path in (tmp_path / "adapter").iterdir()} == names
    if os.name == "posix":
        assert all(path.stat().st_mode & 0o777 == 0o644 for path in (tmp_path / "adapter").iterdir())
