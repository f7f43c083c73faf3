"""Draw the plots of a duel's report from its state."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from burnish_engine.contract.run.duels import JUDGES
from burnish_engine.duel.measures.outcome import CourseStretch, CurvePoint, RunOutcome
from burnish_engine.duel.planner import grid_scores
from burnish_engine.duel.report.figures import compared_runs, interleaved_runs
from burnish_engine.duel.state import DuelState
from burnish_engine.duel.verdict.conclude import MEASURES
from burnish_engine.duel.verdict.effects import contrast_by_seed
from burnish_engine.duel.verdict.verdict import DuelVerdict
from burnish_engine.html_page.plots import CurveLine, Frame, IntervalRow, curve_plot, interval_plot
from burnish_engine.html_page.svg import Spot

CourseSpot = CurvePoint | CourseStretch
_AXES: tuple[tuple[str, Callable[[CourseSpot], float]], ...] = (
    ("optimizer steps", lambda point: point.step),
    ("tokens", lambda point: point.tokens),
    ("seconds of training", lambda point: point.seconds),
)
_COURSES: tuple[tuple[str, Callable[[CourseStretch], float | None]], ...] = (
    ("Speed, tokens/s", lambda at: at.tokens_per_s),
    ("Peak memory so far, GiB", lambda at: None if at.memory_bytes is None else at.memory_bytes / 2**30),
    ("Energy so far, kJ", lambda at: None if at.joules is None else at.joules / 1e3),
    ("Instability events so far", lambda at: at.events),
)
_AXIS_FROM = 0.2
"""Share of the steps after which the axis covers all losses: the steep start would flatten the rest."""


def held_out_plots(state: DuelState) -> list[tuple[str, str]]:
    """Draw (title, plot) of the held-out loss over steps, tokens and training time, then of the perplexity.

    The loss of a preference objective has no perplexity.
    """
    most = _height(run.evaluations for side in range(len(state.sides)) for run in compared_runs(state, side))
    found = []
    measures: list[tuple[str, Callable[[float], float]]] = [("loss", float), ("perplexity", _perplexity)]
    if state.judge == "pair_error":
        measures = [("loss of its own objective", float)]
    for what, value in measures:
        for label, at in _AXES:
            lines = [
                line
                for side, runs in _sides(state)
                for line in _side([[(one, value(one.loss)) for one in run.evaluations] for run in runs], side, at)
            ]
            title = f"Held-out {what} over {label}"
            found.append((title, curve_plot(lines, Frame(title, label, most=None if most is None else value(most)))))
    return found


def course_plots(state: DuelState) -> list[tuple[str, str]]:
    """Draw (title, plot) of speed, memory, energy and events over steps, tokens and training time, where measured."""
    found = []
    for what, value in _COURSES:
        for label, at in _AXES:
            lines = [
                line
                for side in range(len(state.sides))
                for line in _side(
                    [_measured(run, value) for run in interleaved_runs(state, side)], side, at, marked=False
                )
            ]
            title = f"{what}, over {label}"
            found.append((title, curve_plot(lines, Frame(title, label))))
    return [(title, plot) for title, plot in found if plot]


def _measured(run: RunOutcome, value: Callable[[CourseStretch], float | None]) -> list[tuple[CourseSpot, float]]:
    return [(one, known) for one in run.course if (known := value(one)) is not None]


def _sides(state: DuelState) -> Iterator[tuple[int, list[RunOutcome]]]:
    return ((side, list(compared_runs(state, side))) for side in range(len(state.sides)))


def _perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf


def training_plot(state: DuelState) -> tuple[str, str]:
    """Draw (title, plot) of the training loss over steps."""
    lines = [
        CurveLine(side, [(point.step, point.loss) for point in run.training], thin=True)
        for side in range(len(state.sides))
        for run in compared_runs(state, side)
    ]
    title = "Training loss over optimizer steps, every run"
    most = _height(run.training for side in range(len(state.sides)) for run in compared_runs(state, side))
    return title, curve_plot(lines, Frame(title, _AXES[0][0], 860, 280, most=most))


def grid_plot(state: DuelState) -> tuple[str, str]:
    """Draw (title, plot) of the held-out loss over the learning rate; empty without a grid."""
    lines, crosses = [], list[tuple[int, float]]()
    for side in range(len(state.sides)):
        grid = grid_scores(side, state.seed, state.scores)
        lines.append(CurveLine(side, [spot for spot in grid.items() if math.isfinite(spot[1])], marked=True))
        crosses += [(side, rate) for rate, score in grid.items() if not math.isfinite(score)]
    what = "Held-out loss" if state.judge == "held_out_loss" else "Share of held-out pairs preferred wrongly"
    title = f"{what} after the last step over the learning rate"
    plot = curve_plot(lines, Frame(title, "learning rate", 860, 300, log_x=True), crosses)
    return title, plot


def judge_intervals(state: DuelState) -> tuple[str, str]:
    """Draw (title, plot) of the differences in the measure that decides the duel, with their intervals."""
    spans = [
        _span(verdict, f"{verdict.names[0]} − {verdict.names[1]}", _judge_differences(state, verdict))
        for verdict in state.verdicts
        if verdict.measure in JUDGES and verdict.difference is not None
    ]
    what = "Held-out loss, nats per token"
    if state.judge == "pair_error":
        what = "Share of held-out pairs preferred wrongly"
    plot = interval_plot(spans, f"{what}: differences with intervals", lambda value: f"{value:+.4g}" if value else "0")
    return f"{what}: left of zero, the first one is lower", plot


def share_intervals(state: DuelState) -> str:
    """Draw the differences in speed, memory and energy with their intervals."""
    spans = []
    for verdict in state.verdicts:
        measure = next((one for one in MEASURES if one.key == verdict.measure and one.form == "share"), None)
        if measure and verdict.difference is not None:
            values = [
                {run.spec.seed: value for run in interleaved_runs(state, side) if (value := measure.value(run))}
                for side in verdict.weights
            ]
            ratios = map(math.expm1, contrast_by_seed([*verdict.weights.values()], values, ratio=True))
            spans.append(_span(verdict, _row_title(verdict, state), [*ratios]))
    title = "Differences in speed, memory and energy, in percent, with intervals"
    return interval_plot(spans, title, lambda value: f"{100 * value:+.3g} %" if value else "0")


def _row_title(verdict: DuelVerdict, state: DuelState) -> str:
    pair = "" if len(state.sides) == 2 and not state.tried else f", {verdict.names[0]} / {verdict.names[1]}"
    return f"{verdict.title}{pair}"


def _span(verdict: DuelVerdict, label: str, spots: Sequence[float]) -> IntervalRow:
    assert verdict.low is not None and verdict.high is not None and verdict.difference is not None
    return IntervalRow(label, verdict.low, verdict.high, verdict.difference, spots, verdict.winner is not None)


def _judge_differences(state: DuelState, verdict: DuelVerdict) -> list[float]:
    values = [{run.spec.seed: run.score for run in compared_runs(state, side)} for side in verdict.weights]
    return contrast_by_seed([*verdict.weights.values()], values, ratio=False)


def _side(
    runs: Sequence[Sequence[tuple[CourseSpot, float]]],
    side: int,
    at: Callable[[CourseSpot], float],
    *,
    marked: bool = True,
) -> Iterator[CurveLine]:
    """Draw each run's values as thin lines, and their mean."""
    by_step: dict[int, list[Spot]] = {}
    for run in runs:
        spots = [(at(place), value) for place, value in run]
        yield CurveLine(side, spots, thin=True)
        for (place, _), spot in zip(run, spots, strict=True):
            by_step.setdefault(place.step, []).append(spot)
    means: list[Spot] = [
        (statistics.fmean(x for x, _ in spots), statistics.fmean(y for _, y in spots))
        for _, spots in sorted(by_step.items())
        if len(spots) == len(runs)
    ]
    yield CurveLine(side, means, marked=marked)


def _height(runs: Iterator[Sequence[CurvePoint]]) -> float | None:
    """Largest loss to show; None where there is none."""
    losses = [
        point.loss
        for points in runs
        for point in points
        if point.step > _AXIS_FROM * points[-1].step and math.isfinite(point.loss)
    ]
    return max(losses) if losses else None
