"""Which learning rate speaks for a side, and when that is in doubt.

The grid sees one seed, so that it may pick a rate that is not a side's best. Two sides that are the same in truth would
then differ, at the rates picked for them, more often than their interval says. Therefore no side is called worse before
its next best rates had the same seeds, where the grid could not tell them from the best; and a winner has to be better
than the loser at each of its rates (an intersection-union test, which keeps the level: Berger 1982).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from burnish_engine.duel.spec import RunSpec, Side
from burnish_engine.duel.statistics import Interval, paired_interval, sign_test, t_quantile

Scores = Mapping[RunSpec, float]
"""Last held-out loss by run; infinite where it diverged."""

Settled = Mapping[float, list[float]]
"""Scores of a side by learning rate, in the order of the seeds; the rate that the grid picked comes first."""

LOSS_RESOLUTION = 1e-5
"""Nats: what a held-out loss means something to."""

SECOND_LOOKS = 2
"""Most rates of a side that are looked at again. One is not enough: where the best rate was unlucky in the grid,
several lie before it. Simulated with equal sides and eight seeds, up to 26 % of duels had a winner without second
looks, 7 % with one, 5 % with two."""


def chosen_rate(side: Side, grid: Mapping[float, float]) -> float:
    """The rate that the grid picks: the best, of equal ones the lowest; the side's own without a grid."""
    return min(grid, key=lambda rate: (grid[rate], rate)) if grid else side.rate


def settled_rates(side: int, seeds: Sequence[int], scores: Scores) -> dict[float, list[float]]:
    """Rates of a side that were run on every seed."""
    found: dict[float, dict[int, float]] = {}
    for phase in ("seeds", "second look"):
        for spec, score in scores.items():
            if spec.side == side and spec.phase == phase:
                found.setdefault(spec.rate, {})[spec.seed] = score
    return {rate: [by[seed] for seed in seeds] for rate, by in found.items() if all(seed in by for seed in seeds)}


def shown_rate(settled: Settled) -> float:
    """The rate that speaks for a side: of those it was run at with every seed, the one with the lowest mean loss."""
    return min(settled, key=lambda rate: statistics.fmean(settled[rate]))


def pair_level(level: float, sides: int) -> float:
    """Confidence of one of all pairs, so that together they have `level` (Bonferroni)."""
    return 1.0 - (1.0 - level) / math.comb(sides, 2)


def interval_of(ours: Sequence[float], theirs: Sequence[float], level: float) -> Interval | None:
    """Of our scores less theirs, by seed; None where a run diverged."""
    differences = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    if not all(map(math.isfinite, differences)):
        return None
    return paired_interval(differences, level, LOSS_RESOLUTION)


def is_better(ours: Sequence[float], theirs: Sequence[float], level: float) -> bool:
    """Whether ours are lower beyond chance.

    By the t interval; where runs diverged there is no mean, and the sign test counts them as worse than any that did
    not. It needs six pairs to say anything at 95 %.
    """
    interval = interval_of(ours, theirs, level)
    if interval:
        return interval.high < 0
    wins = sum(mine < other for mine, other in zip(ours, theirs, strict=True))
    losses = sum(mine > other for mine, other in zip(ours, theirs, strict=True))
    return wins > losses and sign_test(wins, losses) < 1.0 - level


def beats(ours: Settled, theirs: Settled, level: float) -> bool:
    """Whether a side at the rate that speaks for it is better than another one at each of its rates."""
    mine = ours[shown_rate(ours)]
    return all(is_better(mine, others, level) for others in theirs.values())


def doubtful_rate(side: int, settled: Sequence[Settled], grid: Mapping[float, float], level: float) -> float | None:
    """A rate that a side that is about to be called worse has to be given a second look at; else None.

    Args:
        side: Its place.
        settled: Of all sides.
        grid: Of this side.
        level: Confidence for a pair of sides.
    """
    mine = settled[side]
    if not all(settled) or len(mine) > SECOND_LOOKS:
        return None
    winners = [other for place, other in enumerate(settled) if place != side and beats(other, mine, level)]
    rest = [rate for rate in grid if rate not in mine and math.isfinite(grid[rate])]
    if not winners or not rest:
        return None
    candidate = min(rest, key=lambda rate: (grid[rate], rate))
    margin = grid[candidate] - min(grid.values())
    return candidate if any(margin <= _noise(other, mine) for other in winners) else None


def _noise(ours: Settled, theirs: Settled) -> float:
    """How far two runs on one seed may lie apart by chance: 97.5 % of single paired differences are less."""
    pairs = zip(ours[shown_rate(ours)], theirs[shown_rate(theirs)], strict=True)
    differences = [mine - other for mine, other in pairs if math.isfinite(mine) and math.isfinite(other)]
    if len(differences) < 2:
        return math.inf
    return t_quantile(0.975, len(differences) - 1) * statistics.stdev(differences)
