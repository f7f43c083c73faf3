"""How many slots of the device the tensors of `models.offload` take turns in, for several plans at once. No torch.

Forward a tensor stands in its slot until the second one after it has left; backward from when it is asked for until the
next layer is differentiated.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from burnish_engine.advise.level_mixes import MOVING, Levels
from burnish_engine.advise.transfers import FURTHEST
from burnish_engine.contract.memory_plan import LEVELS

Counts: TypeAlias = npt.NDArray[np.int64]

_OFFLOADED, _HOST, _INPUT = (LEVELS.index(level) for level in MOVING)


class Slots(NamedTuple):
    """Slots by what stands in them."""

    gate_up: Counts
    start: Counts
    attention: Counts


def forward_slots(levels: Levels) -> Slots:
    """Slots of forward passes, each `[plans]`: all are there from the beginning to the end.

    Args:
        levels: [plans, layers], numbers of levels in `LEVELS`.
    """
    last, second = _parked_before(levels)
    gate_up = (levels == _OFFLOADED) * (1 + (last == _OFFLOADED) + (second == _OFFLOADED))
    # After a layer's input goes attention's output, so that only the last one can still be on its way.
    attention = (levels == _HOST) * (1 + ((last == _HOST) | (second == _HOST)))
    return Slots(gate_up.max(axis=1), np.zeros(len(levels), dtype=np.int64), attention.max(axis=1))


def backward_slots(levels: Levels) -> Slots:
    """Slots when each layer is differentiated, each `[plans, layers]`: made as needed, and kept to the end.

    Args:
        levels: As in `forward_slots`.
    """
    host, alone = levels == _HOST, levels == _INPUT
    return Slots(_so_far(levels == _OFFLOADED, FURTHEST), _so_far(host | alone, 1), _so_far(host, 1))


def starts_leaving(levels: Levels) -> Counts:
    """[plans, layers]: how many inputs of layers below are on their way out when a layer runs forward."""
    last, second = _parked_before(levels)
    found: Counts = (last == _HOST).astype(np.int64) + (last == _INPUT) + (second == _INPUT)
    return found


def _parked_before(levels: Levels) -> tuple[Levels, Levels]:
    """Levels of the last layer before each one that parks something, and of the one before that; -1: none.

    The second is -1 too where the last one parked two tensors, behind which nothing else is on its way.
    """
    numbers = np.arange(levels.shape[1])
    parks = (levels == _OFFLOADED) | (levels == _HOST) | (levels == _INPUT)
    latest = np.maximum.accumulate(np.where(parks, numbers, -1), axis=1)
    nothing = np.full((len(levels), 1), -1)
    before = np.concatenate([nothing, latest[:, :-1]], axis=1)
    last = np.where(before >= 0, np.take_along_axis(levels, np.maximum(before, 0), axis=1), np.int8(-1))
    further = np.take_along_axis(before, np.maximum(before, 0), axis=1)
    there = (before >= 0) & (further >= 0) & (last != _HOST)
    return last, np.where(there, np.take_along_axis(levels, np.maximum(further, 0), axis=1), np.int8(-1))


def _so_far(there: npt.NDArray[np.bool_], ahead: int) -> Counts:
    """From the last layer down, the most that a layer and the next ones below it had together."""
    found = there.astype(np.int64)
    for distance in range(1, ahead + 1):
        found[:, distance:] += there[:, :-distance]
    return np.maximum.accumulate(found[:, ::-1], axis=1)[:, ::-1]
