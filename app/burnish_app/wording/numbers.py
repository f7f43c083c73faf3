"""Formats counts, durations, shares and sentences for people. Pure functions, no Qt."""

from __future__ import annotations

import math
from decimal import Decimal

from burnish_app.look.language import tr
from burnish_app.state.time_left import Remaining
from burnish_engine.contract import units

_TINY = 1e-6  # numbers below it are written with an exponent

percent = units.percent
"""Formats a share as percent, in the window as in reports."""


def count_text(count: float) -> str:
    """Format a count: large ones as "1.24 B", "135 M" or "71.4 k", small ones as they are.

    Args:
        count: number to format.
    """
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size * 0.9995:
            value = count / size
            digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
            return f"{value:.{digits}f} {letter}"
    return f"{count:.0f}"


def decimal_text(value: float) -> str:
    """Format a setting's number with as few digits as it needs, such as "0.00005"; the tiniest as "1e-08".

    Args:
        value: number to format.
    """
    text = f"{value:g}" if float(f"{value:g}") == value else str(value)
    return f"{Decimal(text):f}" if "e-" in text and abs(value) >= _TINY else text


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Format a count with its noun, such as "1 row" or "1,200 rows".

    Args:
        count: number of things.
        noun: singular noun.
        nouns: plural noun; empty: the singular with an s.
    """
    return f"{count:,} {tr(noun if count == 1 else nouns or noun + 's')}"


def duration_text(seconds: float) -> str:
    """Format a duration as "40 s", "12 min", "3 h 20 min" or "2 days 4 h"; "unknown" if it is not finite or negative.

    Args:
        seconds: duration, seconds.
    """
    if not math.isfinite(seconds) or seconds < 0:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return tr("{minutes} min").format(minutes=minutes)
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return tr("{hours} h {minutes} min").format(hours=hours, minutes=minutes) if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return tr("{days} days {hours} h").format(days=days, hours=hours) if hours else tr("{days} days").format(days=days)


def left_text(left: Remaining) -> str:
    """Format the time until something is done: "12 min", or "2 to 4 min" while little is known; never 0.

    Args:
        left: the time.
    """
    low, high = (duration_text(_rounded(max(one, 1.0))) for one in (left.low_s, left.high_s))
    if low == high:
        return low
    (less, unit), (_, other) = low.rsplit(" ", 1), high.rsplit(" ", 1)
    if unit == other and " " not in less:
        low = less
    return tr("{low} to {high}").format(low=low, high=high)


def times_text(spent_s: float, left: Remaining | None) -> str:
    """Say for how long something runs and how long it still takes: "4 min so far  ·  about 2 to 4 min left".

    Args:
        spent_s: time since it began, seconds.
        left: time until it is done; None: not known.
    """
    spent = tr("{time} so far").format(time=duration_text(spent_s)) if spent_s >= 1.0 else ""
    about = tr("about {time} left").format(time=left_text(left)) if left is not None else ""
    return "  ·  ".join(part for part in (spent, about) if part)


def _rounded(seconds: float) -> float:
    """Round to what an estimate can claim: 5 s from 20 s on."""
    return 5.0 * round(seconds / 5.0) if 20.0 <= seconds < 90.0 else seconds


def reward_text(reward: float | None) -> str:
    """Format a reward, or a sum of rewards; empty: there is none."""
    return "" if reward is None else decimal_text(round(reward, 2))


def speed_figure(tokens_per_s: float) -> str:
    """Format tokens per second for a column of them, with one decimal below 10.

    Args:
        tokens_per_s: speed, tokens per second.
    """
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 10 else f"{tokens_per_s:.1f}"


def speed_text(tokens_per_s: float) -> str:
    """Format a speed such as "71.4 k tokens/s"; "unknown" if it is not finite or not positive.

    Args:
        tokens_per_s: speed, tokens per second.
    """
    if not math.isfinite(tokens_per_s) or tokens_per_s <= 0:
        return "unknown"
    return f"{count_text(tokens_per_s) if tokens_per_s >= 10 else f'{tokens_per_s:.1f}'} tokens/s"


_GLUED = 20  # longest fact, in letters, that a line does not break
_NO_BREAK = "\N{NO-BREAK SPACE}"


def facts_text(*facts: str) -> str:
    """Join facts in a line, such as "57.1 tokens/s  ·  first token 0.31 s"; empty ones are left out.

    Short facts are not broken, so that a number stays beside its unit.
    """
    return "  ·  ".join(unbroken(fact) for fact in facts if fact)


def unbroken(fact: str) -> str:
    """Keep a short fact in one line, so that a number stays beside its unit."""
    return fact.replace(" ", _NO_BREAK) if len(fact) <= _GLUED else fact


def as_sentence(text: str) -> str:
    """Return the text with a capital first letter and a full stop at its end."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if not text or text[-1] in ".!?" else ".")


def first_sentence(text: str) -> tuple[str, str]:
    """Split a text into its first sentence and the rest."""
    first, stop, rest = text.partition(". ")
    return as_sentence(first) if stop else text, rest


def sentence_list(text: list[str]) -> str:
    """Join words as in a sentence: "a, b and c"."""
    return (
        text[0]
        if len(text) == 1
        else tr("{join} and {text}").format(join=", ".join(text[:-1]), text=text[-1])
        if text
        else ""
    )
