"""A verdict on two sides in one measure, and its text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.number import Number
from burnish_engine.contract.run.duels import JUDGES, VerdictForm, VerdictKind
from burnish_engine.duel.verdict.statistics import t_quantile


class DuelVerdict(BaseModel):
    """Verdict on a pair of sides in one measure.

    Attributes:
        measure: key of the measure.
        title: name of the measure.
        form: unit of the difference: nats, a share (0.1: the first side has 10 % more), events, or percentage points.
        sides: indices of the two sides.
        names: names of the two; for the loss with their learning rates.
        pairs: number of compared pairs of runs.
        difference: first side less the second. None: there is no mean, since runs diverged or were not measured.
        low: lower end of the interval.
        high: upper end of the interval.
        level: confidence level of the interval.
        diverged: numbers of diverged runs of each side.
        contrast: weight of every side in the difference; empty: 1 and -1 of the two. An effect of a factor has sides of
            either value in it, and `sides` are the first of each.
        is_interaction: whether it compares an effect at the two values of another factor.
        winner: index of the better side; None for every kind but "winner".
        kind: kind of verdict.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=True)

    measure: str
    title: str
    form: VerdictForm
    sides: tuple[int, int]
    names: tuple[str, str]
    pairs: int
    difference: Number | None = None
    low: Number | None = None
    high: Number | None = None
    level: float
    diverged: tuple[int, int] = (0, 0)
    contrast: list[float] = []
    is_interaction: bool = False
    winner: int | None = None
    kind: VerdictKind

    @property
    def better(self) -> str:
        """Name of the winner; empty where there is none."""
        return "" if self.winner is None else self.names[self.sides.index(self.winner)]

    @property
    def weights(self) -> dict[int, float]:
        """Weight in the difference by side, without those that have none."""
        if not self.contrast:
            return {self.sides[0]: 1.0, self.sides[1]: -1.0}
        return {side: weight for side, weight in enumerate(self.contrast) if weight}

    @property
    def text(self) -> str:
        """Verdict in a sentence or two."""
        if self.kind == "not measured":
            few = "one pair alone shows nothing" if self.pairs else "in no pair of runs"
            return f"Not measured. {self.names[0]} against {self.names[1]}: {few}."
        if self.kind == "equal":
            return f"Equal. {self.names[0]} against {self.names[1]}: the same in all {self.pairs} pairs."
        if self.difference is None or self.low is None or self.high is None:
            return _diverged_text(self)
        unit = {"nats": " nats", "share": " %", "count": "", "points": " points"}[self.form]
        low, mean, high = (self._number(value) for value in (self.low, self.difference, self.high))
        interval = f"{_percent(self.level)} interval {low} to {high}{unit}"
        amount = f"{self.names[0]} against {self.names[1]}: {mean}{unit}, {interval}"
        if self.winner is None:
            return f"Not distinguishable. {amount}."
        lower = ""
        if self.measure in ("held_out_loss", "chosen_loss") and not self.is_interaction:
            lower = f", with a perplexity {-100 * math.expm1(-abs(self.difference)):.1f} % lower"
        return f"{self.better} is better{lower}. {amount}."

    def _number(self, value: float) -> str:
        if self.form == "nats":
            return f"{value:+.4f}"
        return f"{100 * value if self.form in ('share', 'points') else value:+.1f}"


def _diverged_text(verdict: DuelVerdict) -> str:
    weights = verdict.weights.values()
    made = [verdict.pairs * sum(weight * sign > 0 for weight in weights) for sign in (1, -1)]
    runs = zip(verdict.names, verdict.diverged, made, strict=True)
    counts = ", ".join(f"{name}: {count} of {total} runs diverged" for name, count, total in runs)
    if verdict.is_interaction:
        counts = f"{sum(verdict.diverged)} of {sum(made)} runs diverged"
    if verdict.winner is None:
        return f"Not distinguishable: a diverged run has no mean, and who won how many pairs may be chance. {counts}."
    return f"{verdict.better} is better: it won more pairs than chance would (sign test). {counts}."


def few_seeds_note(seeds: int, level: float) -> str:
    """Explain what a duel of so many pairs can and cannot detect.

    Args:
        seeds: number of pairs of runs.
        level: confidence level for a pair of sides.
    """
    width = t_quantile(0.5 + level / 2, seeds - 1) / math.sqrt(seeds)
    least = 2 * 0.5**seeds
    sign = "" if least < 1 - level else ", which is too much to decide anything"
    return (
        f"With {seeds} pairs a difference is told apart from none only if it is larger than {width:.1f} times the "
        "standard deviation of the differences between pairs; smaller ones may exist and stay unseen. The interval "
        f"takes those differences to be normally distributed, which {seeds} of them cannot show. Where a run diverged "
        f"there is no mean; then it is counted who won how many pairs, and the least p that {seeds} pairs can have is "
        f"{least:.2g}{sign}."
    )


def headline(verdicts: Sequence[DuelVerdict]) -> str:
    """Summarize the verdicts in the measure that decides the duel in a sentence."""
    losses = [verdict for verdict in verdicts if verdict.measure in JUDGES]
    if not losses:
        return "The duel is not finished."
    by_loss = losses[0].measure == "held_out_loss"
    won = [verdict for verdict in losses if verdict.winner is not None]
    sentences = []
    for verdict in won:
        other = verdict.names[1 - verdict.sides.index(verdict.winner or 0)]
        has = "has a lower held-out loss" if by_loss else "prefers the chosen reply in more held-out pairs"
        if verdict.is_interaction:
            has = "is better"
        sentences.append(f"{verdict.better} {has} than {other}.")
    open_ = [verdict for verdict in losses if verdict.winner is None]
    for verdict in open_:
        equal = "have equal held-out losses" if by_loss else "prefer as many held-out pairs rightly"
        if verdict.is_interaction:
            equal = "are equal"
        by = "held-out loss" if by_loss else "held-out pairs"
        how = equal if verdict.kind == "equal" else f"are not distinguishable by {by}"
        sentences.append(f"{verdict.names[0]} and {verdict.names[1]} {how}.")
    return " ".join(sentences)


def _percent(level: float) -> str:
    return f"{100 * level:.4g} %"
