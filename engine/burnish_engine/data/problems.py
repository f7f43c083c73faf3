"""Rows that cannot be used: why, how many, which. And how data is quoted in messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.plain_text import printable

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


class BrokenRowError(DataError):
    """One row of a file cannot even be read. By default that refuses the file; see `data.broken_rows`.

    Args:
        what: What happened, with the place, as a sentence.
        remedy: What the person can do about it.
        reason: The short phrase under which the row is counted where broken rows are dropped.
    """

    def __init__(self, what: str, remedy: str = "", reason: str = "") -> None:
        super().__init__(what, f'{remedy} Or set data.broken_rows = "drop" to go on without such rows.')
        self.reason = reason


class Place(NamedTuple):
    """Where a row is.

    Attributes:
        source: Index of its part.
        row: Its number in there: its line where it has one, from 1.
    """

    source: int
    row: int


@dataclass
class Dropped:
    """Counts rows by reason: those dropped, or those that something was noticed in.

    Attributes:
        counts: Reason to number of rows.
        examples: Reason to the first rows.
    """

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[Place]] = field(default_factory=dict)

    def add(self, reason: str, place: Place) -> None:
        """Count one row."""
        self.add_all(reason, 1, (place,))

    def add_all(self, reason: str, count: int, rows: Iterable[Place]) -> None:
        """Count several rows.

        Args:
            reason: Why.
            count: How many rows.
            rows: The first of them, in order.
        """
        if reason not in self.counts and len(self.counts) >= MOST_REASONS:
            reason = OTHER
        self.counts[reason] = self.counts.get(reason, 0) + count
        first = self.examples.setdefault(reason, [])
        first.extend(islice(rows, EXAMPLES_PER_REASON - len(first)))

    def merge(self, later: Dropped) -> None:
        """Count what was found in later rows too."""
        for reason, count in later.counts.items():
            self.add_all(reason, count, later.examples.get(reason, ()))

    @property
    def total(self) -> int:
        """Number of dropped rows."""
        return sum(self.counts.values())

    def in_words(self, most: int = 3) -> str:
        """The most frequent reasons as a phrase."""
        ranked = sorted(self.counts.items(), key=lambda item: -item[1])[:most]
        return "; ".join(
            f"{reason}: {count} {'row' if count == 1 else 'rows'}, first {self.examples[reason][0].row}"
            for reason, count in ranked
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
