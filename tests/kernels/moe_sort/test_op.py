"""Sorting by expert: what an order promises, and refusals."""

import pytest
import torch

from burnish_kernels.moe_sort.op import sort_by_expert
from burnish_kernels.moe_sort.order import empty_order, most_tiles

IDS = torch.tensor([[2, 0], [2, 3], [0, 2], [2, 2]], dtype=torch.int32)


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """The path without a GPU; kernels have cases of their own."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def test_positions_stand_by_expert_and_in_their_own_order_inside():
    order = sort_by_expert(IDS, 5, tile_rows=2)
    assert order.order.tolist() == [1, 4, 0, 2, 5, 6, 7, 3]
    assert order.offsets.tolist() == [0, 2, 2, 7, 8, 8]
    assert torch.equal(order.order[order.inverse.long()], torch.arange(8, dtype=torch.int32))


def test_tiles_stay_inside_their_expert_and_the_rest_is_marked():
    order = sort_by_expert(IDS, 5, tile_rows=2)
    assert order.tiles[:5].tolist() == [[0, 0], [2, 2], [2, 4], [2, 6], [3, 7]]
    assert set(order.tiles[5:, 0].tolist()) == {-1}
    assert order.tile_starts.tolist() == [0, 1, 1, 4, 5, 5]


@pytest.mark.parametrize("tile_rows", [1, 4, 16])
def test_no_spread_over_experts_needs_more_tiles_than_there_are(tile_rows):
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(1 + seed % 7, (13, 3), generator=generator, dtype=torch.int32)
        order = sort_by_expert(ids, 7, tile_rows=tile_rows)
        assert order.tile_starts[-1] <= len(order.tiles) == most_tiles(39, 7, tile_rows)
        covered = [row for expert, first in order.tiles.tolist() if expert >= 0
                   for row in range(first, min(first + tile_rows, int(order.offsets[expert + 1])))]  # fmt: skip
        assert covered == list(range(39))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"ids_Tk": IDS.long()}, "int32"),
        ({"ids_Tk": IDS.t()}, "contiguous"),
        ({"ids_Tk": IDS.view(-1)}, "ids"),
        ({"experts": 0}, "expert"),
        ({"tile_rows": 3}, "2\\^n"),
        ({"out": empty_order(8, 4, 2, tile_rows=2, device="cpu")}, "out"),
    ],
)
def test_what_does_not_fit_is_named(changes, named):
    with pytest.raises(ValueError, match=named):
        sort_by_expert(**{"ids_Tk": IDS, "experts": 5, "tile_rows": 2} | changes)
