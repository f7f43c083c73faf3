"""Errors and tallies of rows that cannot be used, and the shortening of data for messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.plain_text import printable

MOST_REASONS = 40
"""Most distinct reasons; later ones are counted together, so that a broken file cannot flood the report."""
EXAMPLES_PER_REASON = 50
"""First rows of a reason that are kept, so that a person can look at them; texts name the first `ROWS_NAMED`."""
ROWS_NAMED = 5
OTHER = "other reasons"


class RowError(Exception):
    """One row cannot be used; it is dropped and counted, and the other rows are used.

    Args:
        reason: short phrase that is the same for all rows with the same fault.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BrokenRowError(DataError):
    """One row of a file cannot even be read; by default the file is refused, see `data.broken_rows`.

    Args:
        what: sentence that says what is wrong, and where.
        remedy: sentence that says what the person can do about it.
        reason: short phrase under which the row is counted where broken rows are dropped.
    """

    def __init__(self, what: str, remedy: str = "", reason: str = "") -> None:
        super().__init__(what, f'{remedy} Or set data.broken_rows = "drop" to continue without such rows.')
        self.reason = reason


class RowRef(NamedTuple):
    """A reference to a row of a dataset.

    Attributes:
        source: index of the row's part.
        row: number of the row in its part, from 1: its line where the format has lines.
    """

    source: int
    row: int


@dataclass
class RowTally:
    """Counts dropped or noticed rows by reason.

    Attributes:
        counts: reason to number of rows.
        examples: reason to references to the first rows.
    """

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[RowRef]] = field(default_factory=dict)

    def add(self, reason: str, ref: RowRef) -> None:
        """Count one row."""
        self.add_all(reason, 1, (ref,))

    def add_all(self, reason: str, count: int, rows: Iterable[RowRef]) -> None:
        """Count several rows.

        Args:
            reason: phrase under which the rows are counted.
            count: number of rows.
            rows: references to the first of the rows, in order.
        """
        if reason not in self.counts and len(self.counts) >= MOST_REASONS:
            reason = OTHER
        self.counts[reason] = self.counts.get(reason, 0) + count
        first = self.examples.setdefault(reason, [])
        first.extend(islice(rows, EXAMPLES_PER_REASON - len(first)))

    def merge(self, later: RowTally) -> None:
        """Add the counts of later rows."""
        for reason, count in later.counts.items():
            self.add_all(reason, count, later.examples.get(reason, ()))

    @property
    def total(self) -> int:
        """Number of rows, over all reasons."""
        return sum(self.counts.values())

    def summary(self, most: int = 3) -> str:
        """Return the most frequent reasons as a phrase."""
        ranked = sorted(self.counts.items(), key=lambda item: -item[1])[:most]
        return "; ".join(
            f"{reason}: {count} {'row' if count == 1 else 'rows'}, first {self.examples[reason][0].row}"
            for reason, count in ranked
        )


def shorten(value: object, limit: int = 60) -> str:
    """Convert a value to one short printable line.

    Args:
        value: any value; `str` converts it.
        limit: most characters of the result.
    """
    text = printable(" ".join(str(value)[: 4 * limit].split()))
    return text if len(text) <= limit else text[: limit - 3] + "..."


def excerpt(text: str, position: int) -> str:
    """Cut out the text around a position, 30 characters on either side.

    Args:
        text: text of one line.
        position: index into the text, characters.
    """
    start, end = max(0, position - 30), min(len(text), position + 30)
    middle = printable(text[start:end]).replace("\n", "\\n").replace("\t", "\\t")
    return f"{'...' if start else ''}{middle}{'...' if end < len(text) else ''}"


UNREADABLE = "burnish: unreadable value"
"""Only key of an object that stands in a row for a value that JSON cannot hold; its value says what is there."""


def unreadable_value(column: str, what: str) -> dict[str, str]:
    """Return the stand-in for a value that JSON cannot hold, which is refused where it is read.

    Args:
        column: name of the column.
        what: what it holds there, as a phrase, such as "bytes that are not UTF-8".
    """
    return {UNREADABLE: f'the column "{shorten(column, 40)}" holds {what}'}


def refuse_unreadable(value: object) -> None:
    """Refuse a value that is an `unreadable_value`.

    Raises:
        RowError: The value is one.
    """
    if isinstance(value, dict) and UNREADABLE in value:
        raise RowError(str(value[UNREADABLE]))
