"""Every optimizer put back: a resumed run, and one that a snapshot took back, make the same steps to the bit."""

import pytest
import torch
from engine.train.optimizers.optimizer_run import (
    CPU,
    CUDA,
    ENGINES,
    HALF_WARM,
    MAGMA,
    NO_DROPOUT,
    NOT_PAGED,
    TOTAL,
    state_of,
)

from burnish_engine.train.lifecycle import checkpoint as checkpoints

from support.runs.shelf import OPTIMIZERS

FULL = {"adapter": {"method": "full"}}

KINDS = [
    *((name, "fast", MAGMA if index % 2 else {}, "fp32", CPU) for index, name in enumerate(OPTIMIZERS)),
    *((name, "plain", {} if index % 2 else MAGMA, "fp32", CPU) for index, name in NOT_PAGED),
    *((name, "plain", FULL | (MAGMA if index % 2 else {}), "bf16", CPU) for index, name in NOT_PAGED),
    ("adamw", "plain", FULL, "fp32", CPU), ("adamw8bit", "plain", FULL, "fp32", CPU),
    ("adamw", "fast", MAGMA, "fp16", CPU), ("lion", "fast", {}, "fp16", CPU), ("muon", "fast", {}, "fp16", CPU),
    *(
        pytest.param(name, engine, {}, "bf16", CUDA, marks=pytest.mark.gpu)
        for name in OPTIMIZERS for engine in ENGINES
    ),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("name", "engine", "sections", "precision", "device"), KINDS)
def test_a_resumed_run_makes_the_same_steps_to_the_bit(run, tmp_path, name, engine, sections, precision, device):
    """From a checkpoint's files, saved in the middle of warmup, under dropout; evaluations change nothing.

    The plain engine adds in no fixed order on a GPU, so of its runs there only the losses have to agree.
    """
    options = {**sections, "precision": precision, "device": device, "train": {**HALF_WARM, "lora_plus_ratio": 2.0}}
    if "adapter" in sections:
        options["train"] = HALF_WARM
    torch.manual_seed(5)
    whole = run(name, engine, **options)
    whole.steps(3)
    layout = whole.engine.facts.layout
    position = checkpoints.Position(3, 3, 3, "d", "r", 1, precision, layout, device.type, engine)
    folder = checkpoints.save_checkpoint(tmp_path / "checkpoints", whole.engine, position, device)
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} <= {".json", ".safetensors", ".jinja", ""}
    whole.held_out()
    whole.engine.replies([[5, 6, 7]], 2)
    whole.engine.save_adapter(tmp_path / "aside")
    expected = whole.steps(TOTAL - 3)
    again = run(name, engine, trained=checkpoints.trained_folder(folder), step=3, **options)
    checkpoints.restore_training(folder, again.engine, device)
    found = again.steps(TOTAL - 3)
    if engine == "plain" and device == CUDA:
        assert [loss for loss, _ in found] == pytest.approx([loss for loss, _ in expected], rel=1e-2)
        return
    assert found == expected
    first, second = state_of(whole), state_of(again)
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[key]) for key, value in first.items())
    assert any(value.dtype == torch.uint8 for value in first.values()) == ("8bit" in name)
    for one, where in ((whole, "first"), (again, "second")):
        one.engine.save_adapter(tmp_path / where)
    files = [next((tmp_path / where).glob("*model*.safetensors")).read_bytes() for where in ("first", "second")]
    assert files[0] == files[1]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "engine", "sections", "before"),
    [
        *(
            (name, engine, (NO_DROPOUT, MAGMA | NO_DROPOUT)[(index + plain) % 2], 2 * ((index + plain) % 2))
            for index, name in enumerate(OPTIMIZERS)
            for plain, engine in enumerate(ENGINES)
        ),
        ("adamw", "plain", FULL | {"precision": "bf16"}, 2),
        ("adamw8bit", "plain", FULL | {"precision": "bf16"}, 2),
    ],
)
def test_a_snapshot_undoes_the_steps_after_it(run, name, engine, sections, before):
    """As the dry run before training, or before a resumed run's: everything is as if they had never been made."""
    quiet, busy = run(name, engine, **sections), run(name, engine, **sections)
    assert quiet.steps(before) == busy.steps(before)
    put_back = busy.engine.snapshot()
    busy.steps(2)
    put_back()
    busy.engine.start(before, TOTAL, TOTAL)
    assert quiet.steps(3) == busy.steps(3)
    first, second = state_of(quiet), state_of(busy)
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[key]) for key, value in first.items())
