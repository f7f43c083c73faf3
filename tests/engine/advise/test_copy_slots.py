"""Slots as they are counted, against those that the engine takes."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from burnish_engine.advise.copy_slots import backward_slots, forward_slots, starts_leaving
from burnish_engine.contract.memory_plan import LEVELS
from burnish_engine.models.offload import Offload

CPU = torch.device("cpu")
NAMES = {"offloaded": {"gate_up_TJ": 5}, "host": {"start_TH": None, "o_TE": 3}, "input": {"start_TH": None}}


class AsOnAGpu(Offload):
    """Tensors are on their way until the device waits for them."""

    def __init__(self):
        super().__init__(CPU, 4)
        self._copies_at_once = False


def plans():
    """Lists of levels, most of them of those that move something."""
    random.seed(0)
    moving = ["offloaded", "host", "input", "narrow", "attention"]
    for _ in range(150):
        yield [random.choice(moving[: random.randint(1, 5)]) for _ in range(random.randint(1, 12))]
    yield ["narrow"] * 4


@pytest.mark.parametrize("plan", plans(), ids=lambda plan: "".join(level[0] for level in plan))
def test_counted_as_taken(plan):
    levels, offload = np.array([[LEVELS.index(level) for level in plan]], dtype=np.int8), AsOnAGpu()
    layers = [NAMES.get(level, {}) for level in plan]
    offload.begin(layers, torch.empty(4, 1))
    counted = forward_slots(levels)
    there = {name: int(count[0]) for name, count in counted._asdict().items() if count[0]}
    names = {"gate_up": "gate_up_TJ", "attention": "o_TE", "start": "start_TH"}
    assert {names[name]: count for name, count in there.items()} == offload._slots.counts
    kept, leaves = [], []
    for index, parks in enumerate(layers):
        leaves.append(sum(tensor.shape[1] == 1 for _, tensor in offload._leaving))
        tensors = {name: offload.take(name, 4, width, torch.empty(0)) if width else torch.empty(4, 1)
                   for name, width in parks.items()}  # fmt: skip
        saved = SimpleNamespace(**tensors, parked={})
        offload.park(index, saved, tuple(parks))
        kept.append(saved)
    assert leaves == starts_leaving(levels)[0].tolist()
    offload.settle()
    below = backward_slots(levels)
    for index in reversed(range(len(plan))):
        offload.prefetch(kept)
        offload.restore(kept.pop())
        found = offload._slots.counts
        assert [found.get(name, 0) for name in ("gate_up_TJ", "start_TH", "o_TE")] == [
            int(below.gate_up[0, index]), int(below.start[0, index]), int(below.attention[0, index])
        ]  # fmt: skip
