"""Weights of layers that come from host memory: in time, in order, and never onto one that is in use."""

import gc
from types import SimpleNamespace

import pytest
import torch

from burnish_engine.models.host_memory.page_lock import PageLock
from burnish_engine.models.host_memory.weight_ring import ALIGNMENT, SLOTS, WeightRing, block_bytes, carve

from support.memory.late_copies import LateCopies

CPU = torch.device("cpu")


def made(layers, device=CPU, late=True):
    """A ring whose layers hold their own number; the layers have different sizes."""
    ring = WeightRing(device, {layer: 8 + layer for layer in layers}, PageLock())
    if late and device == CPU:
        ring.copies = LateCopies(device)
    for layer in layers:
        ring.host(layer).fill_(layer)
    return ring


def seen(ring, layers):
    """Collect what each layer finds in its slot, before and after it has computed."""
    found = []
    for layer in layers:
        with ring.present(layer):
            if layer in ring.layers:
                first = ring.slot(layer).clone()
                found.append((layer, set(first.tolist()), set(ring.slot(layer).tolist())))
    return found


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("layers", [[], [4], [1, 4], [1, 3, 5], [0, 1, 2, 3, 4, 5, 6]])
@pytest.mark.parametrize("lowest", [0, 2, 6])
def test_each_layer_finds_its_own_weights_in_both_directions(device, layers, lowest):
    """A forward pass alone, and two micro-batches, of which only the upper layers are differentiated."""
    ring = made(layers, torch.device(device))
    ring.begin()
    assert seen(ring, range(7)) == [(layer, {layer}, {layer}) for layer in layers]
    for _ in range(2):
        ring.begin()
        assert seen(ring, range(7)) == [(layer, {layer}, {layer}) for layer in layers]
        ring.turn(lowest)
        back = [layer for layer in reversed(range(7)) if layer >= lowest]
        assert seen(ring, back) == [(layer, {layer}, {layer}) for layer in back if layer in layers]


def test_the_backward_pass_begins_with_what_the_forward_pass_left():
    ring = made(range(6))
    ring.begin()
    seen(ring, range(6))
    assert ring.copies.begun == 6
    ring.turn(0)
    assert ring.copies.begun == 6
    seen(ring, reversed(range(6)))
    assert ring.copies.begun == 6 + 6 - SLOTS


def test_a_forward_pass_relies_on_nothing_in_the_slots():
    """Once captured, it may follow an evaluation as well as a backward pass."""
    ring = made(range(6))
    for _ in range(2):
        before = ring.copies.begun
        ring.begin()
        assert ring.copies.begun == before + SLOTS
        seen(ring, range(6))
        ring.turn(0)
        seen(ring, reversed(range(6)))


def test_the_next_layer_is_on_its_way_while_one_computes():
    ring = made(range(5))
    ring.begin()
    for layer in range(5):
        with ring.present(layer):
            assert set(ring.coming) == {layer + 1} & set(range(5))
    ring.turn(0)
    for layer in reversed(range(5)):
        with ring.present(layer):
            assert set(ring.coming) == ({layer - 1} if 0 < layer < 4 else set())


def test_few_layers_are_copied_once_for_both_passes():
    ring = made(range(SLOTS))
    ring.begin()
    seen(ring, range(SLOTS))
    ring.turn(0)
    seen(ring, reversed(range(SLOTS)))
    assert ring.copies.begun == SLOTS


def test_a_pass_that_broke_off_spoils_nothing():
    """Half-way up or down; and what evaluation left in the slots is not taken for what training did."""
    for broken in (range(3), range(6)):
        ring = made(range(6))
        ring.begin()
        seen(ring, broken)
        if len(broken) == 6:
            ring.turn(0)
            seen(ring, (5, 4, 3))
        ring.begin()
        assert seen(ring, range(6)) == [(layer, {layer}, {layer}) for layer in range(6)]
    with pytest.raises(ValueError, match="broken"), ring.present(5):
        raise ValueError("broken")
    ring.reset()
    assert not ring.coming
    ring.begin()
    assert seen(ring, range(6))[0] == (0, {0}, {0})


def test_a_block_holds_tensors_as_they_are():
    like = [torch.empty(3, 5, dtype=torch.bfloat16), torch.empty(0), torch.empty(7, dtype=torch.uint8), torch.empty(2)]
    size = block_bytes(like)
    assert size == 3 * ALIGNMENT
    block = torch.zeros(size + 1, dtype=torch.uint8)
    views = list(carve(block, like))
    assert [(view.shape, view.dtype) for view in views] == [(one.shape, one.dtype) for one in like]
    for number, view in enumerate(views):
        view.fill_(number + 1)
    assert [set(view.flatten().tolist()) for view in views] == [{1.0}, set(), {3}, {4.0}]
    assert not block[size:].any()


@pytest.mark.parametrize(("most", "bound"), [(400, None), (10_000, 400)])
def test_where_no_more_is_locked_weights_are_pageable(monkeypatch, most, bound):
    """Said once, with what may be locked; and what is locked is given back."""
    locked = {}

    def register(pointer, size, _flags):
        if sum(locked.values()) + size > most:
            return SimpleNamespace(value=2)
        locked[pointer] = size
        return SimpleNamespace(value=0)

    runtime = SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=locked.pop)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    ring = WeightRing(CPU, dict.fromkeys(range(4), 160), PageLock(bound))
    ring.copies.is_asynchronous = True  # as on a GPU
    for layer in range(4):
        ring.host(layer).fill_(layer)
        assert bool(ring.problem) == (layer >= 2)
    assert "memory.weights" in ring.problem
    assert sum(locked.values()) == 320
    assert ring.host_bytes == 640
    ring.copies.is_asynchronous = False
    ring.begin()
    assert seen(ring, range(4)) == [(layer, {layer}, {layer}) for layer in range(4)]
    del ring
    gc.collect()
    assert not locked


@pytest.mark.gpu
def test_copies_are_captured_in_both_directions():
    """Each replay brings what is in host memory then."""
    device = torch.device("cuda")
    ring, out = made(range(5), device), torch.zeros(2, 5, device=device)

    def up():
        ring.begin()
        for layer in range(5):
            with ring.present(layer):
                out[0, layer] = ring.slot(layer)[0]

    def down():
        ring.turn(0)
        for layer in reversed(range(5)):
            with ring.present(layer):
                out[1, layer] = ring.slot(layer)[0]

    up()
    down()
    graphs = []
    for part in (up, down):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            part()
        graphs.append(graph)
    for factor in (1, 3):
        for layer in range(5):
            ring.host(layer).fill_(factor * layer)
        for _ in range(3):
            out.zero_()
            for graph in graphs:
                graph.replay()
            torch.cuda.synchronize()
            assert out.tolist() == [[factor * layer for layer in range(5)]] * 2
