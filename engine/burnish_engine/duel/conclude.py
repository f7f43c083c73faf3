"""What may be concluded: for every pair of sides and every measure a difference with its interval.

Speed, memory and energy are compared by the logarithm of their ratio, so that an interval reads as a percentage. No
verdict rests on a mean alone. Several pairs of sides share the chance of a wrong winner; each measure has its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from burnish_engine.duel.outcome import RunOutcome
from burnish_engine.duel.rates import Settled, beats, interval_of, pair_level, settled_rates, shown_rate
from burnish_engine.duel.spec import DuelOptions, Side, compared_seeds
from burnish_engine.duel.statistics import Interval, paired_interval
from burnish_engine.duel.verdict import Form, Verdict

_Pair = tuple[int, int]


@dataclass(frozen=True)
class Measure:
    """Something that sides are compared by, beside the loss.

    Attributes:
        key: Its name in `duel.json`.
        title: For people.
        value: Of a run; None where it was not measured.
        form: How two sides are compared.
        higher_is_better: Otherwise lower is.
        resolution: What a reading is good to: a share of it, or events.
    """

    key: str
    title: str
    value: Callable[[RunOutcome], float | None]
    form: Form = "share"
    higher_is_better: bool = False
    resolution: float = 0.01


def joules_per_1000(outcome: RunOutcome) -> float | None:
    """Energy of a run per 1,000 real tokens."""
    return None if outcome.joules is None or not outcome.tokens else 1000 * outcome.joules / outcome.tokens


MEASURES = (
    Measure("tokens_per_s", "speed", lambda one: one.tokens_per_s, higher_is_better=True),
    Measure("memory_bytes", "peak memory", lambda one: one.memory_bytes),
    Measure("joules_per_1000_tokens", "energy per token", joules_per_1000),
    Measure("instability", "instability events", lambda one: one.instability.total, form="count", resolution=1.0),
)


def conclude(sides: Sequence[Side], options: DuelOptions, seed: int, outcomes: Sequence[RunOutcome]) -> list[Verdict]:
    """All verdicts of a duel whose runs are done: the loss first, pair by pair."""
    return list(_verdicts(sides, options, seed, outcomes))


def settled_of(sides: int, options: DuelOptions, seed: int, outcomes: Sequence[RunOutcome]) -> list[Settled]:
    """Scores of every side at each rate that it was run at with every seed."""
    scores, seeds = {outcome.spec: outcome.score for outcome in outcomes}, compared_seeds(seed, options.seeds)
    return [settled_rates(side, seeds, scores) for side in range(sides)]


def _verdicts(
    sides: Sequence[Side], options: DuelOptions, seed: int, outcomes: Sequence[RunOutcome]
) -> Iterator[Verdict]:
    level, pairs = pair_level(options.level, len(sides)), list(combinations(range(len(sides)), 2))
    settled = settled_of(len(sides), options, seed, outcomes)
    for pair in pairs:
        yield _on_loss(pair, sides, settled, level)
    in_turns = [
        {one.spec.seed: one for one in outcomes if one.spec.side == side and one.spec.phase == "seeds"}
        for side in range(len(sides))
    ]
    for measure in MEASURES:
        for pair in pairs:
            runs = [in_turns[side] for side in pair]
            values = [[measure.value(of_side[one]) for one in sorted(of_side)] for of_side in runs]
            both = zip(*values, strict=True)
            known = [(mine, other) for mine, other in both if mine is not None and other is not None]
            yield _on_measure(measure, pair, (sides[pair[0]].name, sides[pair[1]].name), known, level)


def _on_loss(pair: _Pair, sides: Sequence[Side], settled: Sequence[Settled], level: float) -> Verdict:
    """Which of two sides has the lower held-out loss, each at the rate that speaks for it."""
    both = [settled[side] for side in pair]
    rates = [shown_rate(of_side) for of_side in both]
    mine, other = (of_side[rate] for of_side, rate in zip(both, rates, strict=True))
    winners = [pair[place] for place in (0, 1) if beats(both[place], both[1 - place], level)]
    diverged = tuple(sum(not math.isfinite(score) for score in scores) for scores in (mine, other))
    equal = mine == other and not any(diverged)
    names = [f"{sides[side].name} at {rate:.4g}" for side, rate in zip(pair, rates, strict=True)]
    return Verdict(
        measure="held_out_loss",
        title="held-out loss",
        form="nats",
        sides=pair,
        names=(names[0], names[1]),
        pairs=len(mine),
        level=level,
        diverged=(diverged[0], diverged[1]),
        winner=winners[0] if winners else None,
        kind="equal" if equal else "winner" if winners else "not distinguishable",
        **_ends(interval_of(mine, other, level)),
    )


def _on_measure(
    measure: Measure, pair: _Pair, names: tuple[str, str], known: Sequence[tuple[float, float]], level: float
) -> Verdict:
    """Which of two sides is better in a measure, over the runs that were made in turns."""
    ratio = measure.form == "share"
    interval, equal = None, False
    if len(known) >= 2 and not (ratio and any(value <= 0 for values in known for value in values)):
        differences = [math.log(mine / other) if ratio else mine - other for mine, other in known]
        interval, equal = paired_interval(differences, level, measure.resolution), not any(differences)
    winner = None
    if interval and interval.excludes_zero:
        winner = pair[0] if (interval.mean > 0) == measure.higher_is_better else pair[1]
    kind = "not distinguishable" if winner is None else "winner"
    return Verdict(
        measure=measure.key,
        title=measure.title,
        form=measure.form,
        sides=pair,
        names=names,
        pairs=len(known),
        level=level,
        winner=winner,
        kind="not measured" if interval is None else "equal" if equal else kind,
        **_ends(interval, math.expm1 if ratio else float),
    )


def _ends(interval: Interval | None, of: Callable[[float], float] = float) -> dict[str, float]:
    """The interval's fields of a verdict; none where there is no interval."""
    if interval is None:
        return {}
    return {"difference": of(interval.mean), "low": of(interval.low), "high": of(interval.high)}
