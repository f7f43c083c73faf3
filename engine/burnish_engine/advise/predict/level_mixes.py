"""Lists mixes of save levels for a memory plan's layers, and orders them from the lowest layer to the top one.

The top layers are differentiated first, while all others still keep their activations. So layers that need the least
workspace, because they keep the most, are on top, and those that keep the least are at the bottom. Layers that offload
alternate with the others and are not on top: the link has time for a tensor while other layers compute, and the device
would wait for a tensor that leaves last or is needed first. Loads no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES, SaveLevel

SaveLevels: TypeAlias = npt.NDArray[np.int8]
"""Index of each layer's save level in `LEVEL_NAMES`, [plans, layers]."""
Counts: TypeAlias = npt.NDArray[np.int16]
"""Number of layers at each of `LEVEL_NAMES`, [mixes, levels]."""
MOVING: tuple[SaveLevel, ...] = ("offloaded", "host", "input")
"""Save levels that offload activations to host memory, from the most bytes to the least."""

_MOST_MIXES = 10_000  # all mixes are listed where there are no more than these
_MOST_KINDS = 3  # otherwise only mixes of so many save levels are listed
_NEAR = 16  # neighbors differ in at most one layer of so many
_MOVING = [LEVEL_NAMES.index(level) for level in MOVING]
_STAYING = [
    LEVEL_NAMES.index(level) for level in ("attention", "narrow", "products", "rotated", "all")
]  # bottom to top


@lru_cache(maxsize=64)
def level_mixes(layers: int, allowed: tuple[SaveLevel, ...], net: int = 16) -> Counts:
    """List mixes of save levels: all, or where these are too many a grid of them.

    Args:
        layers: number of layers of the model.
        allowed: save levels that layers may have.
        net: number of steps of the grid from no layer to all.
    """
    chosen = [LEVEL_NAMES.index(level) for level in allowed]
    everything = comb(layers + len(chosen) - 1, len(chosen) - 1) <= _MOST_MIXES
    kinds, steps = (len(chosen), layers) if everything else (_MOST_KINDS, min(net, layers))
    ends = np.array([round(layers * step / steps) for step in range(steps + 1)], dtype=np.int16)
    found = []
    for count in range(1, min(kinds, len(chosen), layers) + 1):
        cuts = list(combinations(range(1, steps), count - 1))
        inner = np.array(cuts, dtype=np.int16).reshape(len(cuts), count - 1)
        first, last = np.zeros((len(inner), 1), np.int16), np.full((len(inner), 1), steps, np.int16)
        sizes = np.diff(ends[np.hstack([first, inner, last])], axis=1)
        for members in combinations(chosen, count):
            block = np.zeros((len(sizes), len(LEVEL_NAMES)), np.int16)
            block[:, members] = sizes
            found.append(block)
    return np.vstack(found)


def neighboring_mixes(counts: Counts, allowed: Sequence[SaveLevel]) -> Counts:
    """List the mixes that differ from given ones in the save level of a few layers, and the given ones.

    Args:
        counts: the given mixes.
        allowed: save levels that layers may have.
    """
    most = max(1, -(-int(counts[0].sum()) // _NEAR))
    chosen = [LEVEL_NAMES.index(level) for level in allowed]
    found = [counts]
    for source in chosen:
        for target in chosen:
            for moved in range(1, most + 1) if source != target else ():
                able = counts[counts[:, source] >= moved].copy()
                able[:, source] -= moved
                able[:, target] += moved
                found.append(able)
    return np.unique(np.vstack(found), axis=0)


def spread_layers(count: int, layers: int) -> tuple[int, ...]:
    """List as many layers as are to keep their weights in host memory, evenly among all, from the lowest.

    So the link has time for the weights of one while others compute, and the first pass does not begin with a copy.
    """
    return tuple((2 * number + 1) * layers // (2 * count) for number in range(count))


def arrange_layers(counts: Counts, clear: int = 0) -> SaveLevels:
    """Assign the save levels of some mixes to layers, [mixes, layers].

    Args:
        counts: number of layers at each save level, [mixes, levels].
        clear: number of top layers that offload nothing, if enough other layers exist.
    """
    layers = int(counts[0].sum()) if len(counts) else 0
    moving = counts[:, _MOVING].sum(axis=1, dtype=np.int64)[:, None]
    number = np.arange(layers)[None]  # position of an offloading layer, from the lowest
    bottom = np.maximum(layers - clear, moving)
    places = ((2 * number + 1) * bottom // np.maximum(2 * moving, 1))[number < moving]
    moves = np.zeros((len(counts), layers), np.bool_)
    moves[np.nonzero(number < moving)[0], places] = True
    # The offloading levels alternate, because the wide tensors of one level would block the link.
    found = np.empty((len(counts), layers), np.int8)
    found[moves] = _by_turns(counts[:, _MOVING].astype(np.int64), layers)[number < moving]
    found[~moves] = np.repeat(np.tile(_STAYING, len(counts)), counts[:, _STAYING].ravel())
    return found


def _by_turns(counts: npt.NDArray[np.int64], layers: int) -> SaveLevels:
    """Mix the levels of `_MOVING` as evenly as possible, [mixes, layers]; entries beyond a mix's count are unused."""
    left, found = counts.sum(axis=1, keepdims=True), np.empty((len(counts), layers), np.int8)
    number, chosen = np.broadcast_to(np.arange(layers)[None], found.shape), np.zeros(found.shape, np.bool_)
    found[:] = _MOVING[-1]
    for place, level in enumerate(_MOVING[:-1]):
        own = counts[:, place : place + 1]
        # Of the remaining layers, those take this level at which its share passes the next half.
        rank = np.cumsum(~chosen, axis=1) - 1
        share = (2 * rank * own + left) // np.maximum(2 * left, 1)
        later = (2 * (rank + 1) * own + left) // np.maximum(2 * left, 1)
        takes = ~chosen & (later > share) & (number < counts.sum(axis=1, keepdims=True))
        found[takes] = level
        chosen, left = chosen | takes, left - own
    return found
