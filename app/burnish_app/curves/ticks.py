"""Round numbers for the ticks of an axis, linear, logarithmic or in time, and their text."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from burnish_app.curves.run_axis import XKind

Tick = tuple[float, str]
"""A tick's position and text."""
TickText = Callable[[float, int], str]
"""Function that formats a tick's value with a number of decimals."""

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_CLOSE = 0.85  # share of the wanted distance that ticks may have, so that a little more room does not halve them
_TIMES_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_SIZE_STEPS = (
    (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0),
    (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 2.0, 3.0, 5.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
    (1.0,),
)
_LOG_STEPS: tuple[tuple[float, ...], ...] = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))


def fixed(value: float, decimals: int) -> str:
    """Format a tick with its decimals and thousands marks."""
    return f"{value:,.{decimals}f}"


def linear_ticks(low: float, high: float, most: int, text: TickText = fixed) -> list[Tick]:
    """Return about `most` ticks at multiples of a round number.

    Args:
        low: lower end of the axis.
        high: upper end of the axis.
        most: number of ticks that there is room for, at least 2.
        text: function that formats a tick.
    """
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return []
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * one for one in _ROUND if power * one >= rough * _CLOSE)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6:  # 2.5, 0.25 and so on
        decimals += 1
    first = math.ceil(low / step - 1e-9)
    return [(at * step, text(at * step, decimals)) for at in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float, most: int, text: TickText = fixed) -> list[Tick]:
    """Return about `most` ticks of a logarithmic axis, at its round numbers.

    Args:
        low: decimal logarithm of the lower end.
        high: decimal logarithm of the upper end.
        most: number of ticks that there is room for, at least 2.
        text: function that formats a value.

    Returns:
        Ticks whose positions are decimal logarithms.
    """
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return []
    powers = range(math.floor(low), math.ceil(high) + 1)
    for steps in _LOG_STEPS:
        found = [(power + math.log10(one), one * 10.0**power) for power in powers for one in steps]
        found = [(at, value) for at, value in found if low <= at <= high]
        if len(found) < 2:
            break
        if len(found) <= most:
            return [(at, text(value, max(0, -math.floor(math.log10(value) + 1e-9)))) for at, value in found]
    else:
        apart_by = -(-len(found) // most)
        return [(at, text(value, max(0, -math.floor(math.log10(value) + 1e-9)))) for at, value in found[::apart_by]]
    within = linear_ticks(10.0**low, 10.0**high, most, text)  # less than a decade: round numbers, unevenly spaced
    return [(math.log10(at), label) for at, label in within if at > 0]


def size_ticks(low: float, high: float, most: float) -> list[Tick]:
    """Return the densest set of round numbers of a logarithmic axis whose labels have room beside each other.

    Args:
        low: left end, above 0.
        high: right end.
        most: number of labels that fit beside each other over the axis.

    Returns:
        Ticks whose positions are the values themselves.
    """
    if not (0 < low < high < math.inf):
        return []
    apart = math.log(high / low) / most
    powers = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    for steps in _SIZE_STEPS:
        found = [power * one for power in powers for one in steps if low <= power * one <= high]
        near = (math.log(after / before) < apart for before, after in pairwise(found))
        if len(found) > 1 and not any(near):
            decimals = max(_decimals(value) for value in found)
            return [(value, fixed(value, decimals)) for value in found]
    return linear_ticks(low, high, 3)


def _decimals(value: float) -> int:
    """Return how many decimals a round number has."""
    return next((count for count in range(6) if math.isclose(round(value, count), value)), 6)


def x_ticks(kind: XKind, low: float, high: float, most: int) -> list[Tick]:
    """Return the ticks of a horizontal axis.

    Args:
        kind: unit of the axis.
        low: left end.
        high: right end.
        most: number of ticks that there is room for, at least 2.
    """
    if kind == "time":
        return _time_ticks(low, high, most)
    shown = linear_ticks(low, high, most, _count if kind == "tokens" else lambda value, _decimals: f"{value:,.0f}")
    return [(at, label) for at, label in shown if at >= 0 and (at == round(at))]


def time_text(seconds: float, spacing_s: float = 1.0) -> str:
    """Format a time as "1:05" (minutes and seconds) or, where seconds do not matter, "2:30 h" (hours and minutes).

    Args:
        seconds: time, seconds.
        spacing_s: smallest difference that the text has to show, seconds.
    """
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    if spacing_s >= 60 and whole >= 0:
        return f"{hours}:{minutes:02d} h"
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def _time_ticks(low: float, high: float, most: int) -> list[Tick]:
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return []
    rough = (high - low) / most
    step = next((one for one in _TIMES_S if one >= rough * _CLOSE), math.ceil(rough / 86400) * 86400)
    ticks = [at * step for at in range(max(math.ceil(low / step), 0), math.floor(high / step) + 1)]
    hours = bool(ticks) and step >= 60 and ticks[-1] >= 3600
    return [(float(at), time_text(at, 60 if hours else 1)) for at in ticks]


def _count(value: float, _decimals: int) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.6g} {letter}"
    return f"{value:.6g}"
