"""Choose the next run: a pure function of the duel's options and of the scores so far.

So an interrupted duel continues exactly as it would have. Sides take turns, and the first one changes from round to
round: a machine that warms up or gets busy affects all sides equally.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from burnish_engine.duel.sides.spec import DuelOptions, RunSpec, Side, compared_seeds, grid_seed, rate_times
from burnish_engine.duel.verdict.rates import (
    SECOND_LOOKS,
    RunScores,
    complete_rates,
    grid_rate,
    pair_level,
    rate_to_recheck,
)


def next_run(sides: Sequence[Side], options: DuelOptions, seed: int, scores: RunScores) -> RunSpec | None:
    """Choose the next run; None where the duel is done.

    Args:
        sides: compared recipes.
        options: options of the duel.
        seed: seed of the first recipe.
        scores: scores of the runs so far.
    """
    for phase in (_grid, _extensions, _seeds, _second_looks):
        for spec in phase(sides, options, seed, scores):
            if spec not in scores:
                return spec
    return None


def ready_runs(sides: Sequence[Side], options: DuelOptions, seed: int, scores: RunScores) -> list[RunSpec]:
    """List all runs that do not depend on others' scores, in order: several devices can make them at once.

    Args:
        sides: compared recipes.
        options: options of the duel.
        seed: seed of the first recipe.
        scores: scores of the runs so far.
    """
    for phase in (_grid, _extensions, _seeds, _second_looks):
        left = [spec for spec in phase(sides, options, seed, scores) if spec not in scores]
        if phase is _second_looks:  # one side's scores decide whether the other gets a second look
            left = [spec for spec in left if spec.side == left[0].side]
        if left:
            return left
    return []


def run_counts(sides: Sequence[Side], options: DuelOptions) -> tuple[int, int]:
    """Compute the (smallest, largest) number of runs in all."""
    least, most = _counts_of_a_side(options)
    return least * len(sides), most * len(sides)


def run_seconds(sides: Sequence[Side], options: DuelOptions) -> tuple[float, float] | None:
    """Compute the (smallest, largest) predicted training time in all, seconds; None where one is unknown."""
    known = [side.run_s for side in sides if side.run_s is not None]
    if len(known) < len(sides):
        return None
    least, most = _counts_of_a_side(options)
    return least * sum(known), most * sum(known)


def _counts_of_a_side(options: DuelOptions) -> tuple[int, int]:
    grid = len(options.factors)
    if grid == 1:
        return options.seeds, options.seeds
    return grid + options.seeds, grid + options.extensions + (1 + SECOND_LOOKS) * options.seeds


def grid_scores(side: int, seed: int, scores: RunScores) -> dict[float, float]:
    """Return the loss by rate of a side's grid, lowest rate first."""
    return {
        spec.rate: score
        for spec, score in sorted(scores.items(), key=lambda item: item[0].rate)
        if spec.side == side and spec.phase == "grid" and spec.seed == grid_seed(seed)
    }


def _turns(count: int, round_number: int) -> list[int]:
    order = list(range(count))
    return order if round_number % 2 == 0 else order[::-1]


def _grid(sides: Sequence[Side], options: DuelOptions, seed: int, _scores: RunScores) -> Iterator[RunSpec]:
    if len(options.factors) == 1:
        return
    for number, factor in enumerate(options.factors):
        for side in _turns(len(sides), number):
            rate = rate_times(sides[side].rate, factor)
            if rate:
                yield RunSpec(side=side, phase="grid", seed=grid_seed(seed), rate=rate)


def _extensions(sides: Sequence[Side], options: DuelOptions, seed: int, scores: RunScores) -> Iterator[RunSpec]:
    if len(options.factors) == 1:
        return
    planned = [spec.side for spec in _grid(sides, options, seed, scores)]
    for number in range(options.extensions):
        for side in _turns(len(sides), number):
            known = grid_scores(side, seed, scores)
            rate = _beyond(known, options) if len(known) - planned.count(side) == number else None
            if rate:
                yield RunSpec(side=side, phase="grid", seed=grid_seed(seed), rate=rate)


def _beyond(known: Mapping[float, float], options: DuelOptions) -> float | None:
    """Extend the grid beyond its edge where the best rate lies there; None where it lies inside, or at the limit."""
    rates = sorted(known)
    best = min(rates, key=lambda rate: (known[rate], rate))
    if best == rates[0]:  # also where all runs diverged
        return rate_times(best, options.factors[0] / options.factors[1])
    if best == rates[-1]:
        return rate_times(best, options.factors[-1] / options.factors[-2])
    return None


def _seeds(sides: Sequence[Side], options: DuelOptions, seed: int, scores: RunScores) -> Iterator[RunSpec]:
    for number, one in enumerate(compared_seeds(seed, options.seeds)):
        for side in _turns(len(sides), number):
            rate = grid_rate(sides[side], grid_scores(side, seed, scores))
            yield RunSpec(side=side, phase="seeds", seed=one, rate=rate)


def _second_looks(sides: Sequence[Side], options: DuelOptions, seed: int, scores: RunScores) -> Iterator[RunSpec]:
    seeds = compared_seeds(seed, options.seeds)
    rate_scores = [complete_rates(side, seeds, scores) for side in range(len(sides))]
    for side in range(len(sides)):
        rate = rate_to_recheck(
            side, rate_scores, grid_scores(side, seed, scores), pair_level(options.level, len(sides))
        )
        for one in seeds if rate else ():
            yield RunSpec(side=side, phase="second look", seed=one, rate=rate or 0.0)
