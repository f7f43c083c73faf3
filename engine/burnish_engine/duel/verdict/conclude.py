"""Conclude a duel: for every pair of sides and every measure a difference with its interval.

Speed, memory and energy are compared by the logarithm of their ratio, so that an interval reads as a percentage. No
verdict rests on a mean alone. Several pairs of sides share the chance of a wrong winner; each measure has its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from burnish_engine.contract.recipe.sweep import SweepSetting
from burnish_engine.contract.run.duels import DuelJudge, VerdictForm, VerdictKind
from burnish_engine.duel.measures.outcome import RunOutcome
from burnish_engine.duel.sides.spec import DuelOptions, Side, compared_seeds
from burnish_engine.duel.verdict.effects import EffectContrast, contrast_by_seed, effect_contrasts
from burnish_engine.duel.verdict.rates import (
    LOSS_RESOLUTION,
    RateScores,
    beats,
    best_rate,
    complete_rates,
    interval_of,
    lower_by_signs,
    pair_level,
)
from burnish_engine.duel.verdict.statistics import ConfidenceInterval, paired_interval
from burnish_engine.duel.verdict.verdict import DuelVerdict

_ROUNDING = 1e-12  # largest rounding error of a weighted sum
_Pair = tuple[int, int]
_JUDGE_TITLES = {"held_out_loss": "held-out loss", "pair_error": "held-out pairs preferred wrongly"}
_JUDGE_FORMS: dict[str, VerdictForm] = {"held_out_loss": "nats", "pair_error": "points"}


@dataclass(frozen=True)
class DuelMeasure:
    """A measure, other than the loss, by which sides are compared.

    Attributes:
        key: name in `duel.json`.
        title: name for people.
        value: function that reads a run's value; None where it was not measured.
        form: form of the difference between two sides.
        higher_is_better: whether higher values are better; otherwise lower ones are.
        resolution: smallest meaningful difference of a reading: a share of it, or events, or nats.
        optional: whether nothing is said where no run measured it.
    """

    key: str
    title: str
    value: Callable[[RunOutcome], float | None]
    form: VerdictForm = "share"
    higher_is_better: bool = False
    resolution: float = 0.01
    optional: bool = False


def joules_per_1000(outcome: RunOutcome) -> float | None:
    """Compute the energy of a run per 1,000 real tokens."""
    return None if outcome.joules is None or not outcome.tokens else 1000 * outcome.joules / outcome.tokens


def forgetting_of(outcome: RunOutcome) -> float | None:
    """Return by how much the loss on general text rose, nats per token; None where it was not measured."""
    found = outcome.forgetting
    return found.difference if found is not None and math.isfinite(found.difference) else None


CHOSEN_LOSS = DuelMeasure(
    "chosen_loss", "held-out loss of chosen replies", lambda one: one.chosen_loss, form="nats", resolution=1e-5
)
"""The measure beside the judge where a duel is decided by pairs."""
TASK_SCORE = DuelMeasure(
    "task_score", "score of the task", lambda one: one.task_share, form="points", higher_is_better=True, optional=True
)
"""The share of held-out rows that the result answers rightly; a single row is its resolution."""
MEASURES = (
    DuelMeasure("tokens_per_s", "speed", lambda one: one.tokens_per_s, higher_is_better=True),
    DuelMeasure("memory_bytes", "peak memory", lambda one: one.memory_bytes),
    DuelMeasure("joules_per_1000_tokens", "energy per token", joules_per_1000),
    DuelMeasure(
        "forgetting", "rise of the loss on general text", forgetting_of, form="nats", resolution=1e-4, optional=True
    ),
    TASK_SCORE,
    DuelMeasure("instability", "instability events", lambda one: one.instability.total, form="count", resolution=1.0),
)


def measures_of(judge: DuelJudge) -> tuple[DuelMeasure, ...]:
    """List the measures beside the one that decides the duel."""
    return (CHOSEN_LOSS, *MEASURES) if judge == "pair_error" else MEASURES


def conclude(
    sides: Sequence[Side],
    options: DuelOptions,
    seed: int,
    outcomes: Sequence[RunOutcome],
    judge: DuelJudge = "held_out_loss",
    *,
    tried: Sequence[SweepSetting] = (),
) -> list[DuelVerdict]:
    """Compute all verdicts of a duel whose runs are done: the judge's first, pair by pair or factor by factor."""
    if tried:
        return list(_on_factors(tried, options, seed, outcomes, judge))
    return list(_verdicts(sides, options, seed, outcomes, judge))


