"""Deal the passes of a step to the ranks that share it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from burnish_engine.data.tokens.pack import MicroBatch, pass_cost


def deal_by_cost(costs: Sequence[float], ranks: int, speeds: Sequence[float] = ()) -> list[list[int]]:
    """Deal passes so that ranks end at about the same time: the costliest first, each to the rank that ends it first.

    This is Graham's LPT rule (https://doi.org/10.1137/0117039): at most 4/3 of the shortest possible time on equal
    ranks, and at most twice on unequal ones (https://doi.org/10.1137/0206013). Passes of like cost are dealt evenly.

    Args:
        costs: predicted time of each pass, in any unit.
        ranks: number of ranks.
        speeds: speed of each rank, in any unit; none: all are equal.

    Returns:
        The indices of each rank's passes, ascending.
    """
    busy, pace = [0.0] * ranks, list(speeds) or [1.0] * ranks
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        rank = min(range(ranks), key=lambda rank: (busy[rank] + costs[index] / pace[rank], rank))
        busy[rank] += costs[index] / pace[rank]
        dealt[rank].append(index)
    return [sorted(indices) for indices in dealt]


def deal_in_turn(passes: int, ranks: int) -> list[list[int]]:
    """Deal passes by turns, whatever they cost; arguments and result as in `deal_by_cost`."""
    return [list(range(rank, passes, ranks)) for rank in range(ranks)]


def cost_of(batch: MicroBatch) -> float:
    """Predict the time of a pass, in tokens; see `pass_cost`."""
    return pass_cost(np.diff(batch.boundaries).tolist())
