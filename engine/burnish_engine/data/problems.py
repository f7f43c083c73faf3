"""Rows that cannot be used: why, how many, which. And how data is quoted in messages."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_REASONS = 40
"""Distinct reasons kept; later ones are counted together, so that a broken file cannot flood the report."""
EXAMPLES_PER_REASON = 5
OTHER = "other reasons"


class RowError(Exception):
    """One row cannot be used. It is dropped and counted; the others go on.

    Args:
        reason: Short phrase that is the same for all rows with the same fault.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class Dropped:
    """Counts dropped rows by reason.

    Attributes:
        counts: Reason to number of rows.
        examples: Reason to the first row numbers, from 1.
    """

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[int]] = field(default_factory=dict)

    def add(self, reason: str, row: int) -> None:
        """Count one row."""
        if reason not in self.counts and len(self.counts) >= MOST_REASONS:
            reason = OTHER
        self.counts[reason] = self.counts.get(reason, 0) + 1
        first = self.examples.setdefault(reason, [])
        if len(first) < EXAMPLES_PER_REASON:
            first.append(row)

    @property
    def total(self) -> int:
        """Number of dropped rows."""
        return sum(self.counts.values())

    def in_words(self, most: int = 3) -> str:
        """The most frequent reasons as a phrase."""
        ranked = sorted(self.counts.items(), key=lambda item: -item[1])[:most]
        return "; ".join(
            f"{reason}: {count} {'row' if count == 1 else 'rows'}, first {self.examples[reason][0]}"
            for reason, count in ranked
        )


def printable(text: str) -> str:
    """The text with control characters spelled out, so that data cannot steer a terminal. Newline and tab stay."""
    return "".join(
        character
        if character in "\n\t" or (character >= " " and not "\x7f" <= character <= "\x9f")
        else f"\\x{ord(character):02x}"
        for character in text
    )


def shorten(value: object, limit: int = 60) -> str:
    """A value as one short printable line.

    Args:
        value: Anything; shown through `str`.
        limit: Longest result, characters.
    """
    text = printable(" ".join(str(value)[: 4 * limit].split()))
    return text if len(text) <= limit else text[: limit - 3] + "..."


def excerpt(text: str, position: int, reach: int = 30) -> str:
    """What stands around a position.

    Args:
        text: One line.
        position: Index into it, characters.
        reach: Characters shown on either side.
    """
    start, end = max(0, position - reach), min(len(text), position + reach)
    middle = printable(text[start:end]).replace("\n", "\\n").replace("\t", "\\t")
    return f"{'...' if start else ''}{middle}{'...' if end < len(text) else ''}"
