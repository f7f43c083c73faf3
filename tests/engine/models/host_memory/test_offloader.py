"""What layers keep, in host memory and back."""

import gc
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from burnish_engine.models.host_memory.offloader import OffloadedTensor, Offloader

CPU = torch.device("cpu")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@dataclass
class Kept:
    """Stands for `layer_types.SavedActivations`."""

    gate_up_TJ: torch.Tensor | None  # noqa: N815  as there
    narrow: torch.Tensor | None
    offloaded: dict[str, OffloadedTensor] = field(default_factory=dict)


def made(device, rows=8, layers=6):
    torch.manual_seed(0)
    return [Kept(torch.randn(rows, 5, device=device), torch.randn(rows, device=device)) for _ in range(layers)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("serial", [False, True])
def test_what_was_offloaded_comes_back(device, serial):
    layers = made(device)
    exact = [(kept.gate_up_TJ.clone(), kept.narrow.clone()) for kept in layers]
    offloader = Offloader(torch.device(device), 8)
    offloader.serial = serial
    for index, kept in enumerate(layers):
        if index != 3:
            offloader.offload(index, kept, ("gate_up_TJ",))
            assert kept.gate_up_TJ is None
    offloader.wait_for_copies()
    for index in reversed(range(6)):
        offloader.prefetch(layers)
        coming = [one.offloaded["gate_up_TJ"].back is not None for one in layers if one.offloaded]
        assert sum(coming) == min(len(coming), (index != 3) if serial else 3 - (index - 2 <= 3 <= index))
        kept = layers.pop()
        offloader.restore(kept)
        assert torch.equal(kept.gate_up_TJ, exact[index][0])
        assert torch.equal(kept.narrow, exact[index][1])
        assert not kept.offloaded


def test_the_next_layers_are_on_their_way_back():
    """The wide ones two layers ahead, others one."""
    layers = made(CPU)
    offloader = Offloader(CPU, 8)
    for index, kept in enumerate(layers):
        offloader.offload(index, kept, ("gate_up_TJ", "narrow"))
    offloader.prefetch(layers)
    assert [kept.offloaded["gate_up_TJ"].back is not None for kept in layers] == [False] * 3 + [True] * 3
    assert [kept.offloaded["narrow"].back is not None for kept in layers] == [False] * 4 + [True] * 2
    offloader.restore(layers.pop())
    offloader.prefetch([None, *layers[1:]])
    assert [kept.offloaded["narrow"].back is not None for kept in layers] == [False] * 3 + [True] * 2


def test_host_memory_is_for_the_largest_bucket_and_taken_once():
    offloader = Offloader(CPU, 16)
    for rows in (8, 16, 8):
        kept = made(CPU, rows)[0]
        exact = kept.gate_up_TJ.clone()
        offloader.begin([], kept.gate_up_TJ)
        offloader.offload(0, kept, ("gate_up_TJ",))
        assert offloader.host_bytes == 16 * 5 * 4
        offloader.prefetch([kept])
        offloader.restore(kept)
        assert torch.equal(kept.gate_up_TJ, exact)


@pytest.mark.parametrize("device", DEVICES)
def test_offloaded_tensors_take_turns_in_the_pools_buffers(device):
    """Of this pass's size; all are given back after each half of it, and on a GPU two may be leaving meanwhile."""
    device = torch.device(device)
    offloader = Offloader(device, 8)
    for rows in (8, 4, 8):
        offloader.begin([{"gate_up_TJ": 5}] * 6, torch.empty(rows, 1, device=device))
        assert offloader.buffers.counts == {"gate_up_TJ": 3 if device.type == "cuda" else 1}
        layers, exact, taken = [], [], []
        for index in range(6):
            tensor = offloader.take("gate_up_TJ", rows, 5, torch.empty(0, device=device))
            tensor.copy_(torch.randn(rows, 5))
            taken.append(tensor.data_ptr())
            exact.append(tensor.clone())
            layers.append(Kept(tensor, None))
            offloader.offload(index, layers[-1], ("gate_up_TJ",))
        assert len(set(taken)) == (3 if device.type == "cuda" else 1)
        assert tensor.shape == (rows, 5)
        offloader.wait_for_copies()
        assert not offloader.buffers.counts
        for index in reversed(range(6)):
            offloader.prefetch(layers)
            kept = layers.pop()
            offloader.restore(kept)
            assert torch.equal(kept.gate_up_TJ, exact[index])
            assert offloader.buffers.counts == {"gate_up_TJ": 3}
        offloader.finish()
        assert not offloader.buffers.counts


def test_a_pass_that_broke_off_leaves_no_buffer_taken():
    offloader = Offloader(CPU, 8)
    for _ in range(3):
        offloader.begin([{"gate_up_TJ": 5}], torch.empty(8, 1))
        offloader.take("gate_up_TJ", 8, 5, torch.empty(0))
        offloader.take("gate_up_TJ", 8, 5, torch.empty(0))
        assert offloader.buffers.counts == {"gate_up_TJ": 2}


def test_what_was_on_its_way_is_forgotten_though_its_capture_cannot_be_joined(monkeypatch):
    """The next pass may not wait for events of a capture that was spoiled: it would be refused."""
    offloader = Offloader(CPU, 8)
    offloader._copies_at_once = False
    offloader.copies._stream = object()

    def refuse(*_):
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    stream = SimpleNamespace(wait_stream=refuse, wait_event=refuse)
    offloader._in_flight.append((object(), torch.empty(1)))
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    offloader.reset()
    offloader.begin([], torch.empty(8, 1))


@pytest.mark.parametrize(("layers", "counts"), [
    ("gggg", {"gate_up_TJ": 3}), ("g-g-g", {"gate_up_TJ": 3}), ("gg", {"gate_up_TJ": 2}), ("hhh", {"o_TE": 2}),
    ("h", {"o_TE": 1}), ("ghghg", {"gate_up_TJ": 1, "o_TE": 2}), ("hggh", {"gate_up_TJ": 2, "o_TE": 1}), ("--", {}),
    ("hgh", {"gate_up_TJ": 1, "o_TE": 2}),
])  # fmt: skip
def test_buffers_are_made_before_they_are_needed(layers, counts):
    """As many as the layers then take: none more is made on the way."""
    offloader = Offloader(CPU, 8)
    offloader._copies_at_once = False
    kinds = {"g": {"gate_up_TJ": 5}, "h": {"start_TH": None, "o_TE": 3}, "-": {}}
    offloader.begin([kinds[kind] for kind in layers], torch.empty(8, 1))
    assert offloader.buffers.counts == counts
    for index, kind in enumerate(layers):
        like = torch.empty(0)
        taken = {name: offloader.take(name, 8, width, like) if width else torch.empty(8, 1)
                 for name, width in kinds[kind].items()}  # fmt: skip
        offloader.offload(index, SimpleNamespace(**taken, offloaded={}), tuple(taken))
        assert offloader.buffers.counts == counts


@pytest.mark.parametrize("widths", [(3, 5, 4), (5, 3, 3), (6, 5, 4, 3)])
def test_buffers_hold_the_widest(widths):
    """Layers may have adapters of their own ranks; backward no buffer is too small for the layer below either."""
    offloader = Offloader(CPU, 8)
    offloader.begin([{"o_TE": width} for width in widths], torch.empty(8, 1))
    layers, exact = [], []
    for index, width in enumerate(widths):
        tensor = offloader.take("o_TE", 8, width, torch.empty(0))
        assert tensor.shape == (8, width)
        exact.append(tensor.copy_(torch.randn(8, width)).clone())
        layers.append(SimpleNamespace(o_TE=tensor, offloaded={}))
        offloader.offload(index, layers[-1], ("o_TE",))
    assert offloader.buffers.counts == {"o_TE": 1}
    offloader.wait_for_copies()
    while layers:
        offloader.prefetch(layers)
        kept = layers.pop()
        offloader.restore(kept)
        assert torch.equal(kept.o_TE, exact.pop())
    assert offloader.buffers.counts == {"o_TE": 2}


class Runtime:
    """Stands for the CUDA runtime: locks so many bytes."""

    def __init__(self, most):
        self.most, self.locked = most, {}

    def cudaHostRegister(self, pointer, size, _flags):  # noqa: N802
        if sum(self.locked.values()) + size > self.most:
            return SimpleNamespace(value=2)
        self.locked[pointer] = size
        return SimpleNamespace(value=0)

    def cudaHostUnregister(self, pointer):  # noqa: N802
        del self.locked[pointer]


@pytest.mark.parametrize(("most", "lockable", "words"), [(400, None, "CUDA error 2"), (10_000, 400, "may be")])
def test_where_no_more_is_locked_the_rest_is_pageable(monkeypatch, most, lockable, words):
    """And everything is given back."""
    runtime = Runtime(most)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    offloader = Offloader(CPU, 8, lockable)
    offloader.copies.is_asynchronous = True  # as on a GPU
    for layer in range(4):
        offloader._host_view(layer, "gate_up_TJ", torch.zeros(8, 5))
        assert bool(offloader.problem) == (layer >= 2)
    assert words in offloader.problem
    assert sum(runtime.locked.values()) == 2 * 160
    assert offloader.host_bytes == 4 * 160
    del offloader
    gc.collect()
    assert not runtime.locked


@pytest.mark.gpu
def test_host_memory_is_unlocked_when_it_is_given_up():
    kept = made("cuda")[0]
    offloader = Offloader(torch.device("cuda"), 8)
    offloader.offload(0, kept, ("gate_up_TJ",))
    offloader.wait_for_copies()
    torch.cuda.synchronize()
    place = next(iter(offloader._host_buffers.values()))
    assert place.is_pinned()
    del offloader, kept
    gc.collect()
    assert not place.is_pinned()


@pytest.mark.gpu
def test_copies_run_beside_products():
    """Parking while the device multiplies takes less than both one after the other."""
    device = torch.device("cuda")
    big = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    offloader = Offloader(device, 1 << 14)

    def compute():
        product = big
        for _ in range(30):
            product = product @ big
        return product

    def timed(*, copies, computes):
        kept = Kept(torch.empty(1 << 14, 1 << 13, device=device), None)
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        if copies:
            offloader.offload(0, kept, ("gate_up_TJ",))
        if computes:
            compute()
        offloader.wait_for_copies()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    timed(copies=True, computes=True)
    copy = timed(copies=True, computes=False)
    added = min(timed(copies=True, computes=True) - timed(copies=False, computes=True) for _ in range(5))
    assert added < 0.7 * copy  # some is added: both need memory
