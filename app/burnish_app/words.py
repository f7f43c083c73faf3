"""Numbers as people read them: counts, times, shares. Pure functions, no Qt."""

from __future__ import annotations

import math


def count_in_words(count: float) -> str:
    """A large count such as "1.24 B", "135 M" or "71.4 k"; small ones as they are.

    Args:
        count: How many.
    """
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size * 0.9995:
            value = count / size
            digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
            return f"{value:.{digits}f} {letter}"
    return f"{count:.0f}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """A count with its noun, such as "1 row" or "1,200 rows".

    Args:
        count: How many.
        noun: For one.
        nouns: For several; empty: the noun with an s.
    """
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def time_in_words(seconds: float) -> str:
    """A duration such as "40 s", "12 min", "3 h 20 min" or "2 days 4 h"; "unknown" where it is no number.

    Args:
        seconds: How long.
    """
    if not math.isfinite(seconds) or seconds < 0:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} days {hours} h" if hours else f"{days} days"


def percent(share: float, digits: int = 0) -> str:
    """A share of 0 to 1 in percent. Never rounds up to 100 % what is not all.

    Args:
        share: 0 to 1.
        digits: Behind the point.
    """
    scaled = share * 100
    if share < 1.0:
        scaled = min(scaled, 100 - 10**-digits)
    return f"{scaled:.{digits}f} %"


def rate_in_words(tokens_per_s: float) -> str:
    """A speed such as "71.4 k tokens/s".

    Args:
        tokens_per_s: Tokens a second.
    """
    if not math.isfinite(tokens_per_s) or tokens_per_s <= 0:
        return "unknown"
    return f"{count_in_words(tokens_per_s) if tokens_per_s >= 10 else f'{tokens_per_s:.1f}'} tokens/s"


def as_sentence(words: str) -> str:
    """Words with a capital letter in front and a stop behind."""
    words = words.strip()
    return words[:1].upper() + words[1:] + ("" if not words or words[-1] in ".!?" else ".")


def first_sentence(words: str) -> tuple[str, str]:
    """The first sentence, and what follows it."""
    first, stop, rest = words.partition(". ")
    return as_sentence(first) if stop else words, rest


def sentence_list(words: list[str]) -> str:
    """Words joined as in a sentence: "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
