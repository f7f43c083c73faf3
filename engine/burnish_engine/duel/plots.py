"""Two kinds of plots: curves over an axis, and intervals around zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from burnish_engine.duel.svg import (
    Spot,
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
_LABELS = 300
_ROW = 34


@dataclass(frozen=True)
class Line:
    """A line of a plot.

    Attributes:
        side: Place of the side, which decides how it looks.
        spots: (x, y), from left to right.
        thin: One of several runs, beside their mean.
        marked: With a marker at each spot.
    """

    side: int
    spots: Sequence[Spot]
    thin: bool = False
    marked: bool = False


@dataclass(frozen=True)
class Span:
    """A row of a plot of intervals.

    Attributes:
        label: Of the row.
        low: Lower end.
        high: Upper end.
        mean: Between them.
        spots: The single differences.
        decided: Whether there is a winner.
    """

    label: str
    low: float
    high: float
    mean: float
    spots: Sequence[float]
    decided: bool


@dataclass(frozen=True)
class Frame:
    """What a curve plot looks like around its lines.

    Attributes:
        title: What it shows, for those who do not see it.
        x_label: Under the axis.
        width: Of the drawing.
        height: Of the drawing.
        log_x: With a logarithmic x axis, whose ticks are the lines' own.
        most: Greatest y that is shown; what lies above is cut off. None: all.
    """

    title: str
    x_label: str
    width: int = 420
    height: int = 270
    log_x: bool = False
    most: float | None = None


def curve_plot(lines: Sequence[Line], frame: Frame, crosses: Sequence[tuple[int, float]] = ()) -> str:
    """Lines over a common axis.

    Args:
        lines: Later ones lie above earlier ones.
        frame: What is around them.
        crosses: (side, x) of what has no y, such as a run that diverged: shown at the top.

    Returns:
        The drawing; empty where there is nothing to draw.
    """
    spots = [spot for line in lines for spot in line.spots if math.isfinite(spot[1])]
    xs = [x for x, _ in spots] + [x for _, x in crosses]
    if not xs:
        return ""
    ys = [y for _, y in spots if frame.most is None or y <= frame.most] or [0.0, 1.0]
    at_x = math.log10 if frame.log_x else float
    low_x, high_x = widened(at_x(min(xs)), at_x(max(xs)), 0.06 if frame.log_x else 0.0)
    low_y, high_y = widened(min(ys), max(ys), 0.06)

    def place(spot: Spot) -> Spot:
        x = _LEFT + (frame.width - _LEFT - _RIGHT) * (at_x(spot[0]) - low_x) / (high_x - low_x)
        return x, _TOP + (frame.height - _TOP - _BOTTOM) * (high_y - spot[1]) / (high_y - low_y)

    x_ticks = sorted(set(xs)) if frame.log_x else ticks(low_x, high_x, 4)
    parts = list(_axes(frame, place, x_ticks, ticks(low_y, high_y, 5)))
    for line in lines:
        for piece in cut_above(line.spots, high_y):
            parts.append(polyline([place(spot) for spot in piece], line.side, thin=line.thin))
        if line.marked:
            parts += [marker(line.side, place(spot)) for spot in line.spots if spot[1] <= high_y]
    for side, x in crosses:
        left, top = place((x, high_y))
        parts.append(cross(side, (left + 6 * side, top + 9)))
    return document(parts, frame.title, frame.width, frame.height)


def interval_plot(spans: Sequence[Span], title: str, form: Callable[[float], str], width: int = 860) -> str:
    """Differences with their intervals, one a row, around zero.

    Args:
        spans: The rows.
        title: What it shows, for those who do not see it.
        form: How a difference is written.
        width: Of the drawing.

    Returns:
        The drawing; empty without rows.
    """
    if not spans:
        return ""
    height = _TOP + _ROW * len(spans) + 30
    ends = [value for span in spans for value in (span.low, span.high, *span.spots, 0.0)]
    low, high = widened(min(ends), max(ends), 0.05)

    def at(value: float) -> float:
        return _LABELS + (width - _LABELS - 2 * _RIGHT) * (value - low) / (high - low)

    parts = list[str]()
    for tick in ticks(low, high, 6):
        look = f'stroke="var(--{"edge" if tick == 0 else "line"})"'
        parts.append(stroke((at(tick), _TOP - 6), (at(tick), height - 26), look))
        parts.append(text((at(tick), height - 8), form(tick), "middle"))
    for number, span in enumerate(spans):
        parts += _row(span, _TOP + _ROW * number + _ROW / 2 - 2, at)
    return document(parts, title, width, height)


def _row(span: Span, y: float, at: Callable[[float], float]) -> Iterator[str]:
    color = "var(--live)" if span.decided else "var(--dim)"
    yield text((0, y + 4), span.label)
    yield stroke((at(span.low), y), (at(span.high), y), f'stroke="{color}" stroke-width="3"')
    for end in (at(span.low), at(span.high)):
        yield stroke((end, y - 6), (end, y + 6), f'stroke="{color}" stroke-width="2"')
    yield f'<rect x="{at(span.mean) - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" fill="{color}"/>'
    for spot in span.spots:
        circle = f'<circle cx="{at(spot):.1f}" cy="{y:.1f}" r="3.5"'
        yield f'{circle} fill="var(--card)" stroke="var(--ink)" stroke-width="1.2"/>'


def _axes(
    frame: Frame, place: Callable[[Spot], Spot], x_ticks: Sequence[float], y_ticks: Sequence[float]
) -> Iterator[str]:
    bottom = frame.height - _BOTTOM
    for tick in y_ticks:
        _, y = place((x_ticks[0], tick))
        yield stroke((_LEFT, y), (frame.width - _RIGHT, y), 'stroke="var(--line)"')
        yield text((_LEFT - 7, y + 4), f"{tick:.6g}", "end")
    for tick in x_ticks:
        x, _ = place((tick, y_ticks[0]))
        yield stroke((x, bottom), (x, bottom + 4), 'stroke="var(--edge)"')
        yield text((x, bottom + 17), f"{tick:.3g}" if frame.log_x else short(tick), "middle")
    yield text(((_LEFT + frame.width - _RIGHT) / 2, frame.height - 6), frame.x_label, "middle")
