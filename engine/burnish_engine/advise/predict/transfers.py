"""Predicts the time of a micro-batch whose layers keep activations or weights in host memory. Loads no torch.

Copies run beside the layers' work, one at a time in each direction, in the order of `models.host_memory.offloader` and
`models.host_memory.weight_ring`. In the forward pass at most two tensors are on their way out before the device waits
for the oldest, and the pass ends when all have left. In the backward pass a layer's tensors are asked for when the
first or second layer above it begins. A layer's weights are asked for when the layer before it in their slot has
computed. So a link that is too slow shows as waiting.

Tensors that leave while weights arrive slow both down. Tensors and weights that come at once share the link, so weights
arrive no earlier than what was asked for with them. Weights that come from other GPUs are counted as if they took the
same link, at their own rate: over PCIe they do, over NVLink the prediction errs on the slow side.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from burnish_engine.advise.facts.shape import MIB
from burnish_engine.contract.facts.machine import PcieFacts
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES

PIECE_BYTES = 32 * MIB
"""Size of a piece of a head in host memory; two pieces are on the device (`models.host_memory.streamed_matrix`)."""
IN_FLIGHT = 2
"""Most tensors on their way out at once, as in `models.host_memory.offloader`."""
SLOTS = 2
"""Streamed layers whose weights are on the device at once, as in `models.host_memory.weight_ring`."""
PART_ALIGNMENT = 256
"""Bytes at whose multiples the parts of a shared layer begin, as in `models.host_memory.layer_shares`."""
BOTH_WAYS_SHARE = 0.6
"""Share of a direction's rate that copies reach while others go the other way: with `_WEIGHTS_SHARE` of `fast_speed`
set by three measured steps whose weights come from host memory (`tests/bench/LOG.md`)."""
FURTHEST = 2
AHEAD = np.array([FURTHEST if level == "offloaded" else 1 for level in LEVEL_NAMES])
"""Number of layers ahead at which a layer's tensors are brought back, by save level."""

_LINK_SHARE = 0.85  # share of a PCIe lane's rate: an H100's 16 lanes of generation 5, 63 GB/s, move 54
_LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}  # one way, by PCIe generation
_LINK_UNKNOWN_GB_S = 11.0  # generation 3 with 16 lanes, or 4 with 8: laptops

Seconds: TypeAlias = npt.NDArray[np.float64]


class WeightCopies:
    """The copies of layers' weights to the device in one pass of several plans.

    Args:
        weights: seconds to copy each layer's weights, [plans, layers], in the order in which layers compute; 0: they
            are on the device.
        held: number of layers whose weights are in the slots already.
    """

    def __init__(self, weights: Seconds, held: int) -> None:
        moves, rows = weights > 0, np.arange(len(weights))
        number = np.cumsum(moves, axis=1) - 1
        self._weights, self._rows, self.any = weights, rows, bool(moves.any())
        self.arrived = np.zeros_like(weights)
        # Layer of each plan's n-th copy, and for each layer the layer that its slot takes next; -1: none.
        order = np.full((len(weights), weights.shape[1] + SLOTS), -1)
        plans, layers = np.nonzero(moves)
        order[plans, number[plans, layers]] = layers
        self._next = np.where(moves, order[rows[:, None], np.maximum(number, 0) + SLOTS], -1)
        self._first = order[:, held:SLOTS]

    def begin(self, free: Seconds) -> Seconds:
        """Fill the slots before the first layer; return when the link is free."""
        for layer in self._first.T:
            free = self._copy(layer, np.zeros_like(free), free)
        return free

    def follow(self, layer: int, now: Seconds, free: Seconds) -> Seconds:
        """Begin the copy that a layer's slot takes when the layer has computed; return when the link is free."""
        return self._copy(self._next[:, layer], now, free) if self.any else free

    def slow_down(self, now: Seconds, free: Seconds, leaving: Seconds) -> tuple[Seconds, Seconds]:
        """Delay the weights that are on their way while a tensor leaves.

        Args:
            now: time at which the tensor may leave, seconds, [plans].
            free: time at which the link to the device is free, [plans].
            leaving: seconds that the tensor takes where nothing arrives, [plans].

        Returns:
            The seconds that the tensor takes, and the time at which the link to the device is free.
        """
        busy = free > now
        takes = np.where(busy, leaving / BOTH_WAYS_SHARE, leaving)
        later = takes - leaving
        self.arrived += np.where(self.arrived > now[:, None], later[:, None], 0.0)
        return takes, free + later

    def _copy(self, layer: npt.NDArray[np.int_], now: Seconds, free: Seconds) -> Seconds:
        due = layer >= 0
        done = np.where(due, np.maximum(now, free) + self._weights[self._rows, layer], free)
        self.arrived[self._rows[due], layer[due]] = done[due]
        return done


