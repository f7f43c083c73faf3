"""Predicts the time of a micro-batch whose layers offload activations to host memory and back. Loads no torch.

Copies run beside the layers' work, one at a time in each direction, in the order of `models.host_memory.offloader`. In
the forward pass at most two tensors are on their way before the device waits for the oldest, and the pass ends when all
have left. In the backward pass a layer's tensors are asked for when the first or second layer above it begins. So a
link that is too slow shows as waiting.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from burnish_engine.advise.facts.shape import MIB
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES

PIECE_BYTES = 32 * MIB
"""Size of a piece of a head in host memory; two pieces are on the device (`models.decoder.streamed_matrix`)."""
IN_FLIGHT = 2
"""Most tensors on their way out at once, as in `models.host_memory.offloader`."""
FURTHEST = 2
AHEAD = np.array([FURTHEST if level == "offloaded" else 1 for level in LEVEL_NAMES])
"""Number of layers ahead at which a layer's tensors are brought back, by save level."""

Seconds: TypeAlias = npt.NDArray[np.float64]


def forward_seconds(compute: Seconds, copies: Seconds) -> Seconds:
    """Predict the time of all layers' forward passes, seconds, [plans].

    Args:
        compute: seconds of each layer's work, [plans, layers].
        copies: seconds to copy each tensor that leaves after its layer, [plans, layers, tensors]; 0: none.
    """
    now, free = np.zeros(len(compute)), np.zeros(len(compute))
    flying = [
        np.zeros(len(compute)) for _ in range(IN_FLIGHT)
    ]  # arrival times of tensors on their way, the oldest first
    for layer in range(compute.shape[1]):
        now = now + compute[:, layer]
        for tensor in range(copies.shape[2]):
            takes = copies[:, layer, tensor]
            leaves = takes > 0
            if not leaves.any():
                continue
            now = np.where(leaves, np.maximum(now, flying[0]), now)
            free = np.where(leaves, np.maximum(now, free) + takes, free)
            flying = [np.where(leaves, later, here) for here, later in zip(flying, [*flying[1:], free], strict=True)]
    return np.maximum(now, free)


def backward_seconds(compute: Seconds, copies: Seconds, ahead: npt.NDArray[np.int_]) -> Seconds:
    """Predict the time of all layers' backward passes, seconds, [plans].

    Args:
        compute: seconds of each layer's work, [plans, layers].
        copies: seconds to copy each tensor that comes back before its layer, [plans, layers, tensors]; 0: none.
        ahead: number of layers ahead at which a layer's tensors are asked for, [plans, layers].
    """
    whole, layers = copies.sum(axis=2), compute.shape[1]
    now, free = np.zeros(len(compute)), np.zeros(len(compute))
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
        now = np.maximum(now, arrived[:, layer]) + compute[:, layer]
    return now
