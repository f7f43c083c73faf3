"""Documents as a sequence over shards: made when they are asked for, so that a dataset need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from burnish_engine.data.problems import Place
from burnish_engine.data.shard import Ints, Shard
from burnish_engine.data.tokenize import Document


class Rows:
    """All rows of some shards, by number from 0.

    Args:
        shards: In order.
        names: Name of each part.
        longest: Documents are cut to this many tokens.
    """

    def __init__(self, shards: Sequence[Shard], names: Sequence[str], longest: int) -> None:
        self._shards, self._names, self._longest = shards, names, longest
        self._starts = np.cumsum([0, *(len(shard) for shard in shards)])
        # Kept, because they are asked for all the time; the others are put together when they are.
        self.whole_lengths = _joined(shard.lengths for shard in shards).astype(np.int32)
        self.supervised = _joined(shard.supervised(longest) for shard in shards).astype(np.int32)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """[n] tokens of each document, as cut."""
        return np.minimum(self.whole_lengths, self._longest)

    @property
    def whole_supervised(self) -> Ints:
        """[n] learned tokens of each document, before it is cut."""
        return self.supervised_within(2**31 - 1)

    def supervised_within(self, longest: int) -> Ints:
        """[n] learned tokens among each document's first `longest` ones."""
        return _joined(shard.supervised(longest) for shard in self._shards)

    @property
    def rows(self) -> Ints:
        """[n] number of each document's row in its part."""
        return _joined(shard.rows for shard in self._shards)

    @property
    def sources(self) -> Ints:
        """[n] index of each document's part."""
        return _joined(shard.sources for shard in self._shards)

    @property
    def positions(self) -> Ints:
        """[n] place of each document's row among the rows of its part."""
        return _joined(shard.positions for shard in self._shards)

    def places(self, numbers: Ints) -> list[Place]:
        """Where some documents' rows are.

        Args:
            numbers: [k] of the documents.
        """
        found = (self._find(number) for number in numbers.tolist())
        return [Place(int(shard.sources[index]), int(shard.rows[index])) for shard, index in found]

    @property
    def digests(self) -> Ints:
        """[n] hash of what each document says."""
        return _joined(shard.digests for shard in self._shards)

    @property
    def bands(self) -> npt.NDArray[np.uint32]:
        """[n, 8]; see `near`."""
        bands = [shard.bands for shard in self._shards]
        return np.concatenate(bands) if bands else np.zeros((0, 8), dtype=np.uint32)

    def document(self, number: int) -> Document:
        """One document, cut."""
        shard, index = self._find(number)
        return shard.document(index, self._names[int(shard.sources[index])], self._longest)

    def ids(self, number: int) -> npt.NDArray[np.int32]:
        """A document's token ids, uncut."""
        shard, index = self._find(number)
        start = int(shard.token_ends[index - 1]) if index else 0
        return shard.tokens[start : int(shard.token_ends[index])]

    def _find(self, number: int) -> tuple[Shard, int]:
        """The shard that holds a document, and its place in there."""
        at = int(np.searchsorted(self._starts, number, side="right")) - 1
        return self._shards[at], number - int(self._starts[at])


class Documents(Sequence[Document]):
    """Some of the rows, in an order.

    Args:
        rows: All of them.
        chosen: [n] numbers of rows; a row may be there more than once.
    """

    def __init__(self, rows: Rows, chosen: Ints) -> None:
        self._rows = rows
        self.chosen = chosen

    def __len__(self) -> int:
        return len(self.chosen)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Documents: ...
    def __getitem__(self, index: int | slice) -> Document | Documents:
        if isinstance(index, slice):
            return Documents(self._rows, self.chosen[index])
        return self._rows.document(int(self.chosen[index]))

    @property
    def lengths(self) -> Ints:
        """[n] tokens of each document."""
        lengths: Ints = self._rows.lengths[self.chosen].astype(np.int64)
        return lengths

    @property
    def supervised(self) -> Ints:
        """[n] learned tokens of each document."""
        supervised: Ints = self._rows.supervised[self.chosen].astype(np.int64)
        return supervised


def lengths_of(documents: Sequence[Document]) -> Ints:
    """[n] tokens of each document."""
    if isinstance(documents, Documents):
        return documents.lengths
    return np.array([len(document) for document in documents], dtype=np.int64)


def supervised_of(documents: Sequence[Document]) -> Ints:
    """[n] learned tokens of each document."""
    if isinstance(documents, Documents):
        return documents.supervised
    return np.array([document.supervised_tokens for document in documents], dtype=np.int64)


def _joined(parts: Iterable[Ints]) -> Ints:
    arrays = list(parts)
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)