def complete_rates_of(sides: int, options: DuelOptions, seed: int, outcomes: Sequence[RunOutcome]) -> list[RateScores]:
    """Collect the scores of every side at each rate that it was run at with every seed."""
    scores, seeds = {outcome.spec: outcome.score for outcome in outcomes}, compared_seeds(seed, options.seeds)
    return [complete_rates(side, seeds, scores) for side in range(sides)]


def _verdicts(
    sides: Sequence[Side], options: DuelOptions, seed: int, outcomes: Sequence[RunOutcome], judge: DuelJudge
) -> Iterator[DuelVerdict]:
    level, pairs = pair_level(options.level, len(sides)), list(combinations(range(len(sides)), 2))
    rate_scores = complete_rates_of(len(sides), options, seed, outcomes)
    for pair in pairs:
        yield _on_judge(judge, pair, sides, rate_scores, level, resolution=_resolution(judge, outcomes))
    in_turns = [
        {one.spec.seed: one for one in outcomes if one.spec.side == side and one.spec.phase == "seeds"}
        for side in range(len(sides))
    ]
    for measure in measures_of(judge):
        for pair in pairs:
            runs = [in_turns[side] for side in pair]
            values = [[measure.value(of_side[one]) for one in sorted(of_side)] for of_side in runs]
            both = zip(*values, strict=True)
            known = [(mine, other) for mine, other in both if mine is not None and other is not None]
            if measure.optional and not known:
                continue
            measured = replace(measure, resolution=_row_share(outcomes)) if measure is TASK_SCORE else measure
            yield _on_measure(measured, pair, (sides[pair[0]].name, sides[pair[1]].name), known, level)


def _on_factors(
    tried: Sequence[SweepSetting], options: DuelOptions, seed: int, outcomes: Sequence[RunOutcome], judge: DuelJudge
) -> Iterator[DuelVerdict]:
    """Judge the effects of factors, and by the judge's measure their interactions too, at every side's best rate."""
    contrasts = effect_contrasts(tried)
    sides, seeds = len(contrasts[0].weights), compared_seeds(seed, options.seeds)
    judged = [
        dict(zip(seeds, of_side[best_rate(of_side)], strict=True))
        for of_side in complete_rates_of(sides, options, seed, outcomes)
    ]
    decides = DuelMeasure(judge, _JUDGE_TITLES[judge], lambda one: one.score, form=_JUDGE_FORMS[judge])
    decides = replace(decides, resolution=_resolution(judge, outcomes))
    for contrast in contrasts:
        yield _on_effect(contrast, decides, judged, options.level)
    for measure in measures_of(judge):
        values: list[dict[int, float]] = [{} for _ in range(sides)]
        for one in outcomes:
            value = measure.value(one)
            if one.spec.phase == "seeds" and value is not None:
                values[one.spec.side][one.spec.seed] = value
        if measure.optional and not any(values):
            continue
        measured = replace(measure, resolution=_row_share(outcomes)) if measure is TASK_SCORE else measure
        for contrast in contrasts:
            if not contrast.is_interaction:
                yield _on_effect(contrast, measured, values, options.level)


