"""What layers keep, in host memory and back."""

import gc
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from burnish_engine.models.offload import Offload, Parked

CPU = torch.device("cpu")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@dataclass
class Kept:
    """Stands for `layer_types.Saved`."""

    gate_up_TJ: torch.Tensor | None  # noqa: N815  as there
    narrow: torch.Tensor | None
    parked: dict[str, Parked] = field(default_factory=dict)


def made(device, rows=8, layers=6):
    torch.manual_seed(0)
    return [Kept(torch.randn(rows, 5, device=device), torch.randn(rows, device=device)) for _ in range(layers)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("serial", [False, True])
def test_what_was_parked_comes_back(device, serial):
    layers = made(device)
    exact = [(kept.gate_up_TJ.clone(), kept.narrow.clone()) for kept in layers]
    offload = Offload(torch.device(device), 8)
    offload.serial = serial
    for index, kept in enumerate(layers):
        if index != 3:
            offload.park(index, kept, ("gate_up_TJ",))
            assert kept.gate_up_TJ is None
    offload.settle()
    for index in reversed(range(6)):
        offload.prefetch(layers)
        coming = [one.parked["gate_up_TJ"].back is not None for one in layers if one.parked]
        assert sum(coming) == min(len(coming), (index != 3) if serial else 3 - (index - 2 <= 3 <= index))
        kept = layers.pop()
        offload.restore(kept)
        assert torch.equal(kept.gate_up_TJ, exact[index][0])
        assert torch.equal(kept.narrow, exact[index][1])
        assert not kept.parked


def test_the_next_layers_are_on_their_way_back():
    """The wide ones two layers ahead, others one."""
    layers = made(CPU)
    offload = Offload(CPU, 8)
    for index, kept in enumerate(layers):
        offload.park(index, kept, ("gate_up_TJ", "narrow"))
    offload.prefetch(layers)
    assert [kept.parked["gate_up_TJ"].back is not None for kept in layers] == [False] * 3 + [True] * 3
    assert [kept.parked["narrow"].back is not None for kept in layers] == [False] * 4 + [True] * 2
    offload.restore(layers.pop())
    offload.prefetch([None, *layers[1:]])
    assert [kept.parked["narrow"].back is not None for kept in layers] == [False] * 3 + [True] * 2


def test_places_are_for_the_largest_bucket_and_taken_once():
    offload = Offload(CPU, 16)
    for rows in (8, 16, 8):
        kept = made(CPU, rows)[0]
        exact = kept.gate_up_TJ.clone()
        offload.begin([], kept.gate_up_TJ)
        offload.park(0, kept, ("gate_up_TJ",))
        assert offload.host_bytes == 16 * 5 * 4
        offload.prefetch([kept])
        offload.restore(kept)
        assert torch.equal(kept.gate_up_TJ, exact)


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_parked_takes_turns_in_slots(device):
    """Of this pass's size; all are given back after each half of it, and on a GPU two may be leaving meanwhile."""
    device = torch.device(device)
    offload = Offload(device, 8)
    for rows in (8, 4, 8):
        offload.begin([{"gate_up_TJ": 5}] * 6, torch.empty(rows, 1, device=device))
        assert offload._slots.counts == {"gate_up_TJ": 3 if device.type == "cuda" else 1}
        layers, exact, taken = [], [], []
        for index in range(6):
            tensor = offload.take("gate_up_TJ", rows, 5, torch.empty(0, device=device))
            tensor.copy_(torch.randn(rows, 5))
            taken.append(tensor.data_ptr())
            exact.append(tensor.clone())
            layers.append(Kept(tensor, None))
            offload.park(index, layers[-1], ("gate_up_TJ",))
        assert len(set(taken)) == (3 if device.type == "cuda" else 1)
        assert tensor.shape == (rows, 5)
        offload.settle()
        assert not offload._slots.counts
        for index in reversed(range(6)):
            offload.prefetch(layers)
            kept = layers.pop()
            offload.restore(kept)
            assert torch.equal(kept.gate_up_TJ, exact[index])
            assert offload._slots.counts == {"gate_up_TJ": 3}
        offload.finish()
        assert not offload._slots.counts


def test_a_pass_that_broke_off_leaves_no_slot_taken():
    offload = Offload(CPU, 8)
    for _ in range(3):
        offload.begin([{"gate_up_TJ": 5}], torch.empty(8, 1))
        offload.take("gate_up_TJ", 8, 5, torch.empty(0))
        offload.take("gate_up_TJ", 8, 5, torch.empty(0))
        assert offload._slots.counts == {"gate_up_TJ": 2}


def test_what_was_on_its_way_is_forgotten_though_its_capture_cannot_be_joined(monkeypatch):
    """The next pass may not wait for events of a capture that was spoiled: it would be refused."""
    offload = Offload(CPU, 8)
    offload._copies_at_once = False
    offload._copies._stream = object()

    def refuse(*_):
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    stream = SimpleNamespace(wait_stream=refuse, wait_event=refuse)
    offload._leaving.append((object(), torch.empty(1)))
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    offload.abandon()
    offload.begin([], torch.empty(8, 1))


@pytest.mark.parametrize(("layers", "counts"), [
    ("gggg", {"gate_up_TJ": 3}), ("g-g-g", {"gate_up_TJ": 3}), ("gg", {"gate_up_TJ": 2}), ("hhh", {"o_TE": 2}),
    ("h", {"o_TE": 1}), ("ghghg", {"gate_up_TJ": 1, "o_TE": 2}), ("hggh", {"gate_up_TJ": 2, "o_TE": 1}), ("--", {}),
    ("hgh", {"gate_up_TJ": 1, "o_TE": 2}),
])  # fmt: skip
def test_slots_are_made_before_they_are_needed(layers, counts):
    """As many as the layers then take: none more is made on the way."""
    offload = Offload(CPU, 8)
    offload._copies_at_once = False
    kinds = {"g": {"gate_up_TJ": 5}, "h": {"start_TH": None, "o_TE": 3}, "-": {}}
    offload.begin([kinds[kind] for kind in layers], torch.empty(8, 1))
    assert offload._slots.counts == counts
    for index, kind in enumerate(layers):
        like = torch.empty(0)
        taken = {name: offload.take(name, 8, width, like) if width else torch.empty(8, 1)
                 for name, width in kinds[kind].items()}  # fmt: skip
        offload.park(index, SimpleNamespace(**taken, parked={}), tuple(taken))
        assert offload._slots.counts == counts


@pytest.mark.parametrize("widths", [(3, 5, 4), (5, 3, 3), (6, 5, 4, 3)])
def test_slots_hold_the_widest(widths):
    """Layers may have adapters of their own ranks; backward no slot is too small for the layer below either."""
    offload = Offload(CPU, 8)
    offload.begin([{"o_TE": width} for width in widths], torch.empty(8, 1))
    layers, exact = [], []
    for index, width in enumerate(widths):
        tensor = offload.take("o_TE", 8, width, torch.empty(0))
        assert tensor.shape == (8, width)
        exact.append(tensor.copy_(torch.randn(8, width)).clone())
        layers.append(SimpleNamespace(o_TE=tensor, parked={}))
        offload.park(index, layers[-1], ("o_TE",))
    assert offload._slots.counts == {"o_TE": 1}
    offload.settle()
    while layers:
        offload.prefetch(layers)
        kept = layers.pop()
        offload.restore(kept)
        assert torch.equal(kept.o_TE, exact.pop())
    assert offload._slots.counts == {"o_TE": 2}


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
    offload = Offload(CPU, 8, lockable)
    offload._copies.is_apart = True  # as on a GPU
    for layer in range(4):
        offload._place(layer, "gate_up_TJ", torch.zeros(8, 5))
        assert bool(offload.problem) == (layer >= 2)
    assert words in offload.problem
    assert sum(runtime.locked.values()) == 2 * 160
    assert offload.host_bytes == 4 * 160
    del offload
    gc.collect()
    assert not runtime.locked


@pytest.mark.gpu
def test_host_memory_is_unlocked_when_it_is_given_up():
    kept = made("cuda")[0]
    offload = Offload(torch.device("cuda"), 8)
    offload.park(0, kept, ("gate_up_TJ",))
    offload.settle()
    torch.cuda.synchronize()
    place = next(iter(offload._places.values()))
    assert place.is_pinned()
    del offload, kept
    gc.collect()
    assert not place.is_pinned()


@pytest.mark.gpu
def test_copies_run_beside_products():
    """Parking while the device multiplies takes less than both one after the other."""
    device = torch.device("cuda")
    big = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    offload = Offload(device, 1 << 14)

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
            offload.park(0, kept, ("gate_up_TJ",))
        if computes:
            compute()
        offload.settle()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    timed(copies=True, computes=True)
    copy = timed(copies=True, computes=False)
    added = min(timed(copies=True, computes=True) - timed(copies=False, computes=True) for _ in range(5))
    assert added < 0.7 * copy  # some is added: both need memory
