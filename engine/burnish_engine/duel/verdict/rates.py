"""Choose the best learning rate of a side, and detect when that choice is in doubt.

The grid sees one seed, so it may pick a rate that is not a side's best. Two sides that are equal in truth would then
differ, at the rates picked for them, more often than their interval says. Therefore no side is called worse before its
next best rates ran on the same seeds, where the grid could not tell them from the best; and a winner must be better
than the loser at each of its rates (an intersection-union test, which keeps the level: Berger 1982).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from burnish_engine.contract.facts.intervals import sign_test
from burnish_engine.duel.sides.spec import RunSpec, Side
from burnish_engine.duel.verdict.statistics import ConfidenceInterval, paired_interval, t_quantile

RunScores = Mapping[RunSpec, float]
"""Measure that decides the duel by run, lower is better; infinite where the run diverged."""

RateScores = Mapping[float, list[float]]
"""Scores of a side by learning rate, in the order of the seeds; the rate that the grid picked comes first."""

LOSS_RESOLUTION = 1e-5
"""Smallest meaningful difference of a held-out loss, nats."""

SECOND_LOOKS = 2
"""Largest number of rates of a side that get a second look. One is not enough: where the best rate was unlucky in
the grid, several lie before it. Simulated with equal sides and eight seeds, up to 26 % of duels had a winner without
second looks, 7 % with one, 5 % with two."""


def grid_rate(side: Side, grid: Mapping[float, float]) -> float:
    """Pick the best rate of the grid, of equal ones the lowest; without a grid the side's own rate."""
    return min(grid, key=lambda rate: (grid[rate], rate)) if grid else side.rate


def complete_rates(side: int, seeds: Sequence[int], scores: RunScores) -> dict[float, list[float]]:
    """Collect the rates of a side that were run on every seed."""
    found: dict[float, dict[int, float]] = {}
    for phase in ("seeds", "second look"):
        for spec, score in scores.items():
            if spec.side == side and spec.phase == phase:
                found.setdefault(spec.rate, {})[spec.seed] = score
    return {rate: [by[seed] for seed in seeds] for rate, by in found.items() if all(seed in by for seed in seeds)}


def best_rate(rate_scores: RateScores) -> float:
    """Pick the rate with the lowest mean loss, of those run on every seed."""
    return min(rate_scores, key=lambda rate: statistics.fmean(rate_scores[rate]))


def pair_level(level: float, sides: int) -> float:
    """Compute the confidence level of one pair at which all pairs together have `level` (Bonferroni)."""
    return 1.0 - (1.0 - level) / math.comb(sides, 2)


def interval_of(
    ours: Sequence[float], theirs: Sequence[float], level: float, resolution: float = LOSS_RESOLUTION
) -> ConfidenceInterval | None:
    """Compute the interval of our scores less theirs, by seed; None where a run diverged."""
    differences = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    if not all(map(math.isfinite, differences)):
        return None
    return paired_interval(differences, level, resolution)


def is_better(
    ours: Sequence[float], theirs: Sequence[float], level: float, resolution: float = LOSS_RESOLUTION
) -> bool:
    """Whether our scores are lower beyond chance.

    The test is the t interval. Where runs diverged there is no mean, so a sign test counts them as worse than any that
    did not; it needs six pairs to be significant at 95 %.
    """
    interval = interval_of(ours, theirs, level, resolution)
    if interval:
        return interval.high < 0
    return lower_by_signs([(mine > other) - (mine < other) for mine, other in zip(ours, theirs, strict=True)], level)


def lower_by_signs(differences: Sequence[float], level: float) -> bool:
    """Whether differences are below zero in more pairs than chance would make; infinite ones count, NaN does not."""
    wins, losses = sum(one < 0 for one in differences), sum(one > 0 for one in differences)
    return wins > losses and sign_test(wins, losses) < 1.0 - level


def beats(ours: RateScores, theirs: RateScores, level: float, resolution: float = LOSS_RESOLUTION) -> bool:
    """Whether a side at its best rate is better than another one at each of its rates."""
    mine = ours[best_rate(ours)]
    return all(is_better(mine, others, level, resolution) for others in theirs.values())


def rate_to_recheck(
    side: int, rate_scores: Sequence[RateScores], grid: Mapping[float, float], level: float
) -> float | None:
    """Choose a rate that needs a second look before its side may be called worse; None where none does.

    Args:
        side: index of the side.
        rate_scores: scores by learning rate of every side.
        grid: scores of this side's grid by rate.
        level: confidence level for a pair of sides.
    """
    mine = rate_scores[side]
    if not all(rate_scores) or len(mine) > SECOND_LOOKS:
        return None
    winners = [other for place, other in enumerate(rate_scores) if place != side and beats(other, mine, level)]
    rest = [rate for rate in grid if rate not in mine and math.isfinite(grid[rate])]
    if not winners or not rest:
        return None
    candidate = min(rest, key=lambda rate: (grid[rate], rate))
    margin = grid[candidate] - min(grid.values())
    return candidate if any(margin <= _noise(other, mine) for other in winners) else None


def _noise(ours: RateScores, theirs: RateScores) -> float:
    """Estimate how far two runs on one seed lie apart by chance: 97.5 % of single paired differences are smaller."""
    pairs = zip(ours[best_rate(ours)], theirs[best_rate(theirs)], strict=True)
    differences = [mine - other for mine, other in pairs if math.isfinite(mine) and math.isfinite(other)]
    if len(differences) < 2:
        return math.inf
    return t_quantile(0.975, len(differences) - 1) * statistics.stdev(differences)
