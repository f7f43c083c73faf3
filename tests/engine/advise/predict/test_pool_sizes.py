"""ReplySlots as they are counted, against those that the engine takes."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from burnish_engine.advise.predict.pool_sizes import backward_pool_sizes, forward_pool_sizes
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.models.host_memory.offloader import Offloader

CPU = torch.device("cpu")
NAMES = {"offloaded": {"gate_up_TJ": 5}, "host": {"start_TH": None, "o_TE": 3}, "input": {"start_TH": None}}
OUTPUTS = {"shared_out_TH": 2, "mlp_out_TH": 4}
KINDS = {
    "gate_up": "gate_up_TJ", "attention": "o_TE", "layer_input": "start_TH", "shared_output": "shared_out_TH",
    "output": "mlp_out_TH",
}  # fmt: skip


class AsOnAGpu(Offloader):
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


def leaving(level, outputs):
    """Tensors that a layer offloads, where norms follow so many outputs of its feed-forward."""
    found = NAMES.get(level, {})
    return found | dict(list(OUTPUTS.items())[2 - outputs :]) if "start_TH" in found else found


@pytest.mark.parametrize("outputs", [0, 1, 2])
@pytest.mark.parametrize("plan", plans(), ids=lambda plan: "".join(level[0] for level in plan))
def test_counted_as_taken(plan, outputs):
    levels, offloader = np.array([[LEVEL_NAMES.index(level) for level in plan]], dtype=np.int8), AsOnAGpu()
    layers = [leaving(level, outputs) for level in plan]
    offloader.begin(layers, torch.empty(4, 1))
    counted, on_their_way = forward_pool_sizes(levels, outputs)
    there = {name: int(count[0]) for name, count in counted._asdict().items() if count[0]}
    assert {KINDS[name]: count for name, count in there.items()} == offloader.buffers.counts
    kept, leaves = [], []
    for index, offload_widths in enumerate(layers):
        leaves.append(sum(tensor.shape[1] == 1 for _, tensor in offloader._in_flight))
        tensors = {name: offloader.take(name, 4, width, torch.empty(0)) if width else torch.empty(4, 1)
                   for name, width in offload_widths.items()}  # fmt: skip
        saved = SimpleNamespace(**tensors, offloaded={})
        offloader.offload(index, saved, tuple(offload_widths))
        kept.append(saved)
    assert leaves == on_their_way[0].tolist()
    offloader.wait_for_copies()
    below = backward_pool_sizes(levels, outputs)._asdict()
    for index in reversed(range(len(plan))):
        offloader.prefetch(kept)
        offloader.restore(kept.pop())
        found = offloader.buffers.counts
        assert {kind: found.get(name, 0) for kind, name in KINDS.items()} == {
            kind: int(count[0, index]) for kind, count in below.items()
        }
