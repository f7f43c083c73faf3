"""Which run comes next: a pure function of what the duel was asked and of what its runs came to.

So an interrupted duel goes on exactly as it would have. Sides take turns, and who begins changes from round to round: a
machine that warms up or gets busy hits all alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from burnish_engine.duel.rates import SECOND_LOOKS, Scores, chosen_rate, doubtful_rate, pair_level, settled_rates
from burnish_engine.duel.spec import DuelOptions, RunSpec, Side, compared_seeds, grid_seed, rate_times


def next_run(sides: Sequence[Side], options: DuelOptions, seed: int, scores: Scores) -> RunSpec | None:
    """The next run, or None where the duel is done.

    Args:
        sides: What is compared.
        options: How.
        seed: The first recipe's.
        scores: Of the runs so far.
    """
    for phase in (_grid, _extensions, _seeds, _second_looks):
        for spec in phase(sides, options, seed, scores):
            if spec not in scores:
                return spec
    return None


def ready_runs(sides: Sequence[Side], options: DuelOptions, seed: int, scores: Scores) -> list[RunSpec]:
    """All runs that do not wait for what others come to, in their order: with several devices they can be made at once.

    Args:
        sides: What is compared.
        options: How.
        seed: The first recipe's.
        scores: Of the runs so far.
    """
    for phase in (_grid, _extensions, _seeds, _second_looks):
        left = [spec for spec in phase(sides, options, seed, scores) if spec not in scores]
        if phase is _second_looks:  # what one side comes to decides whether the other is looked at again
            left = [spec for spec in left if spec.side == left[0].side]
        if left:
            return left
    return []


def run_counts(options: DuelOptions) -> tuple[int, int]:
    """(Least, most) runs that each side makes."""
    grid = len(options.factors)
    if grid == 1:
        return options.seeds, options.seeds
    return grid + options.seeds, grid + options.extensions + (1 + SECOND_LOOKS) * options.seeds


def grid_scores(side: int, seed: int, scores: Scores) -> dict[float, float]:
    """Loss by rate of a side's grid, lowest rate first."""
    return {
        spec.rate: score
        for spec, score in sorted(scores.items(), key=lambda item: item[0].rate)
        if spec.side == side and spec.phase == "grid" and spec.seed == grid_seed(seed)
    }


def _turns(count: int, round_number: int) -> list[int]:
    order = list(range(count))
    return order if round_number % 2 == 0 else order[::-1]


def _grid(sides: Sequence[Side], options: DuelOptions, seed: int, _scores: Scores) -> Iterator[RunSpec]:
    if len(options.factors) == 1:
        return
    for number, factor in enumerate(options.factors):
        for side in _turns(len(sides), number):
            rate = rate_times(sides[side].rate, factor)
            if rate:
                yield RunSpec(side=side, phase="grid", seed=grid_seed(seed), rate=rate)


def _extensions(sides: Sequence[Side], options: DuelOptions, seed: int, scores: Scores) -> Iterator[RunSpec]:
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
    """The rate after the edge that the best one lies at; None where it lies between others, or at the limit."""
    rates = sorted(known)
    best = min(rates, key=lambda rate: (known[rate], rate))
    if best == rates[0]:  # also where all diverged
        return rate_times(best, options.factors[0] / options.factors[1])
    if best == rates[-1]:
        return rate_times(best, options.factors[-1] / options.factors[-2])
    return None


def _seeds(sides: Sequence[Side], options: DuelOptions, seed: int, scores: Scores) -> Iterator[RunSpec]:
    for number, one in enumerate(compared_seeds(seed, options.seeds)):
        for side in _turns(len(sides), number):
            rate = chosen_rate(sides[side], grid_scores(side, seed, scores))
            yield RunSpec(side=side, phase="seeds", seed=one, rate=rate)


def _second_looks(sides: Sequence[Side], options: DuelOptions, seed: int, scores: Scores) -> Iterator[RunSpec]:
    seeds = compared_seeds(seed, options.seeds)
    settled = [settled_rates(side, seeds, scores) for side in range(len(sides))]
    for side in range(len(sides)):
        rate = doubtful_rate(side, settled, grid_scores(side, seed, scores), pair_level(options.level, len(sides)))
        for one in seeds if rate else ():
            yield RunSpec(side=side, phase="second look", seed=one, rate=rate or 0.0)