def forward_seconds(compute: Seconds, copies: Seconds, weights: Seconds | None = None) -> Seconds:
    """Predict the time of all layers' forward passes, seconds, [plans].

    Args:
        compute: seconds of each layer's work, [plans, layers].
        copies: seconds to copy each tensor that leaves after its layer, [plans, layers, tensors]; 0: none.
        weights: seconds to copy each layer's weights to the device, [plans, layers]; 0: they are there; None: all are.
    """
    now, free = np.zeros(len(compute)), np.zeros(len(compute))
    coming = WeightCopies(np.zeros_like(compute) if weights is None else weights, held=0)
    inward = coming.begin(np.zeros(len(compute)))
    flying = [
        np.zeros(len(compute)) for _ in range(IN_FLIGHT)
    ]  # arrival times of tensors on their way, the oldest first
    for layer in range(compute.shape[1]):
        now = np.maximum(now, coming.arrived[:, layer]) + compute[:, layer]
        inward = coming.follow(layer, now, inward)
        for tensor in range(copies.shape[2]):
            takes = copies[:, layer, tensor]
            leaves = takes > 0
            if not leaves.any():
                continue
            now = np.where(leaves, np.maximum(now, flying[0]), now)
            if coming.any:
                takes, inward = coming.slow_down(now, inward, takes)
            free = np.where(leaves, np.maximum(now, free) + takes, free)
            flying = [np.where(leaves, later, here) for here, later in zip(flying, [*flying[1:], free], strict=True)]
    return np.maximum(now, free)


def backward_seconds(
    compute: Seconds, copies: Seconds, ahead: npt.NDArray[np.int_], weights: Seconds | None = None
) -> Seconds:
    """Predict the time of all layers' backward passes, seconds, [plans].

    Args:
        compute: seconds of each layer's work, [plans, layers].
        copies: seconds to copy each tensor that comes back before its layer, [plans, layers, tensors]; 0: none.
        ahead: number of layers ahead at which a layer's tensors are asked for, [plans, layers].
        weights: the same as in `forward_seconds`; the last of them are still there.
    """
    whole, layers = copies.sum(axis=2), compute.shape[1]
    now, free = np.zeros(len(compute)), np.zeros(len(compute))
    coming = WeightCopies((np.zeros_like(compute) if weights is None else weights)[:, ::-1], held=SLOTS)
    arrived = np.zeros_like(whole)
    due = whole > 0
    for layer in range(layers - 1, -1, -1):
        for other in range(layer, max(layer - FURTHEST, 0) - 1, -1):
            asked = due[:, other] & (ahead[:, other] >= layer - other)
            if not asked.any():
                continue
            free = np.where(asked, np.maximum(now, free) + whole[:, other], free)
            arrived[asked, other] = free[asked]
            due[:, other] &= ~asked
        turn = layers - 1 - layer
        if turn:  # asked for at the same time as the tensors above, with which they share the link
            free = coming.follow(turn - 1, now, free)
        now = np.maximum(now, np.maximum(arrived[:, layer], coming.arrived[:, turn])) + compute[:, layer]
    return now


def link_gb_s(pcie: PcieFacts | None) -> tuple[float, float]:
    """The rates of copies from page-locked host memory to the GPU, and back, 10^9 bytes/s.

    The rates are the measured ones (`burnish doctor --bandwidth`), else that of card and slot together.
    """
    if pcie is None:
        return _LINK_UNKNOWN_GB_S, _LINK_UNKNOWN_GB_S
    if pcie.to_gpu_gb_s and pcie.from_gpu_gb_s:
        return pcie.to_gpu_gb_s, pcie.from_gpu_gb_s
    generation, width = pcie.best_generation or pcie.generation, pcie.best_width or pcie.width
    if generation is None or width is None:
        return _LINK_UNKNOWN_GB_S, _LINK_UNKNOWN_GB_S
    rate = _LINK_SHARE * width * _LANE_GB_S[min(max(generation, 1), max(_LANE_GB_S))]
    return rate, rate
