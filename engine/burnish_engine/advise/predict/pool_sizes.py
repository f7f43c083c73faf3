"""Counts the device buffers that activation offloading cycles through, for several plans at once. Loads no torch.

In the forward pass a tensor occupies its buffer until the second one after it has left. In the backward pass it
occupies a buffer from the moment it is asked for until the next layer is differentiated.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from burnish_engine.advise.predict.level_mixes import SaveLevels
from burnish_engine.advise.predict.transfers import FURTHEST
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES, SaveLevel

Counts: TypeAlias = npt.NDArray[np.int64]
_Leaving: TypeAlias = dict[int, tuple[str, ...]]

_LEAVING: dict[SaveLevel, tuple[str, ...]] = {
    "offloaded": ("gate_up",), "host": ("layer_input", "attention"), "input": ("layer_input",),
}  # fmt: skip
"""The kinds of tensors that a layer offloads at a save level, in the order in which they leave."""
_OUTPUTS = ("shared_output", "output")
"""The kinds that follow where a layer is recomputed, of as many as the model has, the last ones."""


class PoolSizes(NamedTuple):
    """The number of pool buffers for each kind of offloaded tensor."""

    gate_up: Counts  # number of buffers for the output of gate and up
    layer_input: Counts  # number of buffers for layer inputs
    attention: Counts  # number of buffers for attention's output
    shared_output: Counts  # number of buffers for the output of a mixture's shared expert that a norm follows
    output: Counts  # number of buffers for the output of a feed-forward that a norm follows


def forward_pool_sizes(levels: SaveLevels, outputs: int) -> tuple[PoolSizes, Counts]:
    """Count the buffers of forward passes, which exist from the beginning to the end, and the inputs on their way out.

    Args:
        levels: index of each layer's save level in `LEVEL_NAMES`, [plans, layers].
        outputs: number of outputs of a layer's feed-forward that norms follow, at most 2.

    Returns:
        The buffers, each `[plans]`, and the inputs of layers below that are on their way out when a layer runs, [plans,
        layers].
    """
    leaving = _leaving(outputs)
    last, second = _offloading_layers_below(levels, leaving)

    def on_their_way(kind: str) -> Counts:
        """Count the tensors of a kind that are on their way out when a layer runs, [plans, layers]."""
        found = np.zeros(levels.shape, dtype=np.int64)
        for level, kinds in leaving.items():
            found += (last == level) * int(kind in kinds[-2:]) + (second == level) * int(kind == kinds[-1])
        return found

    def buffers(kind: str) -> Counts:
        return np.asarray((_offloads(levels, leaving, kind) * (1 + on_their_way(kind))).max(axis=1))

    pool = PoolSizes(*map(buffers, PoolSizes._fields))
    return pool._replace(layer_input=np.zeros(len(levels), dtype=np.int64)), on_their_way("layer_input")


def backward_pool_sizes(levels: SaveLevels, outputs: int) -> PoolSizes:
    """Count the buffers when each layer is differentiated, each `[plans, layers]`; they are made as needed and kept.

    Args:
        levels: index of each layer's save level in `LEVEL_NAMES`, [plans, layers].
        outputs: the same as in `forward_pool_sizes`.
    """
    leaving = _leaving(outputs)
    return PoolSizes(
        *(_so_far(_offloads(levels, leaving, kind), FURTHEST if kind == "gate_up" else 1) for kind in PoolSizes._fields)
    )


def _leaving(outputs: int) -> _Leaving:
    """Return the kinds of tensors that leave by the index of the save level in `LEVEL_NAMES`."""
    more = _OUTPUTS[len(_OUTPUTS) - outputs :]
    return {LEVEL_NAMES.index(one): kinds + more * ("layer_input" in kinds) for one, kinds in _LEAVING.items()}


def _offloads(levels: SaveLevels, leaving: _Leaving, kind: str) -> npt.NDArray[np.bool_]:
    """Tell which layers offload a kind of tensor, [plans, layers]."""
    return np.isin(levels, [level for level, kinds in leaving.items() if kind in kinds])


def _offloading_layers_below(levels: SaveLevels, leaving: _Leaving) -> tuple[SaveLevels, SaveLevels]:
    """Find the save levels of the nearest two layers below each layer that offload something; -1: none.

    The second is -1 too where the nearer layer offloads several tensors, because nothing before these is on its way.
    """
    numbers = np.arange(levels.shape[1])
    offloads = np.isin(levels, list(leaving))
    latest = np.maximum.accumulate(np.where(offloads, numbers, -1), axis=1)
    nothing = np.full((len(levels), 1), -1)
    before = np.concatenate([nothing, latest[:, :-1]], axis=1)
    last = np.where(before >= 0, np.take_along_axis(levels, np.maximum(before, 0), axis=1), np.int8(-1))
    further = np.take_along_axis(before, np.maximum(before, 0), axis=1)
    offloaded = (
        (before >= 0) & (further >= 0) & np.isin(last, [one for one, kinds in leaving.items() if len(kinds) == 1])
    )
    return last, np.where(offloaded, np.take_along_axis(levels, np.maximum(further, 0), axis=1), np.int8(-1))


def _so_far(offloaded: npt.NDArray[np.bool_], ahead: int) -> Counts:
    """Find, from the last layer down, the largest count that a layer and the next ones below it reach together."""
    found = offloaded.astype(np.int64)
    for distance in range(1, ahead + 1):
        found[:, distance:] += offloaded[:, :-distance]
    return np.maximum.accumulate(found[:, ::-1], axis=1)[:, ::-1]
