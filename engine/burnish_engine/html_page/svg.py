"""Draw shapes of a plot as SVG that every viewer supports. Colors are the page's CSS variables.

Sides differ in dash and marker as well as in color, for people who cannot tell the colors.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

Spot = tuple[float, float]

_DASHES = ("", "7 4", "2 3.5", "9 3 2 3")


def document(parts: Iterable[str], title: str, width: int, height: int) -> str:
    """Assemble a whole drawing.

    Args:
        parts: shapes of the drawing.
        title: description for people who do not see it.
        width: width of the drawing.
        height: height of the drawing.
    """
    name = html.escape(title)
    frame = f'viewBox="0 0 {width} {height}" width="100%" role="img" aria-label="{name}"'
    return f"<svg {frame}><title>{name}</title>{''.join(parts)}</svg>"


def legend_sample(side: int) -> str:
    """Draw a sample of a side's line for a legend."""
    frame = 'class="sample" viewBox="0 0 44 16" width="44" height="16" aria-hidden="true"'
    return f"<svg {frame}>{polyline([(1, 8), (43, 8)], side)}{marker(side, (22, 8))}</svg>"


def color_of(side: int) -> str:
    """Return a side's color."""
    return f"var(--s{side % len(_DASHES)})"


def stroke(begin: Spot, end: Spot, attributes: str) -> str:
    """Draw a straight line with these attributes."""
    (x1, y1), (x2, y2) = begin, end
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" {attributes}/>'


def text(spot: Spot, content: str, anchor: str = "start") -> str:
    """Draw text at a point."""
    place = f'x="{spot[0]:.1f}" y="{spot[1]:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="var(--muted)" font-size="12">{html.escape(content)}</text>'


def polyline(spots: Sequence[Spot], side: int, *, thin: bool = False) -> str:
    """Draw a side's line."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    width, opacity = (1, 0.55) if thin else (2.25, 1)
    dash = _DASHES[side % len(_DASHES)]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    attributes = f'stroke="{color_of(side)}" stroke-width="{width}" stroke-opacity="{opacity}" stroke-linejoin="round"'
    return f'<polyline points="{points}" fill="none" {attributes}{dashes}/>'


def marker(side: int, spot: Spot) -> str:
    """Draw a side's marker: circle, square, diamond or triangle."""
    x, y = spot
    attributes = f'fill="{color_of(side)}" stroke="var(--surface)" stroke-width="1"'
    match side % len(_DASHES):
        case 0:
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {attributes}/>'
        case 1:
            return f'<rect x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2" {attributes}/>'
        case 2:
            corners = [(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)]
        case _:
            corners = [(0.0, -5.0), (4.8, 3.6), (-4.8, 3.6)]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{points}" {attributes}/>'


def cross(side: int, spot: Spot) -> str:
    """Draw a side's mark for a missing value."""
    x, y = spot
    arms = f"M{x - 5:.1f} {y - 5:.1f}L{x + 5:.1f} {y + 5:.1f}M{x - 5:.1f} {y + 5:.1f}L{x + 5:.1f} {y - 5:.1f}"
    return f'<path d="{arms}" stroke="{color_of(side)}" stroke-width="2.5" fill="none"/>'


def ticks(low: float, high: float, about: int) -> list[float]:
    """Choose round numbers between two ends: steps of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / max(about, 1)
    power = 10 ** math.floor(math.log10(rough))
    step = power * next(factor for factor, most in ((1, 1.5), (2, 3.5), (5, 7.5), (10, 11)) if rough / power < most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(step * number, 12) for number in range(first, last + 1)]


def short(value: float) -> str:
    """Format a number on an axis: 1,500 as 1.5k, small ones unchanged."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.4g}{letter}"
    return f"{value:.4g}"


def widened(low: float, high: float, share: float) -> Spot:
    """Widen an axis's ends by a margin, also around a single value."""
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        margin = abs(high) * 0.05 or 1.0
        return low - margin, high + margin
    return low - share * (high - low), high + share * (high - low)


def cut_above(spots: Sequence[Spot], most: float) -> list[list[Spot]]:
    """Split a line into its pieces below a height, cut where they cross it; non-finite points are omitted."""
    pieces: list[list[Spot]] = [[]]
    if spots and spots[0][1] <= most:
        pieces[-1].append(spots[0])
    for (x0, y0), (x1, y1) in pairwise(spots):
        if not (math.isfinite(y0) and math.isfinite(y1)):
            pieces.append([(x1, y1)] if y1 <= most else [])
            continue
        if (y0 <= most) != (y1 <= most):
            pieces[-1].append((x0 + (x1 - x0) * (most - y0) / (y1 - y0), most))
        if y1 <= most:
            pieces[-1].append((x1, y1))
        elif y0 <= most:
            pieces.append([])
    return [piece for piece in pieces if len(piece) > 1]
