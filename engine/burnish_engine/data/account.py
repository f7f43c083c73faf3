"""What the renderings of a template use, settled against what their rows explain.

A template that takes a little too long for each of many rows is a bomb as well as one that never ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.data.limits import (
    CHARS_PER_CHAR,
    FREE_S,
    S_PER_CHAR,
    S_PER_TURN,
    SPARE_CHARS,
    SPARE_S,
    exceeded,
    time_limit,
)
from burnish_engine.data.sandbox import LimitError


@dataclass(frozen=True)
class Allowance:
    """What one rendering may use without touching what is spare.

    Attributes:
        seconds: processor time, seconds.
        chars: length of the text, characters.
    """

    seconds: float
    chars: int

    @classmethod
    def of(cls, turns: int, given_chars: int, source_chars: int) -> Allowance:
        """The allowance of a rendering.

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
    """What the renderings of one template have left beyond their allowances."""

    def __init__(self) -> None:
        self._seconds, self._chars = SPARE_S, SPARE_CHARS

    @property
    def seconds(self) -> float:
        """Spare processor time, seconds."""
        return self._seconds

    def pay_time(self, used: float, allowed: float) -> None:
        """Settle what a rendering took.

        Args:
            used: processor time that it took, seconds.
            allowed: its allowance, seconds.

        Raises:
            LimitError: Nothing is spare any more.
        """
        self._seconds = min(SPARE_S, self._seconds + allowed - used)
        if self._seconds < 0:
            raise LimitError(time_limit())

    def pay_text(self, written: int, allowed: int) -> None:
        """Settle what a rendering wrote, characters; arguments and errors as of `pay_time`."""
        self._chars = min(SPARE_CHARS, self._chars + allowed - written)
        if self._chars < 0:
            raise LimitError(exceeded("text", f"{SPARE_CHARS:,} characters more than its rows explain"))
