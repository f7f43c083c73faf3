"""Accounts for the time and text that a template's renderings use, against an allowance for each rendering.

A template that takes a little too long for each of many rows is a bomb as well as one that never ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.data.sandbox.environment import LimitError
from burnish_engine.data.sandbox.limits import (
    CHARS_PER_CHAR,
    FREE_S,
    S_PER_CHAR,
    S_PER_TURN,
    SPARE_CHARS,
    SPARE_S,
    exceeded,
    time_limit,
)


@dataclass(frozen=True)
class Allowance:
    """The time and text that one rendering may use before it draws on the spare budget.

    Attributes:
        seconds: processor time, seconds.
        chars: length of the text, characters.
    """

    seconds: float
    chars: int

    @classmethod
    def of(cls, turns: int, given_chars: int, source_chars: int) -> Allowance:
        """Compute the allowance of a rendering.

        Args:
            turns: number of messages of the conversation.
            given_chars: length of the messages and tools, characters.
            source_chars: length of the template, characters.
        """
        return cls(
            seconds=FREE_S + S_PER_TURN * turns + S_PER_CHAR * given_chars,
            chars=source_chars + 1000 * turns + CHARS_PER_CHAR * given_chars,
        )


class Account:
    """The spare time and text of one template, which its renderings share beyond their allowances."""

    def __init__(self) -> None:
        self._seconds, self._chars = SPARE_S, SPARE_CHARS

    @property
    def seconds(self) -> float:
        """Spare processor time, seconds."""
        return self._seconds

    def pay_time(self, used: float, allowed: float) -> None:
        """Charge a rendering's time: a use beyond its allowance reduces the spare time, an unused rest refills it.

        Args:
            used: processor time of the rendering, seconds.
            allowed: allowance of the rendering, seconds.

        Raises:
            LimitError: The spare time is used up.
        """
        self._seconds = min(SPARE_S, self._seconds + allowed - used)
        if self._seconds < 0:
            raise LimitError(time_limit())

    def pay_text(self, written: int, allowed: int) -> None:
        """Charge a rendering's text.

        Args:
            written: length of the text, characters.
            allowed: allowance of the rendering, characters.

        Raises:
            LimitError: The spare text is used up.
        """
        self._chars = min(SPARE_CHARS, self._chars + allowed - written)
        if self._chars < 0:
            raise LimitError(exceeded("text", f"{SPARE_CHARS:,} characters more than its rows explain"))
