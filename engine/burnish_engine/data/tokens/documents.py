"""Gives sequences of documents over shards; each document is built when indexed, so a dataset may exceed memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from burnish_engine.data.files.problems import RowRef
from burnish_engine.data.tokens.mismatch import MismatchedDocuments
from burnish_engine.data.tokens.pair_keys import pair_keys
from burnish_engine.data.tokens.shard import Ints, Shard
from burnish_engine.data.tokens.tokenize import Document

_READS_HELD = 32  # documents whose ids are read before mapped files are let go of; the system maps up to 2 MiB for each


class ShardedDocuments:
    """All documents of some shards, by number from 0.

    Args:
        shards: shards in order.
        names: name of each part.
        longest: most tokens of a document; longer ones are cut.

    Attributes:
        longest: the same.
    """

    def __init__(self, shards: Sequence[Shard], names: Sequence[str], longest: int) -> None:
        self._shards, self._names, self.longest = shards, names, longest
        self._reads = 0
        self._starts = np.cumsum([0, *(len(shard) for shard in shards)])
        # These two are used often, so they are kept; the other arrays are concatenated at each use.
        self.whole_lengths = self._joined(lambda shard: shard.lengths).astype(np.int32)
        self.supervised_tokens = self._joined(lambda shard: shard.supervised_tokens(longest)).astype(np.int32)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """[n] tokens of each document after cutting."""
        return np.minimum(self.whole_lengths, self.longest)

    @property
    def longest_sequences(self) -> Ints:
        """[n] tokens of each document's longer sequence, uncut; of one that is no pair, all of its tokens."""
        rejected_from = self._joined(lambda shard: shard.rejected_from)
        return np.maximum(rejected_from, self.whole_lengths - rejected_from)

    @property
    def whole_supervised_tokens(self) -> Ints:
        """[n] supervised tokens of each document, before it is cut."""
        return self.supervised_within(2**31 - 1)

    def supervised_within(self, longest: int) -> Ints:
        """Count [n] the supervised tokens among each document's first `longest` tokens."""
        return self._joined(lambda shard: shard.supervised_tokens(longest))

    @property
    def rows(self) -> Ints:
        """[n] number of each document's row in its part."""
        return self._joined(lambda shard: shard.rows)

    @property
    def sources(self) -> Ints:
        """[n] index of each document's part."""
        return self._joined(lambda shard: shard.sources)

    @property
    def positions(self) -> Ints:
        """[n] index of each document's row among the rows of its part, from 0."""
        return self._joined(lambda shard: shard.positions)

    @property
    def desirable(self) -> Ints:
        """[n] 1 where the document's reply is labeled good or has no label, else 0."""
        return self._joined(lambda shard: shard.desirable)

    def row_refs(self, numbers: Ints) -> list[RowRef]:
        """Return references to the rows of some documents.

        Args:
            numbers: [k] numbers of the documents.
        """
        found = (self._find(number) for number in numbers.tolist())
        return [RowRef(int(shard.sources[index]), int(shard.rows[index])) for shard, index in found]

    @property
    def digests(self) -> Ints:
        """[n] hash of each document's content."""
        return self._joined(lambda shard: shard.digests)

    @property
    def bands(self) -> npt.NDArray[np.uint32]:
        """[n, 8] band hashes of each document; see `near_duplicates`."""
        return self._joined(lambda shard: shard.bands) if self._shards else np.zeros((0, 8), dtype=np.uint32)

    def pair_keys(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
        """Return lengths and hashes of all documents, which are pairs; see `pair_keys.pair_keys`."""
        if not self._shards:
            return np.zeros((0, 2), dtype=np.int32), np.zeros((0, 3), dtype=np.uint64)
        lengths, keys = zip(*map(pair_keys, self._shards), strict=True)
        self._release()
        return np.concatenate(lengths), np.concatenate(keys)

    def document(self, number: int) -> Document:
        """Build one document, cut to the longest length."""
        shard, index = self._find(number)
        return shard.document(index, self._names[int(shard.sources[index])], self.longest)

    def documents(self, numbers: Ints) -> Iterator[Document]:
        """Build some documents, one after the other, cut to the longest length.

        Args:
            numbers: [k] numbers of the documents.
        """
        of = np.searchsorted(self._starts, numbers, side="right") - 1
        before = 0
        for at, index in zip(of.tolist(), (numbers - self._starts[of]).tolist(), strict=True):
            if at != before:
                self._shards[before].release()
                before = at
            shard = self._shards[at]
            yield shard.document(index, self._names[int(shard.sources[index])], self.longest)

    def ids(self, number: int) -> npt.NDArray[np.int32]:
        """Return a document's token ids, uncut."""
        shard, index = self._find(number)
        start = int(shard.token_ends[index - 1]) if index else 0
        self._reads += 1
        if self._reads % _READS_HELD == 0:
            self._release()
        return shard.tokens[start : int(shard.token_ends[index])]

    def _joined(self, column: Callable[[Shard], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Join a column of all shards; a shard's file does not stay in memory."""
        parts = list[npt.NDArray[Any]]()
        for shard in self._shards:
            parts.append(np.array(column(shard)))
            shard.release()
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def _release(self) -> None:
        for shard in self._shards:
            shard.release()

    def _find(self, number: int) -> tuple[Shard, int]:
        """Find the shard that holds a document, and the document's index in it."""
        at = int(np.searchsorted(self._starts, number, side="right")) - 1
        return self._shards[at], number - int(self._starts[at])


class DocumentSelection(Sequence[Document]):
    """A sequence of some documents, in any order.

    Args:
        documents: all documents.
        chosen: [n] numbers of the documents; a number may occur more than once.
    """

    def __init__(self, documents: ShardedDocuments, chosen: Ints) -> None:
        self._documents = documents
        self.chosen = chosen

    def __len__(self) -> int:
        return len(self.chosen)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> DocumentSelection: ...
    def __getitem__(self, index: int | slice) -> Document | DocumentSelection:
        if isinstance(index, slice):
            return DocumentSelection(self._documents, self.chosen[index])
        return self._documents.document(int(self.chosen[index]))

    def __iter__(self) -> Iterator[Document]:
        return self._documents.documents(self.chosen)

    @property
    def lengths(self) -> Ints:
        """[n] tokens of each document."""
        lengths: Ints = self._documents.lengths[self.chosen].astype(np.int64)
        return lengths

    @property
    def supervised_tokens(self) -> Ints:
        """[n] supervised tokens of each document."""
        supervised_tokens: Ints = self._documents.supervised_tokens[self.chosen].astype(np.int64)
        return supervised_tokens


class JoinedDocuments(Sequence[Document]):
    """A sequence of documents behind another one.

    Args:
        first: documents, such as those of a dataset.
        more: documents behind them, in memory.
    """

    def __init__(self, first: Sequence[Document], more: Sequence[Document]) -> None:
        self._first, self._more = first, list(more)

    def __len__(self) -> int:
        return len(self._first) + len(self._more)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index] - len(self._first)
        return self._first[place + len(self._first)] if place < 0 else self._more[place]

    def __iter__(self) -> Iterator[Document]:
        yield from self._first
        yield from self._more

    @property
    def lengths(self) -> Ints:
        """[n] tokens of each document."""
        return np.concatenate([lengths_of(self._first), lengths_of(self._more)])

    @property
    def supervised_tokens(self) -> Ints:
        """[n] supervised tokens of each document."""
        return np.concatenate([supervised_tokens_of(self._first), supervised_tokens_of(self._more)])


def lengths_of(documents: Sequence[Document]) -> Ints:
    """Return [n] the tokens of each document."""
    if isinstance(documents, DocumentSelection | JoinedDocuments | MismatchedDocuments):
        return documents.lengths
    return np.array([len(document) for document in documents], dtype=np.int64)


def supervised_tokens_of(documents: Sequence[Document]) -> Ints:
    """Return [n] the supervised tokens of each document."""
    if isinstance(documents, DocumentSelection | JoinedDocuments):
        return documents.supervised_tokens
    return np.array([document.supervised_tokens for document in documents], dtype=np.int64)
