"""Draw two kinds of plots: curves over an axis, and intervals around zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from burnish_engine.html_page.svg import (
    Spot,
    color_of,
    cross,
    cut_above,
    document,
    marker,
    polyline,
    short,
    stroke,
    text,
    ticks,
    widened,
)

_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 18, 14, 42
_ROW = 50
_MANY = 150  # points from which on a line is drawn thin
_WIDTH = 860  # width of a plot of intervals, pixels
_EDGE = 40  # room left and right of a plot of intervals for the first and last tick's text, pixels


@dataclass(frozen=True)
class CurveLine:
    """One line of a plot.

    Attributes:
        side: index of the side, which decides color and dash.
        spots: points (x, y), from left to right.
        thin: whether it shows one of several runs, beside their mean.
        marked: whether each spot has a marker.
    """

    side: int
    spots: Sequence[Spot]
    thin: bool = False
    marked: bool = False


@dataclass(frozen=True)
class LevelLine:
    """A dashed line across a plot.

    Attributes:
        value: height of the line.
        label: text above its right end.
        side: index that decides the color.
    """

    value: float
    label: str
    side: int


@dataclass(frozen=True)
class IntervalRow:
    """One row of an interval plot.

    Attributes:
        label: label of the row.
        low: lower end.
        high: upper end.
        mean: mean of the differences.
        spots: single differences.
        decided: whether there is a winner.
    """

    label: str
    low: float
    high: float
    mean: float
    spots: Sequence[float]
    decided: bool


@dataclass(frozen=True)
class Frame:
    """Title, size and axes of a curve plot.

    Attributes:
        title: description for people who do not see the plot.
        x_label: label under the axis.
        width: width of the drawing.
        height: height of the drawing.
        log_x: whether the x axis is logarithmic, with ticks at the lines' own values.
        most: largest y that is shown; values above are cut off. None: all are shown.
    """

    title: str
    x_label: str
    width: int = 420
    height: int = 270
    log_x: bool = False
    most: float | None = None


def curve_plot(
    lines: Sequence[CurveLine],
    frame: Frame,
    crosses: Sequence[tuple[int, float]] = (),
    levels: Sequence[LevelLine] = (),
) -> str:
    """Draw lines over a common axis.

    Args:
        lines: curves; later ones lie above earlier ones.
        frame: title, size and axes.
        crosses: (side, x) of values without y, such as a diverged run: shown at the top.
        levels: dashed lines across the plot.

    Returns:
        SVG of the drawing; empty where there is nothing to draw.
    """
    spots = [spot for line in lines for spot in line.spots if math.isfinite(spot[1])]
    xs = [x for x, _ in spots] + [x for _, x in crosses]
    if not xs:
        return ""
    ys = [y for _, y in spots if frame.most is None or y <= frame.most] + [level.value for level in levels]
    at_x = math.log10 if frame.log_x else float
    low_x, high_x = widened(at_x(min(xs)), at_x(max(xs)), 0.06 if frame.log_x else 0.0)
    low_y, high_y = widened(min(ys, default=0.0), max(ys, default=1.0), 0.06)

    def place(spot: Spot) -> Spot:
        x = _LEFT + (frame.width - _LEFT - _RIGHT) * (at_x(spot[0]) - low_x) / (high_x - low_x)
        return x, _TOP + (frame.height - _TOP - _BOTTOM) * (high_y - spot[1]) / (high_y - low_y)

    x_ticks = sorted(set(xs)) if frame.log_x else ticks(low_x, high_x, 4)
    parts = list(_axes(frame, place, x_ticks, ticks(low_y, high_y, 5)))
    for level in levels:
        _, y = place((low_x, level.value))
        look = f'stroke="{color_of(level.side)}" stroke-width="1.5" stroke-dasharray="6 5"'
        parts.append(stroke((_LEFT, y), (frame.width - _RIGHT, y), look))
        parts.append(text((frame.width - _RIGHT - 4, y - 6), level.label, "end"))
    for line in lines:
        for piece in cut_above(line.spots, high_y):
            parts.append(polyline([place(spot) for spot in piece], line.side, thin=line.thin))
        if line.marked:
            parts += [marker(line.side, place(spot)) for spot in line.spots if spot[1] <= high_y]
    for side, x in crosses:
        left, top = place((x, high_y))
        parts.append(cross(side, (left + 6 * side, top + 9)))
    return document(parts, frame.title, frame.width, frame.height)


def loss_plot(
    losses: Sequence[tuple[int, float]], levels: Sequence[LevelLine] = (), held_out: Sequence[tuple[int, float]] = ()
) -> str:
    """Draw a run's loss over its steps.

    Args:
        losses: (step, loss) of training.
        levels: dashed lines across the plot.
        held_out: (step, loss) on held-out rows.

    Returns:
        SVG of the drawing; empty with fewer than two steps.
    """
    if len(losses) < 2:
        return ""
    lines = [CurveLine(0, losses, thin=len(losses) > _MANY), CurveLine(1, held_out, marked=True)]
    return curve_plot(lines, Frame("Training loss over steps", "step", 860, 280), levels=levels)


def interval_plot(spans: Sequence[IntervalRow], title: str, form: Callable[[float], str]) -> str:
    """Draw differences with their intervals around zero, one per row.

    Args:
        spans: rows of the plot.
        title: description for people who do not see the plot.
        form: function that formats a difference.

    Returns:
        SVG of the drawing; empty without rows.
    """
    if not spans:
        return ""
    height = _TOP + _ROW * len(spans) + 30
    ends = [value for span in spans for value in (span.low, span.high, *span.spots, 0.0)]
    low, high = widened(min(ends), max(ends), 0.05)

    def at(value: float) -> float:
        return _EDGE + (_WIDTH - 2 * _EDGE) * (value - low) / (high - low)

    parts = list[str]()
    for tick in ticks(low, high, 6):
        look = f'stroke="var(--{"edge" if tick == 0 else "line"})"'
        parts.append(stroke((at(tick), _TOP - 6), (at(tick), height - 26), look))
        parts.append(text((at(tick), height - 8), form(tick), "middle"))
    for number, span in enumerate(spans):
        parts += _row(span, _TOP + _ROW * number, at)
    return document(parts, title, _WIDTH, height)


def _row(span: IntervalRow, top: float, at: Callable[[float], float]) -> Iterator[str]:
    """Draw the label, as long as it is, and below it the interval."""
    color, y = "var(--accent_ink)" if span.decided else "var(--muted)", top + 31
    yield text((0, top + 12), span.label)
    yield stroke((at(span.low), y), (at(span.high), y), f'stroke="{color}" stroke-width="3"')
    for end in (at(span.low), at(span.high)):
        yield stroke((end, y - 6), (end, y + 6), f'stroke="{color}" stroke-width="2"')
    yield f'<rect x="{at(span.mean) - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" fill="{color}"/>'
    for spot in span.spots:
        circle = f'<circle cx="{at(spot):.1f}" cy="{y:.1f}" r="3.5"'
        yield f'{circle} fill="var(--surface)" stroke="var(--text)" stroke-width="1.2"/>'


def _axes(
    frame: Frame, place: Callable[[Spot], Spot], x_ticks: Sequence[float], y_ticks: Sequence[float]
) -> Iterator[str]:
    bottom = frame.height - _BOTTOM
    for tick, words in zip(y_ticks, _tick_texts(y_ticks), strict=True):
        _, y = place((x_ticks[0], tick))
        yield stroke((_LEFT, y), (frame.width - _RIGHT, y), 'stroke="var(--line)"')
        yield text((_LEFT - 7, y + 4), words, "end")
    for tick in x_ticks:
        x, _ = place((tick, y_ticks[0]))
        yield stroke((x, bottom), (x, bottom + 4), 'stroke="var(--edge)"')
        yield text((x, bottom + 17), f"{tick:.3g}" if frame.log_x else short(tick), "middle")
    yield text(((_LEFT + frame.width - _RIGHT) / 2, frame.height - 6), frame.x_label, "middle")


def _tick_texts(values: Sequence[float]) -> list[str]:
    """Format the numbers of an axis, all with as many decimals as one of them needs."""
    plain = [f"{value:.6g}" for value in values]
    if any("e" in one for one in plain):
        return plain
    decimals = max((len(one.partition(".")[2]) for one in plain), default=0)
    return [f"{value:,.{decimals}f}" for value in values]
