"""An opened part: its rows, what their columns mean, and how many there are for each that is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from burnish_engine.data.conversation import Conversation
from burnish_engine.data.formats import NumberedJson, parsed
from burnish_engine.data.places import Part
from burnish_engine.data.problems import BrokenRowError
from burnish_engine.data.read import Table
from burnish_engine.data.readings import Reading
from burnish_engine.data.shapes import Layout


@dataclass(frozen=True, eq=False)
class Source:
    """An opened part.

    Attributes:
        table: Its rows.
        layout: What its columns mean.
        columns: Its columns, in order.
        readings: Every way to read it, the surest first.
        sample: The only rows to look at, of a part that is sampled.
        scale: How many rows there are for each of those.
    """

    table: Table
    layout: Layout
    columns: list[str]
    readings: list[Reading]
    sample: list[NumberedJson] | None = None
    scale: float = 1.0

    @property
    def part(self) -> Part:
        """Where it lies."""
        return self.table.part

    def raw(self) -> Iterator[NumberedJson]:
        """The rows that are looked at."""
        return iter(self.sample) if self.sample is not None else self.table.raw()

    def values(self) -> Iterator[dict[str, Any]]:
        """Columns and values of the rows that can be read."""
        for number, text in self.raw():
            try:
                yield parsed(text, self.part.name, number) if isinstance(text, str) else {}
            except BrokenRowError:
                continue

    def conversations(self, positions: Sequence[int], system_prompt: str) -> Iterator[Conversation]:
        """The conversations in some rows.

        Args:
            positions: Places of rows from 0, ascending.
            system_prompt: As `Layout.conversation` takes it.
        """
        wanted = iter(positions)
        next_one = next(wanted, None)
        for position, (number, text) in enumerate(self.raw()):
            if next_one is None:
                return
            if position == next_one:
                next_one = next(wanted, None)
                values = parsed(str(text), self.part.name, number)
                yield self.layout.conversation(values, number, self.part.name, system_prompt)