def _on_effect(
    contrast: EffectContrast, measure: DuelMeasure, values: Sequence[dict[int, float]], level: float
) -> DuelVerdict:
    """Judge an effect in a measure; where a run diverged there is no mean, and a sign test counts the seeds."""
    ratio = measure.form == "share"
    differences = contrast_by_seed(contrast.weights, values, ratio=ratio)
    finite = all(map(math.isfinite, differences))
    interval = paired_interval(differences, level, measure.resolution) if len(differences) >= 2 and finite else None
    diverged = [
        sum(not math.isfinite(value) for side, weight in zip(values, contrast.weights, strict=True)
            for value in side.values() if weight * sign > 0)
        for sign in (1, -1)
    ]  # fmt: skip
    equal = all(math.isclose(one, 0.0, abs_tol=_ROUNDING) for one in differences)
    winner = None
    if interval and interval.excludes_zero:
        winner = contrast.sides[0] if (interval.mean > 0) == measure.higher_is_better else contrast.sides[1]
    elif any(diverged):
        lower = [lower_by_signs([sign * one for one in differences], level) for sign in (1, -1)]
        winner = next((side for side, is_lower in zip(contrast.sides, lower, strict=True) if is_lower), None)
    known: VerdictKind = "equal" if equal else "winner" if winner is not None else "not distinguishable"
    return DuelVerdict(
        measure=measure.key,
        title=measure.title,
        form=measure.form,
        sides=contrast.sides,
        names=contrast.names,
        pairs=len(differences),
        level=level,
        diverged=(diverged[0], diverged[1]),
        contrast=contrast.weights,
        is_interaction=contrast.is_interaction,
        winner=winner,
        kind="not measured" if interval is None and not any(diverged) else known,
        **_ends(interval, math.expm1 if ratio else float),
    )


def _row_share(outcomes: Sequence[RunOutcome]) -> float:
    """Return the share that one scored row is: less is no difference."""
    return 1 / max(1, *(one.task_rows for one in outcomes))


def _resolution(judge: DuelJudge, outcomes: Sequence[RunOutcome]) -> float:
    """Return the smallest meaningful difference of the judge's measure: a share of pairs changes by whole pairs."""
    pairs = max((one.held_out_pairs for one in outcomes), default=0)
    return 1 / pairs if judge == "pair_error" and pairs else LOSS_RESOLUTION


def _on_judge(
    judge: DuelJudge,
    pair: _Pair,
    sides: Sequence[Side],
    rate_scores: Sequence[RateScores],
    level: float,
    *,
    resolution: float,
) -> DuelVerdict:
    """Judge which of two sides is lower in the measure that decides the duel, each at its best rate."""
    both = [rate_scores[side] for side in pair]
    rates = [best_rate(of_side) for of_side in both]
    mine, other = (of_side[rate] for of_side, rate in zip(both, rates, strict=True))
    winners = [pair[place] for place in (0, 1) if beats(both[place], both[1 - place], level, resolution)]
    diverged = tuple(sum(not math.isfinite(score) for score in scores) for scores in (mine, other))
    equal = mine == other and not any(diverged)
    names = [f"{sides[side].name} at {rate:.4g}" for side, rate in zip(pair, rates, strict=True)]
    return DuelVerdict(
        measure=judge,
        title=_JUDGE_TITLES[judge],
        form=_JUDGE_FORMS[judge],
        sides=pair,
        names=(names[0], names[1]),
        pairs=len(mine),
        level=level,
        diverged=(diverged[0], diverged[1]),
        winner=winners[0] if winners else None,
        kind="equal" if equal else "winner" if winners else "not distinguishable",
        **_ends(interval_of(mine, other, level, resolution)),
    )


def _on_measure(
    measure: DuelMeasure, pair: _Pair, names: tuple[str, str], known: Sequence[tuple[float, float]], level: float
) -> DuelVerdict:
    """Judge which of two sides is better in a measure, over the runs that took turns."""
    ratio = measure.form == "share"
    interval, equal = None, False
    if len(known) >= 2 and not (ratio and any(value <= 0 for values in known for value in values)):
        differences = [math.log(mine / other) if ratio else mine - other for mine, other in known]
        interval, equal = paired_interval(differences, level, measure.resolution), not any(differences)
    winner = None
    if interval and interval.excludes_zero:
        winner = pair[0] if (interval.mean > 0) == measure.higher_is_better else pair[1]
    kind = "not distinguishable" if winner is None else "winner"
    return DuelVerdict(
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


def _ends(interval: ConfidenceInterval | None, of: Callable[[float], float] = float) -> dict[str, float]:
    """Return the interval's fields of a verdict; empty where there is no interval."""
    if interval is None:
        return {}
    return {"difference": of(interval.mean), "low": of(interval.low), "high": of(interval.high)}
