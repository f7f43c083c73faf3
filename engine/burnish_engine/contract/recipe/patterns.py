"""Regular expressions of a recipe, searched with a time limit: a bad one must not stop a run for ever."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

SECONDS = 1.0
"""Longest search of one text: the process's processor time, or on Windows the time that passes.

A usual pattern takes microseconds; one that backtracks without end takes for ever. `regex` counts no steps, so only a
pattern that is slow without being endless can find something on one machine and not on another.
"""


class SlowPatternError(Exception):
    """A search took longer than `SECONDS`, or the check by a schema too many steps."""


def check_pattern(pattern: str) -> None:
    """Compile a pattern.

    Raises:
        ValueError: The pattern is no regular expression.
    """
    import regex

    try:
        _compiled(pattern)
    except (regex.error, RecursionError) as error:
        raise ValueError(f"is no regular expression: {error}") from None


def group_count(pattern: str) -> int:
    """Count the groups of a valid pattern that capture text."""
    return int(_compiled(pattern).groups)


def find(pattern: str, text: str) -> Any | None:
    """Find the first place of a text that a valid pattern matches; `.` matches no line break, `^` and `$` the text's.

    Returns:
        The match, as `re.search` returns it; None where there is none.

    Raises:
        SlowPatternError: The search took too long.
    """
    try:
        return _compiled(pattern).search(text, timeout=SECONDS)
    except TimeoutError:
        raise SlowPatternError from None


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Any:
    import regex

    return regex.compile(pattern)
