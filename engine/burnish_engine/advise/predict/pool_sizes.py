"""Counts the device buffers that activation offloading cycles through, for several plans at once. Loads no torch.

In the forward pass a tensor occupies its buffer until the second one after it has left. In the backward pass it
occupies a buffer from the moment it is asked for until the next layer is differentiated.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from burnish_engine.advise.predict.level_mixes import MOVING, SaveLevels
from burnish_engine.advise.predict.transfers import FURTHEST
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES

Counts: TypeAlias = npt.NDArray[np.int64]

_OFFLOADED, _HOST, _INPUT = (LEVEL_NAMES.index(level) for level in MOVING)


class PoolSizes(NamedTuple):
    """The number of pool buffers for each kind of offloaded tensor."""

    gate_up: Counts  # number of buffers for the output of gate and up
    layer_input: Counts  # number of buffers for layer inputs
    attention: Counts  # number of buffers for attention's output


def forward_pool_sizes(levels: SaveLevels) -> tuple[PoolSizes, Counts]:
    """Count the buffers of forward passes, which exist from the beginning to the end, and the inputs on their way out.

    Args:
        levels: index of each layer's save level in `LEVEL_NAMES`, [plans, layers].

    Returns:
        The buffers, each `[plans]`, and the inputs of layers below that are on their way out when a layer runs, [plans,
        layers].
    """
    last, second = _offloading_layers_below(levels)
    gate_up = (levels == _OFFLOADED) * (1 + (last == _OFFLOADED) + (second == _OFFLOADED))
    # Attention's output leaves after a layer's input, so that only the last layer's can still be on its way.
    attention = (levels == _HOST) * (1 + ((last == _HOST) | (second == _HOST)))
    pool = PoolSizes(gate_up.max(axis=1), np.zeros(len(levels), dtype=np.int64), attention.max(axis=1))
    return pool, (last == _HOST).astype(np.int64) + (last == _INPUT) + (second == _INPUT)


def backward_pool_sizes(levels: SaveLevels) -> PoolSizes:
    """Count the buffers when each layer is differentiated, each `[plans, layers]`; they are made as needed and kept.

    Args:
        levels: index of each layer's save level in `LEVEL_NAMES`, [plans, layers].
    """
    host, alone = levels == _HOST, levels == _INPUT
    return PoolSizes(_so_far(levels == _OFFLOADED, FURTHEST), _so_far(host | alone, 1), _so_far(host, 1))


def _offloading_layers_below(levels: SaveLevels) -> tuple[SaveLevels, SaveLevels]:
    """Find the save levels of the nearest two layers below each layer that offload something; -1: none.

    The second is -1 too where the nearer layer offloads two tensors, because nothing before these is on its way.
    """
    numbers = np.arange(levels.shape[1])
    offloads = (levels == _OFFLOADED) | (levels == _HOST) | (levels == _INPUT)
    latest = np.maximum.accumulate(np.where(offloads, numbers, -1), axis=1)
    nothing = np.full((len(levels), 1), -1)
    before = np.concatenate([nothing, latest[:, :-1]], axis=1)
    last = np.where(before >= 0, np.take_along_axis(levels, np.maximum(before, 0), axis=1), np.int8(-1))
    further = np.take_along_axis(before, np.maximum(before, 0), axis=1)
    offloaded = (before >= 0) & (further >= 0) & (last != _HOST)
    return last, np.where(offloaded, np.take_along_axis(levels, np.maximum(further, 0), axis=1), np.int8(-1))


def _so_far(offloaded: npt.NDArray[np.bool_], ahead: int) -> Counts:
    """Find, from the last layer down, the largest count that a layer and the next ones below it reach together."""
    found = offloaded.astype(np.int64)
    for distance in range(1, ahead + 1):
        found[:, distance:] += offloaded[:, :-distance]
    return np.maximum.accumulate(found[:, ::-1], axis=1)[:, ::-1]
