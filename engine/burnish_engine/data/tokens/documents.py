"""Gives sequences of documents over shards; each document is built when indexed, so a dataset may exceed memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from burnish_engine.data.files.problems import RowRef
from burnish_engine.data.tokens.mismatch import MismatchedDocuments
from burnish_engine.data.tokens.pair_keys import pair_keys
from burnish_engine.data.tokens.shard import Ints, Shard
from burnish_engine.data.tokens.tokenize import Document


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
        self._starts = np.cumsum([0, *(len(shard) for shard in shards)])
        # These two are used often, so they are kept; the other arrays are concatenated at each use.
        self.whole_lengths = _joined(shard.lengths for shard in shards).astype(np.int32)
        self.supervised_tokens = _joined(shard.supervised_tokens(longest) for shard in shards).astype(np.int32)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """[n] tokens of each document after cutting."""
        return np.minimum(self.whole_lengths, self.longest)

    @property
    def longest_sequences(self) -> Ints:
        """[n] tokens of each document's longer sequence, uncut; of one that is no pair, all of its tokens."""
        rejected_from = _joined(shard.rejected_from for shard in self._shards)
        return np.maximum(rejected_from, self.whole_lengths - rejected_from)

    @property
    def whole_supervised_tokens(self) -> Ints:
        """[n] supervised tokens of each document, before it is cut."""
        return self.supervised_within(2**31 - 1)

    def supervised_within(self, longest: int) -> Ints:
        """Count [n] the supervised tokens among each document's first `longest` tokens."""
        return _joined(shard.supervised_tokens(longest) for shard in self._shards)

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
        """[n] index of each document's row among the rows of its part, from 0."""
        return _joined(shard.positions for shard in self._shards)

    @property
    def desirable(self) -> Ints:
        """[n] 1 where the document's reply is labeled good or has no label, else 0."""
        return _joined(shard.desirable for shard in self._shards)

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
        return _joined(shard.digests for shard in self._shards)

    @property
    def bands(self) -> npt.NDArray[np.uint32]:
        """[n, 8] band hashes of each document; see `near_duplicates`."""
        bands = [shard.bands for shard in self._shards]
        return np.concatenate(bands) if bands else np.zeros((0, 8), dtype=np.uint32)

    def pair_keys(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
        """Return lengths and hashes of all documents, which are pairs; see `pair_keys.pair_keys`."""
        if not self._shards:
            return np.zeros((0, 2), dtype=np.int32), np.zeros((0, 3), dtype=np.uint64)
        lengths, keys = zip(*map(pair_keys, self._shards), strict=True)
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
        for at, index in zip(of.tolist(), (numbers - self._starts[of]).tolist(), strict=True):
            shard = self._shards[at]
            yield shard.document(index, self._names[int(shard.sources[index])], self.longest)

    def ids(self, number: int) -> npt.NDArray[np.int32]:
        """Return a document's token ids, uncut."""
        shard, index = self._find(number)
        start = int(shard.token_ends[index - 1]) if index else 0
        return shard.tokens[start : int(shard.token_ends[index])]

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


def lengths_of(documents: Sequence[Document]) -> Ints:
    """Return [n] the tokens of each document."""
    if isinstance(documents, DocumentSelection | MismatchedDocuments):
        return documents.lengths
    return np.array([len(document) for document in documents], dtype=np.int64)


def supervised_tokens_of(documents: Sequence[Document]) -> Ints:
    """Return [n] the supervised tokens of each document."""
    if isinstance(documents, DocumentSelection):
        return documents.supervised_tokens
    return np.array([document.supervised_tokens for document in documents], dtype=np.int64)


def _joined(parts: Iterable[Ints]) -> Ints:
    arrays = list(parts)
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)
