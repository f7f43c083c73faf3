"""What the rendering of a chat template may use, and the error of one that wants more.

Templates come with models from strangers. The sandbox counts what it can see (steps, texts, numbers); the process that
renders is limited in memory and in processor time, which covers the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from jinja2.exceptions import SecurityError
from jinja2.sandbox import MAX_RANGE

LONGEST_SOURCE = 262_144
"""Longest template accepted, characters; real ones have up to about 20,000."""

FREE_STEPS = 100_000
"""Loop passes and macro calls of one rendering, beside `STEPS_PER_TURN`."""
STEPS_PER_TURN = 1000
LARGEST_SIZE = 1_000_000
"""Largest integer handed to a function or filter, such as a width or a count."""
LARGEST_NUMBER_BITS = 4096
"""Largest integer that arithmetic may build, bits. Templates count turns."""
FREE_CHARS = 1_000_000
"""Largest text that a template may build, characters, beside `CHARS_PER_CHAR` for each character that it was given."""
CHARS_PER_CHAR = 16
SPARE_CHARS = 16_000_000
"""What all renderings together may write beyond their allowances, characters."""

START_BYTES = 512 * 2**20
"""Address space of the process that renders. Python with jinja takes about 40 MB of it, and eight such processes must
fit beside a model on a machine with 8 GB."""
BYTES_PER_BYTE = 64
"""Further address space for each byte of the rows at hand: characters take up to four bytes, and a row, its renderings
and those with marks exist at the same time."""

SPARE_S = 5.0
"""Processor time that a template may use beyond its allowances, seconds; what a rendering leaves of its own comes
back, up to this."""
COMPILE_S_PER_CHAR = 2e-5
"""Allowance to compile a template, seconds for each of its characters."""
FREE_S = 0.003
"""Allowance of each rendering, seconds: about 20 times what real templates take for two turns on one slow core."""
S_PER_TURN = 0.0003
S_PER_CHAR = 2e-7


class LimitError(SecurityError):
    """A template wants more than a limit allows.

    Args:
        name: memory, time, text, step, depth or number.
        limit: The limit with its unit.
    """

    def __init__(self, name: str, limit: str) -> None:
        super().__init__(f"it exceeds the {name} limit ({limit})")


@dataclass(frozen=True)
class Allowance:
    """What one rendering may use without touching what is spare.

    Attributes:
        seconds: Processor time.
        chars: Characters written.
    """

    seconds: float
    chars: int

    @classmethod
    def of(cls, turns: int, given_chars: int, source_chars: int) -> Allowance:
        """The allowance of a rendering.

        Args:
            turns: Messages of the conversation.
            given_chars: Characters of the messages and tools.
            source_chars: Length of the template.
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
            used: Processor time, seconds.
            allowed: The rendering's allowance, seconds.

        Raises:
            LimitError: Nothing is spare any more.
        """
        self._seconds = min(SPARE_S, self._seconds + allowed - used)
        if self._seconds < 0:
            raise time_limit()

    def pay_text(self, written: int, allowed: int) -> None:
        """Settle what a rendering wrote, characters; arguments and errors as of `pay_time`."""
        self._chars = min(SPARE_CHARS, self._chars + allowed - written)
        if self._chars < 0:
            raise LimitError("text", f"{SPARE_CHARS:,} characters more than its rows explain")


def time_limit() -> LimitError:
    """The error of a template that takes too long."""
    return LimitError("time", f"{SPARE_S:g} s of processor time more than its length and its rows explain")


def memory_limit(limit_bytes: int) -> LimitError:
    """The error of a template that takes too much memory.

    Args:
        limit_bytes: Address space of the process that renders.
    """
    return LimitError("memory", f"{limit_bytes / 2**20:,.0f} MiB")


def depth_limit() -> LimitError:
    """The error of a template whose macros or expressions nest too deep."""
    return LimitError("depth", "Python's stack")


def range_limit() -> LimitError:
    """The error of a template that counts too far; jinja's sandbox raises OverflowError."""
    return LimitError("number", f"ranges of {MAX_RANGE:,}")


def text_limit(most_chars: int) -> LimitError:
    """The error of a template that builds too large a text or list.

    Args:
        most_chars: Characters or items.
    """
    return LimitError("text", f"{most_chars:,} characters or items")
