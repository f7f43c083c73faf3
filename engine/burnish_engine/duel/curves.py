"""The plots of a duel's report, made of its state."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from burnish_engine.duel.conclude import MEASURES
from burnish_engine.duel.figures import compared_runs, runs_in_turns
from burnish_engine.duel.outcome import Point, RunOutcome
from burnish_engine.duel.planner import grid_scores
from burnish_engine.duel.plots import Frame, Line, Span, curve_plot, interval_plot
from burnish_engine.duel.state import DuelState
from burnish_engine.duel.svg import Spot
from burnish_engine.duel.verdict import Verdict

_AXES: tuple[tuple[str, Callable[[Point], float]], ...] = (
    ("optimizer steps", lambda point: point.step),
    ("tokens", lambda point: point.tokens),
    ("seconds of training", lambda point: point.seconds),
)
_SETTLED = 0.2
"""Share of the steps after which the axis covers all losses: the fall at the beginning would flatten the rest."""


def held_out_plots(state: DuelState) -> list[tuple[str, str]]:
    """(title, plot) of the held-out loss over steps, over tokens and over training time."""
    most = _height(run.evaluations for side in range(len(state.sides)) for run in compared_runs(state, side))
    found = []
    for label, at in _AXES:
        lines = [line for side in range(len(state.sides)) for line in _side(compared_runs(state, side), side, at)]
        title = f"Held-out loss over {label}"
        found.append((title, curve_plot(lines, Frame(title, label, most=most))))
    return found


def training_plot(state: DuelState) -> tuple[str, str]:
    """(title, plot) of the training loss over steps."""
    lines = [
        Line(side, [(point.step, point.loss) for point in run.training], thin=True)
        for side in range(len(state.sides))
        for run in compared_runs(state, side)
    ]
    title = "Training loss over optimizer steps, every run"
    most = _height(run.training for side in range(len(state.sides)) for run in compared_runs(state, side))
    return title, curve_plot(lines, Frame(title, _AXES[0][0], 860, 280, most=most))


def grid_plot(state: DuelState) -> tuple[str, str]:
    """(title, plot) of the held-out loss over the learning rate; empty without a grid."""
    lines, crosses = [], list[tuple[int, float]]()
    for side in range(len(state.sides)):
        grid = grid_scores(side, state.seed, state.scores)
        lines.append(Line(side, [spot for spot in grid.items() if math.isfinite(spot[1])], marked=True))
        crosses += [(side, rate) for rate, score in grid.items() if not math.isfinite(score)]
    title = "Held-out loss after the last step over the learning rate"
    plot = curve_plot(lines, Frame(title, "learning rate", 860, 300, log_x=True), crosses)
    return title, plot


def loss_intervals(state: DuelState) -> str:
    """The differences in held-out loss with their intervals."""
    spans = [
        _span(verdict, f"{verdict.names[0]} − {verdict.names[1]}", _loss_differences(state, verdict))
        for verdict in state.verdicts
        if verdict.measure == "held_out_loss" and verdict.difference is not None
    ]
    title = "Differences in held-out loss, nats per token, with intervals"
    return interval_plot(spans, title, lambda value: f"{value:+.4g}" if value else "0")


def share_intervals(state: DuelState) -> str:
    """The differences in speed, memory and energy with their intervals."""
    spans = []
    for verdict in state.verdicts:
        measure = next((one for one in MEASURES if one.key == verdict.measure and one.form == "share"), None)
        if measure and verdict.difference is not None:
            both = [{run.spec.seed: measure.value(run) for run in runs_in_turns(state, side)} for side in verdict.sides]
            pairs = [(both[0][seed], both[1][seed]) for seed in both[0]]
            ratios = [mine / other - 1 for mine, other in pairs if mine is not None and other]
            spans.append(_span(verdict, _row_title(verdict, state), ratios))
    title = "Differences in speed, memory and energy, in percent, with intervals"
    return interval_plot(spans, title, lambda value: f"{100 * value:+.3g} %" if value else "0")


def _row_title(verdict: Verdict, state: DuelState) -> str:
    pair = "" if len(state.sides) == 2 else f", {verdict.names[0]} / {verdict.names[1]}"
    return f"{verdict.title}{pair}"


def _span(verdict: Verdict, label: str, spots: Sequence[float]) -> Span:
    assert verdict.low is not None and verdict.high is not None and verdict.difference is not None
    label = label if len(label) <= 38 else f"{label[:36]}..."
    return Span(label, verdict.low, verdict.high, verdict.difference, spots, verdict.winner is not None)


def _loss_differences(state: DuelState, verdict: Verdict) -> list[float]:
    both = [{run.spec.seed: run.score for run in compared_runs(state, side)} for side in verdict.sides]
    return [both[0][seed] - both[1][seed] for seed in both[0] if seed in both[1]]


def _side(runs: Sequence[RunOutcome], side: int, at: Callable[[Point], float]) -> Iterator[Line]:
    """Each run thinly, and their mean."""
    for run in runs:
        yield Line(side, [(at(point), point.loss) for point in run.evaluations], thin=True)
    by_step: dict[int, list[Point]] = {}
    for run in runs:
        for point in run.evaluations:
            by_step.setdefault(point.step, []).append(point)
    means: list[Spot] = [
        (statistics.fmean(map(at, points)), statistics.fmean(point.loss for point in points))
        for _, points in sorted(by_step.items())
        if len(points) == len(runs)
    ]
    yield Line(side, means, marked=True)


def _height(runs: Iterator[Sequence[Point]]) -> float | None:
    """Greatest loss to show; None where there is nothing."""
    losses = [
        point.loss
        for points in runs
        for point in points
        if point.step > _SETTLED * points[-1].step and math.isfinite(point.loss)
    ]
    return max(losses) if losses else None
