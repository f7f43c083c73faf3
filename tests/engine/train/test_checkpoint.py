"""Checkpoints are whole or not trusted."""

import errno
import json

import pytest
import torch

from burnish_engine.contract.errors import NoSpaceError, UsageError
from burnish_engine.contract.recipe import AdapterSection, TrainSection
from burnish_engine.models import plain
from burnish_engine.models.source import open_model
from burnish_engine.train import checkpoint as checkpoints
from burnish_engine.train.optimizer import make_optimizer

CPU = torch.device("cpu")


def position(step):
    return checkpoints.Position(
        step=step, micro_batches=step, tokens=10 * step, dataset_hash="d", recipe_hash="r", threads=1,
        precision="fp32", layout="packed", device="cpu",
    )  # fmt: skip


@pytest.fixture
def trained(tiny_llama):
    model = plain.attach_adapter(plain.load_base(open_model(str(tiny_llama)), "fp32", CPU), AdapterSection(rank=2), 0)
    optimizer = make_optimizer(TrainSection(), plain.trainable_parameters(model))
    model(input_ids=torch.arange(9)[None], labels=torch.arange(9)[None]).loss.backward()
    optimizer.step()
    return model, optimizer


def test_everything_comes_back(tmp_path, trained, tiny_llama):
    model, optimizer = trained
    folder = checkpoints.save_checkpoint(tmp_path, model, optimizer, position(7), CPU)
    drawn = torch.rand(3)
    assert checkpoints.find_checkpoint(tmp_path) == (folder, [])
    assert checkpoints.read_position(folder) == position(7)
    base = plain.load_base(open_model(str(tiny_llama)), "fp32", CPU)
    again = plain.load_adapter(base, folder / "adapter", trainable=True)
    fresh = make_optimizer(TrainSection(), plain.trainable_parameters(again))
    checkpoints.restore_training(folder, again, fresh, CPU)
    assert torch.equal(torch.rand(3), drawn)
    pairs = zip(plain.trainable_parameters(model), plain.trainable_parameters(again), strict=True)
    for (name, old), (same_name, new) in pairs:
        assert name == same_name
        assert torch.equal(old, new)
        for moment in ("exp_avg", "exp_avg_sq", "step"):
            assert torch.equal(optimizer.state[old][moment], fresh.state[new][moment])


def test_no_pickles_are_written(tmp_path, trained):
    folder = checkpoints.save_checkpoint(tmp_path, *trained, position(1), CPU)
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".safetensors", ".json", ""}


@pytest.mark.parametrize("damage", ["marker", "truncate", "flip", "missing"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path, trained, damage):
    good = checkpoints.save_checkpoint(tmp_path, *trained, position(1), CPU)
    bad = checkpoints.save_checkpoint(tmp_path, *trained, position(2), CPU)
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


def test_only_the_newest_are_kept_and_leftovers_go(tmp_path, trained):
    for step in (1, 2, 3):
        checkpoints.save_checkpoint(tmp_path, *trained, position(step), CPU)
    (tmp_path / ".step-000004.partial").mkdir()
    checkpoints.prune_checkpoints(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000003"]


def test_an_unfinished_later_checkpoint_never_pushes_out_a_good_one(tmp_path, trained):
    """A save at step 9 was killed before its marker; the run went on from before and saved at step 4."""
    (checkpoints.save_checkpoint(tmp_path, *trained, position(9), CPU) / "COMPLETE").unlink()
    good = checkpoints.save_checkpoint(tmp_path, *trained, position(4), CPU)
    checkpoints.prune_checkpoints(tmp_path, 1)
    assert checkpoints.find_checkpoint(tmp_path) == (good, [])


def test_steps_are_ordered_by_number(tmp_path, trained):
    checkpoints.save_checkpoint(tmp_path, *trained, position(999_999), CPU)
    newest = checkpoints.save_checkpoint(tmp_path, *trained, position(1_000_000), CPU)
    assert checkpoints.find_checkpoint(tmp_path)[0] == newest


def test_a_full_disk_leaves_the_older_checkpoint(tmp_path, trained, monkeypatch):
    good = checkpoints.save_checkpoint(tmp_path, *trained, position(1), CPU)

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(NoSpaceError, match="disk is full"):
        checkpoints.save_checkpoint(tmp_path, *trained, position(2), CPU)
    assert checkpoints.find_checkpoint(tmp_path) == (good, [])


def test_other_versions_are_refused(tmp_path, trained):
    folder = checkpoints.save_checkpoint(tmp_path, *trained, position(1), CPU)
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, "v": 99}))
    with pytest.raises(UsageError, match="version 99"):
        checkpoints.read_position(folder)


def test_the_adapter_folder_is_replaced_in_place(tmp_path, trained):
    model, _ = trained
    checkpoints.save_adapter(model, tmp_path / "adapter")
    before = (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes()
    with torch.no_grad():
        plain.trainable_parameters(model)[0][1].add_(1.0)
    checkpoints.save_adapter(model, tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes() != before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["adapter"]
