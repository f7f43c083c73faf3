"""Tiles of the grouped product: whose they are, and when unpacking pays."""

import json

import pytest
import torch

from burnish_kernels import tuning
from burnish_kernels.grouped_linear import cases, op, tiles
from burnish_kernels.grouped_linear.tiles import (
    FULL,
    INTERPRETED,
    STORAGES,
    UNPACK_ROWS,
    choose_tile,
    half_tiles,
    unpacking_pays,
)
from burnish_kernels.tuning import Device

CARD, CUDA = Device("NVIDIA GeForce RTX 4090", 89), torch.device("cuda")


@pytest.fixture
def card(monkeypatch, tmp_path):
    """A GPU by name only, with shipped tables in an empty folder."""
    for module in (tuning, tiles):
        monkeypatch.setattr(module, "device_of", lambda device: CARD)
    monkeypatch.setattr(tuning, "SHIPPED", tmp_path)
    monkeypatch.delenv(tuning.CACHE_VARIABLE, raising=False)
    tuning._tables.cache_clear()
    yield tmp_path
    tuning._tables.cache_clear()


def ship(folder, choices):
    (folder / "sm_89.json").write_text(json.dumps({"ops": {"grouped_linear": {"choices": choices}}}), encoding="utf-8")
    tuning._tables.cache_clear()


@pytest.mark.parametrize("storage", STORAGES)
def test_a_tile_is_the_capabilitys_first_until_a_table_names_another_that_is_compiled(storage, card):
    default, other = half_tiles(storage, 89)
    assert choose_tile(storage, torch.bfloat16, transposed=False, device=CUDA) == default
    fields = {"outputs": other.outputs, "reduction": 64, "warps": other.warps, "stages": 3, "group": 8, "swap": 0}
    ship(card, {f"{storage}-forward": fields})
    assert choose_tile(storage, torch.bfloat16, transposed=False, device=CUDA) == other
    assert choose_tile(storage, torch.bfloat16, transposed=True, device=CUDA) == default
    ship(card, {f"{storage}-forward": fields | {"stages": 5}})
    assert choose_tile(storage, torch.bfloat16, transposed=False, device=CUDA) == default


def test_fp32_and_the_interpreter_have_tiles_of_their_own(card):
    assert choose_tile("dense", torch.float32, transposed=False, device=CUDA) == FULL
    assert choose_tile("dense", torch.bfloat16, transposed=False, device=torch.device("cpu")) == INTERPRETED


def test_packed_weights_are_unpacked_from_a_number_of_rows_on(card):
    assert [unpacking_pays("nf4", rows, CUDA) for rows in (8, 4096)] == [False, True]
    assert not unpacking_pays("dense", 4096, CUDA)
    ship(card, {"unpack-nf4": {"rows": 10}})
    assert [unpacking_pays("nf4", rows, CUDA) for rows in (8, 10)] == [False, True]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("storage", UNPACK_ROWS)
def test_tuning_finds_the_rows_from_which_unpacking_pays_under_the_name_that_is_read(storage, card, monkeypatch):
    """The times are made up: decoding takes as long as there are rows, unpacking always the same."""
    took, pays_from = 0, 0

    def product(x, *_, **options):
        nonlocal took
        took += len(x) // 2 if options["scratch_GNK"] is None else pays_from

    monkeypatch.setattr(op, "grouped_linear", product)
    tuning_of = cases._unpack_tuning(storage, "cpu", (64, 64), experts=2)
    found = {}
    for pays_from in (1, UNPACK_ROWS[storage] * 2, 10**9):
        times = []
        for candidate in tuning_of.candidates:
            took = 0
            tuning_of.run(candidate)
            times.append(took)
        found[pays_from] = tuning_of.candidates[times.index(min(times))]
    assert [one["rows"] for one in found.values()] == [
        UNPACK_ROWS[storage] // 4, UNPACK_ROWS[storage] * 2, UNPACK_ROWS[storage] * 4 + 1
    ]  # fmt: skip
    ship(card, {tuning_of.key: {"rows": 10}})
    assert [unpacking_pays(storage, rows, CUDA) for rows in (8, 10)] == [False, True]
