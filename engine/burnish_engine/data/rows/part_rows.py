"""Opens a part of a dataset: its rows, the meaning of their columns, and the factor from sampled to all rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnish_engine.data.files.discover import DatasetPart
from burnish_engine.data.files.formats import NumberedJson, parsed
from burnish_engine.data.files.problems import BrokenRowError
from burnish_engine.data.files.read import Table
from burnish_engine.data.rows.column_readings import CandidateReading
from burnish_engine.data.rows.conversation import Conversation
from burnish_engine.data.rows.row_readers import row_reader
from burnish_engine.data.rows.shapes import ColumnLayout


@dataclass(frozen=True, eq=False)
class RowSource:
    """An opened part of a dataset.

    Attributes:
        table: rows of the part.
        layout: meaning of the columns.
        columns: names of the columns, in order.
        readings: all ways to read the columns, the surest first.
        unread: columns of usual names that the recipe leaves out, meaning to name.
        sample: sampled rows; None where the whole part is read.
        scale: number of the part's rows for each sampled one.
    """

    table: Table
    layout: ColumnLayout
    columns: list[str]
    readings: list[CandidateReading]
    unread: dict[str, str] = field(default_factory=dict)
    sample: list[NumberedJson] | None = None
    scale: float = 1.0

    @property
    def part(self) -> DatasetPart:
        """The part that the rows come from."""
        return self.table.part

    def raw(self) -> Iterator[NumberedJson]:
        """Iterate over the sampled rows, or over all rows of a part that is not sampled."""
        return iter(self.sample) if self.sample is not None else self.table.raw()

    def values(self) -> Iterator[dict[str, Any]]:
        """Yield the readable rows as column to value."""
        for number, text in self.raw():
            try:
                yield parsed(text, self.part.name, number) if isinstance(text, str) else {}
            except BrokenRowError:
                continue

    def conversations(self, positions: Sequence[int], system_prompt: str) -> Iterator[Conversation]:
        """Yield the conversations of some rows.

        Args:
            positions: indices of the rows in the part, from 0, ascending.
            system_prompt: text that is put first in conversations without a system message; empty adds none.
        """
        reader, wanted = row_reader(self.layout, system_prompt, bad_too=True), iter(positions)
        next_one = next(wanted, None)
        for position, (number, text) in enumerate(self.raw()):
            if next_one is None:
                return
            if position == next_one:
                next_one = next(wanted, None)
                values = parsed(str(text), self.part.name, number)
                yield reader.read(values, number, self.part.name)
