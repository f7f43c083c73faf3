"""Reads the rows of a part with their numbers, streaming, and samples a large part without reading it whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from burnish_engine.contract.errors import DataError
from burnish_engine.data.files.discover import DatasetPart
from burnish_engine.data.files.formats import READERS, NumberedJson
from burnish_engine.data.files.problems import BrokenRowError
from burnish_engine.data.files.text_lines import LONGEST_LINE_BYTES
from burnish_engine.data.files.unpack import opened

_STRETCHES = 16
"""Stretches of a large file that sample rows are taken from, evenly spread; the first is its beginning."""
COUNTED_BYTES = 2**28
"""Largest file whose lines between the stretches are counted, so that rows are found again by their number."""
_MOST_TIMES = 4
"""Multiple of the wanted bytes after which no further stretch is read, where rows are longer than stretches."""


class Table:
    """The rows of one part, read anew for each iteration.

    Args:
        part: part to read.
        encoding: encoding of the part's text.
    """

    def __init__(self, part: DatasetPart, encoding: str = "utf-8") -> None:
        self.part = part
        self.encoding = encoding

    def raw(self) -> Iterator[NumberedJson]:
        """Iterate over the rows as unchecked JSON text, or their errors.

        Raises:
            DataError: The part is unreadable or damaged.
        """
        return READERS[self.part.format](self.part, self.encoding)

    def sample(self, most_bytes: int) -> tuple[list[NumberedJson], float]:
        """Sample rows of the part, and estimate how many rows of the part each sampled row stands for.

        Lines of a plain JSONL file are taken from stretches all over it: a row that a stretch begins within is skipped.
        Where the file has more than `COUNTED_BYTES`, row numbers beyond the first stretch are estimated. Of other files
        the first rows are taken.

        Args:
            most_bytes: approximate number of bytes to read.

        Raises:
            DataError: The part is unreadable or damaged.
        """
        size = self.part.size_bytes
        if self.part.format == "jsonl" and not self.part.packing and self.encoding == "utf-8" and size > most_bytes:
            return self._spread(most_bytes)
        rows, taken = list[NumberedJson](), 0
        with closing(_closable(self.raw())) as stream:
            for number, text in stream:
                rows.append((number, text))
                taken += len(text) if isinstance(text, str) else 1
                if taken > most_bytes:
                    # The unpacked size is not known beforehand; text packs to about a third.
                    whole = size * (3 if self.part.packing or self.part.format == "parquet" else 1)
                    return rows, max(1.0, whole / taken)
        return rows, 1.0

    def _spread(self, most_bytes: int) -> tuple[list[NumberedJson], float]:
        size = self.part.size_bytes
        each = most_bytes // _STRETCHES
        rows, taken = list[NumberedJson](), 0
        counted, number = 0, 1  # bytes before which lines are counted, and the number of the line that begins there
        for stretch in range(_STRETCHES):
            start = stretch * (size // _STRETCHES)
            with opened(self.part, max(0, start - 1)) as stream:
                text = stream.read(each + 1) + stream.readline(LONGEST_LINE_BYTES)
                begin = text.find(b"\n") + 1 if stretch else 0
                if begin == len(text):  # a row is longer than a stretch
                    text += stream.readline(LONGEST_LINE_BYTES)
            lines = text[begin : text.rfind(b"\n") + 1].split(b"\n")[:-1]
            per_row = taken / len(rows) if rows else 0.0
            first = int((start + begin) / per_row) if per_row else 1
            if size <= COUNTED_BYTES:
                at = max(0, start - 1) + begin if stretch else 0
                number += _line_feeds(self.part, counted, at)
                counted, first = at, number
            rows.extend(self._lines(lines, first))
            taken += sum(map(len, lines)) + len(lines)
            if taken > _MOST_TIMES * most_bytes:
                break
        return rows, size / max(taken, 1)

    def _lines(self, lines: list[bytes], first: int) -> Iterator[NumberedJson]:
        for number, line in enumerate(lines, start=first):
            try:
                text = line.decode("utf-8-sig").strip()
            except UnicodeDecodeError as error:
                yield (
                    number,
                    BrokenRowError(
                        f"A line of {self.part.name} (about line {number}) is not UTF-8: byte {error.start + 1} is "
                        f"0x{line[error.start]:02X}.",
                        "Correct it, or name what the file is in data.encoding.",
                        "not UTF-8",
                    ),
                )
            else:
                if text:
                    yield number, text


def _line_feeds(part: DatasetPart, start: int, end: int) -> int:
    """Count the line feeds of a plain file between two bytes."""
    count = 0
    with opened(part, start) as stream:
        while start < end and (block := stream.read(min(2**20, end - start))):
            count += block.count(b"\n")
            start += len(block)
    return count


def _closable(rows: Iterator[NumberedJson]) -> Any:
    return rows if hasattr(rows, "close") else (row for row in rows)


def no_rows(name: str) -> DataError:
    """Return the error for a part without rows."""
    return DataError(
        f"The data file {name} has no rows: nothing but blank space, a header or an empty list.",
        "Check that it was saved or copied completely.",
    )
