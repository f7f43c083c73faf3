"""Regular expressions from recipes and files, searched with limits: a bad one must not stop a run for ever."""

from __future__ import annotations

import re
import time
from functools import lru_cache
from typing import Any

SECONDS = 1.0
"""Longest search of one text: the process's processor time, or on Windows the time that passes.

A usual pattern takes microseconds; one that backtracks without end takes for ever. `regex` counts no steps, so only a
pattern that is slow without being endless can find something on one machine and not on another.
"""
_MOST_PLACES = 100_000  # places of a pattern with its repeats written out, which `regex` compiles in about 0.1 s
_COUNT = re.compile(r"\{(\d{1,9})?(,)?(\d{1,9})?\}")
_NOTED_S = 0.001


class SlowPatternError(Exception):
    """A search took longer than `SECONDS` or too much memory, or the check by a schema too many steps."""


def check_pattern(pattern: str) -> None:
    """Compile a pattern.

    Raises:
        ValueError: The pattern is no regular expression, or repeats so much that compiling it would take too long.
    """
    import regex

    try:
        if _places(pattern) > _MOST_PLACES:
            raise ValueError(f"repeats so much that it describes texts of more than {_MOST_PLACES:,} characters")
        _compiled(pattern)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"is no regular expression: {error or 'it takes too much memory'}") from None


def group_count(pattern: str) -> int:
    """Count the groups of a valid pattern that capture text."""
    return int(_compiled(pattern).groups)


def find(pattern: str, text: str) -> Any | None:
    """Find the first place of a text that a valid pattern matches; `.` matches no line break, `^` and `$` the text's.

    Returns:
        The match, as `re.search` returns it; None where there is none.

    Raises:
        SlowPatternError: The search took too long, or too much memory.
    """
    return _searched(_compiled(pattern), text, SECONDS)


class NamePattern:
    """A pattern of whole names, such as those of modules. All of its searches together take at most `SECONDS`.

    Args:
        pattern: regular expression.

    Raises:
        ValueError: The pattern is no regular expression, or repeats too much.
    """

    def __init__(self, pattern: str) -> None:
        check_pattern(pattern)
        self._regex = _compiled(rf"\A(?:{pattern})\Z")
        self._left_s = SECONDS

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole name.

        Raises:
            SlowPatternError: The searches took too long, or too much memory.
        """
        if self._left_s <= 0:
            raise SlowPatternError
        began_s = time.thread_time()
        try:
            return _searched(self._regex, name, self._left_s) is not None
        finally:
            spent_s = time.thread_time() - began_s
            if spent_s > _NOTED_S:  # the usual microseconds may add up for as long as a process lives
                self._left_s -= spent_s


def _searched(compiled: Any, text: str, seconds: float) -> Any | None:
    try:
        return compiled.search(text, timeout=seconds)
    except (TimeoutError, MemoryError):
        raise SlowPatternError from None


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Any:
    import regex

    return regex.compile(pattern)


def _places(pattern: str) -> int:
    """Count the places of a pattern with its counted repeats written out, or more."""
    sums, last, at = [0], 0, 0
    while at < len(pattern):
        count = _COUNT.match(pattern, at)
        sign, at = pattern[at], count.end() if count else at + 1
        if count and (count[1] or count[3]):
            more = last * (max(int(count[1] or 0), int(count[3] or 0)) - 1)
        elif sign == "(":
            sums.append(0)
            continue
        elif sign == ")" and len(sums) > 1:
            last = more = sums.pop()
        else:
            at += sign == "\\"
            last = more = 1
        sums[-1] += max(more, 0)
        last = last + more if count else last
    return sum(sums)
