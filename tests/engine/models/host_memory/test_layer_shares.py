"""Layers of which each rank holds a part: every rank finds the whole ones, and holds no more than its share."""

import pytest
import torch

from burnish_engine.models.host_memory.layer_shares import PART_ALIGNMENT, LayerShares, part_bytes
from burnish_engine.models.host_memory.page_lock import PageLock
from burnish_engine.models.host_memory.weight_ring import WeightRing

from support.memory.late_copies import LateCopies
from support.memory.rank_memory import MemoryHere

CPU = torch.device("cpu")
SIZES = {0: 256, 1: 5 * PART_ALIGNMENT, 3: 4 * PART_ALIGNMENT, 4: 3000, 6: 1 << 14}


def rings(size, host=()):
    """The rings of so many ranks, whose layers are random bytes, and these bytes; some layers are on the host."""
    generator, memory, made = torch.Generator().manual_seed(0), [], []
    blocks = {
        layer: torch.randint(256, (count,), generator=generator, dtype=torch.uint8) for layer, count in SIZES.items()
    }
    shared = {layer: count for layer, count in SIZES.items() if layer not in host}
    hosted = {layer: SIZES[layer] for layer in host}
    for rank in range(size):
        ring = WeightRing(CPU, hosted, PageLock(), shared, MemoryHere(rank, memory, size))
        ring.copies = LateCopies(CPU)
        for layer, block in blocks.items():
            ring.storage(layer).copy_(block)
            ring.keep(layer)
        made.append(ring)
    return made, blocks


@pytest.mark.parametrize("size", [2, 3, 4, 7])
@pytest.mark.parametrize("host", [(), (1, 4)])
def test_every_rank_finds_whole_layers_in_both_directions(size, host):
    made, blocks = rings(size, host)
    for ring in made:
        for _ in range(2):
            ring.begin()
            for layer in range(7):
                with ring.present(layer):
                    if layer in SIZES:
                        assert torch.equal(ring.slot(layer), blocks[layer]), (layer, "upward")
            ring.turn(1)
            for layer in reversed(range(1, 7)):
                with ring.present(layer):
                    if layer in SIZES:
                        assert torch.equal(ring.slot(layer), blocks[layer]), (layer, "downward")


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_rank_holds_its_part_and_no_more(size):
    made, blocks = rings(size)
    for ring in made:
        parts = sum(part_bytes(count, size) for count in SIZES.values())
        assert ring.shares.bytes == parts <= sum(SIZES.values()) / size + len(SIZES) * PART_ALIGNMENT
        assert ring.host_bytes == 0
    for layer, block in blocks.items():
        assert torch.equal(torch.cat([ring.layers[layer] for ring in made]), block), "together they hold each byte once"


def test_ranks_read_from_different_ones_first():
    """Else all would wait for the same one."""
    made, _ = rings(3)
    firsts = [next(ring.shares.pieces(6, ring.slot(6)))[0].data_ptr() for ring in made]
    assert len(set(firsts)) == 3


def test_without_shared_layers_nothing_is_asked_for():
    shares = LayerShares({}, None)
    shares.wait_until_kept()
    assert not shares.bytes
    assert not shares.own
    assert 0 not in shares
