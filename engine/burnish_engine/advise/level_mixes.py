"""Mixes of levels that a memory plan may give its layers, and their order from the lowest layer to the topmost.

The topmost layers are differentiated first, while all others still keep what they keep; so those that need the least
room for it, because they keep the most, are on top, and those that keep the least at the bottom. What moves to host
memory is spread by turns among the others, and not on top: the link has time for a tensor while other layers compute,
and what leaves last, or is needed first, would be waited for. Loads no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.memory_plan import LEVELS, Level

Levels: TypeAlias = npt.NDArray[np.int8]
"""[plans, layers], numbers of levels in `LEVELS`."""
Counts: TypeAlias = npt.NDArray[np.int16]
"""[mixes, levels]: how many layers are of each of `LEVELS`."""
MOVING: tuple[Level, ...] = ("offloaded", "host", "input")
"""Levels that move something to host memory, from the most to the least."""

_MOST_MIXES = 10_000  # all are looked at where there are no more
_MOST_KINDS = 3  # else those of so many levels
_NEAR = 16  # part of the layers that neighbors differ in at most
_MOVING = [LEVELS.index(level) for level in MOVING]
_STAYING = [LEVELS.index(level) for level in ("attention", "narrow", "products", "rotated", "all")]  # bottom to top


@lru_cache(maxsize=64)
def mixes(layers: int, allowed: tuple[Level, ...], net: int = 16) -> Counts:
    """How many layers may be of each level: every mix, or where those are too many a net of them.

    Args:
        layers: Of the model.
        allowed: Levels that layers may be given.
        net: Steps that the net takes from no layer to all.
    """
    chosen = [LEVELS.index(level) for level in allowed]
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
            block = np.zeros((len(sizes), len(LEVELS)), np.int16)
            block[:, members] = sizes
            found.append(block)
    return np.vstack(found)


def neighbors(counts: Counts, allowed: Sequence[Level]) -> Counts:
    """Mixes that differ from one of those in the level of a few layers, themselves included.

    Args:
        counts: Some mixes.
        allowed: Levels that layers may be given.
    """
    most = max(1, -(-int(counts[0].sum()) // _NEAR))
    chosen = [LEVELS.index(level) for level in allowed]
    found = [counts]
    for source in chosen:
        for target in chosen:
            for moved in range(1, most + 1) if source != target else ():
                able = counts[counts[:, source] >= moved].copy()
                able[:, source] -= moved
                able[:, target] += moved
                found.append(able)
    return np.unique(np.vstack(found), axis=0)


def arranged(counts: Counts, clear: int = 0) -> Levels:
    """The layers' levels [mixes, layers] of some mixes.

    Args:
        counts: How many layers are of each level.
        clear: Layers on top that nothing moves from, as far as there are others.
    """
    layers = int(counts[0].sum()) if len(counts) else 0
    moving = counts[:, _MOVING].sum(axis=1, dtype=np.int64)[:, None]
    number = np.arange(layers)[None]  # of a layer that something moves from, from the lowest
    bottom = np.maximum(layers - clear, moving)
    places = ((2 * number + 1) * bottom // np.maximum(2 * moving, 1))[number < moving]
    moves = np.zeros((len(counts), layers), np.bool_)
    moves[np.nonzero(number < moving)[0], places] = True
    # The ways of moving evenly mixed: the wide tensors of one would hold up the link.
    found = np.empty((len(counts), layers), np.int8)
    found[moves] = _by_turns(counts[:, _MOVING].astype(np.int64), layers)[number < moving]
    found[~moves] = np.repeat(np.tile(_STAYING, len(counts)), counts[:, _STAYING].ravel())
    return found


def _by_turns(counts: npt.NDArray[np.int64], layers: int) -> Levels:
    """Levels of `_MOVING` as even as they can be mixed, [mixes, layers]; only as many count as there are.

    Args:
        counts: [mixes, levels], in the order of `_MOVING`.
        layers: Of the model.
    """
    left, found = counts.sum(axis=1, keepdims=True), np.empty((len(counts), layers), np.int8)
    number, chosen = np.broadcast_to(np.arange(layers)[None], found.shape), np.zeros(found.shape, np.bool_)
    found[:] = _MOVING[-1]
    for place, level in enumerate(_MOVING[:-1]):
        own = counts[:, place : place + 1]
        # The layers that are left take this level where its share of them passes the next half.
        rank = np.cumsum(~chosen, axis=1) - 1
        share = (2 * rank * own + left) // np.maximum(2 * left, 1)
        later = (2 * (rank + 1) * own + left) // np.maximum(2 * left, 1)
        takes = ~chosen & (later > share) & (number < counts.sum(axis=1, keepdims=True))
        found[takes] = level
        chosen, left = chosen | takes, left - own
    return found
