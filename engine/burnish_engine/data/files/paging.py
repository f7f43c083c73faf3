"""Reads stretches of a part's rows as a table shows them: any stretch, in any order, without keeping the part."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from itertools import islice

from burnish_engine.data.files.formats import NumberedJson
from burnish_engine.data.files.read import Table

_CHUNK_ROWS = 256
_KEPT_CHARS = 32 * 2**20
_EVERY = 16  # rows between those whose size is measured
_PACKED_RATIO = 4  # bytes of text in a byte of a packed file, about

Check = Callable[[], object]
"""Function that is called now and then while rows are read. It may raise to cancel."""


class RowPager:
    """The rows of a part by their index.

    Rows are read forward only, and no further than wanted. The chunks that were used last are kept; to read one again
    that was given up, the part is read anew from its beginning.

    Args:
        table: rows of the part.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._chunks: OrderedDict[int, list[NumberedJson]] = OrderedDict()
        self._chars = 0
        self._stream: Iterator[NumberedJson] = iter(())
        self._next_chunk = -1
        self._rows, self._ended = 0, False
        self._measured_rows = self._measured_bytes = 0

    @property
    def total(self) -> int:
        """Number of rows of the part; estimated from its size until its end was read."""
        if self._ended or not self._rows:
            return self._rows
        part = self.table.part
        size = part.size_bytes * (_PACKED_RATIO if part.packing or part.format == "parquet" else 1)
        return max(self._rows + 1, round(size * self._measured_rows / max(self._measured_bytes, 1)))

    @property
    def is_exact(self) -> bool:
        """Whether the end of the part was read, so that `total` is the number of its rows."""
        return self._ended

    def rows(self, start: int, count: int, check: Check = lambda: None) -> list[NumberedJson]:
        """Read a stretch of rows; fewer than wanted at the end of the part.

        Args:
            start: index of the first row, from 0.
            count: most rows.
            check: function that is called for each chunk that is read.

        Raises:
            DataError: The part is unreadable or damaged.
        """
        first, last = start // _CHUNK_ROWS, (start + count - 1) // _CHUNK_ROWS
        found = [row for chunk in range(first, last + 1) for row in self._chunk(chunk, check)]
        return found[start - first * _CHUNK_ROWS :][:count]

    def find(self, numbers: Collection[int], check: Check = lambda: None) -> list[tuple[int, NumberedJson]]:
        """Find rows by their numbers, which ascend within a part; what is not there is left out.

        Args:
            numbers: numbers of rows.
            check: function that is called for each chunk that is read.

        Returns:
            (index, row) of each, in order.

        Raises:
            DataError: The part is unreadable or damaged.
        """
        wanted, found, chunk = set(numbers), list[tuple[int, NumberedJson]](), 0
        while wanted and (rows := self._chunk(chunk, check)):
            begin = chunk * _CHUNK_ROWS
            found += [(begin + at, row) for at, row in enumerate(rows) if row[0] in wanted]
            if rows[-1][0] >= max(wanted):
                break
            chunk += 1
        return found

    def _chunk(self, wanted: int, check: Check) -> list[NumberedJson]:
        """Return a chunk of rows; empty beyond the end."""
        if wanted in self._chunks:
            self._chunks.move_to_end(wanted)
            return self._chunks[wanted]
        if self._ended and wanted * _CHUNK_ROWS >= self._rows:
            return []
        if not 0 <= self._next_chunk <= wanted:
            self._stream, self._next_chunk = self.table.raw(), 0
        rows = list[NumberedJson]()
        while self._next_chunk <= wanted:
            check()
            try:
                rows = list(islice(self._stream, _CHUNK_ROWS))
            except BaseException:
                self._next_chunk = -1  # a generator that raised has ended
                raise
            self._keep(self._next_chunk, rows)
            self._next_chunk += 1
            if len(rows) < _CHUNK_ROWS:
                self._ended = True
                return rows if self._next_chunk > wanted else []
        return rows

    def _keep(self, chunk: int, rows: list[NumberedJson]) -> None:
        chars = _chars(rows)
        if chunk * _CHUNK_ROWS + len(rows) > self._rows:
            self._rows = chunk * _CHUNK_ROWS + len(rows)
            texts = [text for _, text in rows[::_EVERY] if isinstance(text, str)]
            self._measured_rows += len(texts)
            self._measured_bytes += sum(_size_in_file(text, self.table.part.format) for text in texts)
        if rows and chunk not in self._chunks:
            self._chunks[chunk] = rows
            self._chars += chars
        while self._chars > _KEPT_CHARS and len(self._chunks) > 1:
            _, gone = self._chunks.popitem(last=False)
            self._chars -= _chars(gone)


def _size_in_file(text: str, file_format: str) -> int:
    """Return about how many bytes a row takes in its file, from its JSON text."""
    if file_format == "csv":
        return sum(len(str(value).encode("utf-8", "replace")) + 1 for value in json.loads(text).values())
    return len(text.encode("utf-8", "replace")) + 1


def _chars(rows: list[NumberedJson]) -> int:
    return sum(len(text) + 1 for _, text in rows if isinstance(text, str))
