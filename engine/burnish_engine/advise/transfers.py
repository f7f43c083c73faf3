"""How long a pass takes when layers move what they keep to host memory and back meanwhile. Loads no torch.

Copies run beside the layers' work, one at a time in each direction and in the order of `models.offload`: forward at
most two tensors are on their way before the device waits for the oldest, and the pass ends when all have left; backward
what a layer needs is asked for when a layer or two above it begin. So a link that cannot keep up shows as waiting.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from burnish_engine.advise.shape import MIB
from burnish_engine.contract.memory_plan import LEVELS

PIECE_BYTES = 32 * MIB
"""Of a head in host memory, twice on the device, as in `models.streamed_matrix`."""
IN_FLIGHT = 2
"""Tensors on their way out, as in `models.offload`."""
FURTHEST = 2
AHEAD = np.array([FURTHEST if level == "offloaded" else 1 for level in LEVELS])
"""By level, how many layers ahead a layer's tensors are brought back."""

Seconds: TypeAlias = npt.NDArray[np.float64]


def forward_seconds(compute: Seconds, copies: Seconds) -> Seconds:
    """Time of the layers' forward passes, of several plans.

    Args:
        compute: [plans, layers], of the layers' work.
        copies: [plans, layers, tensors], of each tensor that leaves after its layer; 0: none.
    """
    now, free = np.zeros(len(compute)), np.zeros(len(compute))
    flying = [np.zeros(len(compute)) for _ in range(IN_FLIGHT)]  # when those on their way arrive, the oldest first
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
    """Time of the layers' backward passes, of several plans.

    Args:
        compute: As in `forward_seconds`.
        copies: As there, of what comes back before its layer.
        ahead: [plans, layers], how many layers before that it is asked for.
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
