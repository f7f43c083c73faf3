"""Pack documents into passes of a fixed token budget, in an order that depends on seed and epoch alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from burnish_engine.data.documents import lengths_of
from burnish_engine.data.tokenize import Document

IGNORED = -100
"""Label of positions that the loss does not count; torch's default."""

DATA_ORDER = 2
"""Version of how rows become passes. A run keeps the version that it began with, in its checkpoints. Version 1 shuffles
the documents and packs 2,048 at a time; its long plain texts are split anywhere, not at lines. Raise this when a change
would give equal recipe and data other passes."""

WINDOW_PASSES = 128
"""Least passes that are packed together. Each window may leave its last pass half empty, which costs at most 1/128 of
the fill; smaller windows would cost more, larger ones would change the company of a document less between epochs."""
WINDOW_DOCUMENTS = 2048
"""Least documents that are packed together; in order 1 the number of them."""


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """One forward and backward pass: whole documents one after another, no padding. T tokens.

    Attributes:
        input_ids: [T] token ids.
        positions: [T] place of each token in its document, from 0.
        labels: [T] the next token's id where that token is learned and in the same document, else -100. Already
            shifted: position t is compared with the logits of position t.
        boundaries: [documents + 1] where documents begin and end, from 0 to T.
        rows: Indices of the documents.
    """

    input_ids: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    boundaries: npt.NDArray[np.int32]
    rows: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """T."""
        return len(self.input_ids)

    @property
    def supervised_tokens(self) -> int:
        """Positions that the loss counts."""
        return int((self.labels != IGNORED).sum())


class EpochPlan(Sequence[MicroBatch]):
    """The micro-batches of one epoch. Only indices are kept; arrays are built when asked for.

    Args:
        documents: All documents.
        groups: Indices of the documents of each micro-batch, in order.
        budget: Most tokens of a micro-batch.
    """

    def __init__(self, documents: Sequence[Document], groups: Sequence[tuple[int, ...]], budget: int) -> None:
        self._documents = documents
        self.groups = groups
        self.budget = budget

    def __len__(self) -> int:
        return len(self.groups)

    @overload
    def __getitem__(self, index: int) -> MicroBatch: ...
    @overload
    def __getitem__(self, index: slice) -> EpochPlan: ...
    def __getitem__(self, index: int | slice) -> MicroBatch | EpochPlan:
        if isinstance(index, slice):
            return EpochPlan(self._documents, self.groups[index], self.budget)
        return micro_batch(self._documents, self.groups[index])

    def __iter__(self) -> Iterator[MicroBatch]:
        return (micro_batch(self._documents, group) for group in self.groups)

    @property
    def tokens(self) -> int:
        """Tokens of the epoch."""
        lengths = lengths_of(self._documents)
        return sum(int(lengths[list(group)].sum()) for group in self.groups)

    @property
    def fill(self) -> float:
        """Share of the token budgets that is used, 0 to 1."""
        return self.tokens / (self.budget * len(self.groups)) if self.groups else 0.0


def epoch_batches(
    documents: Sequence[Document], budget: int, pack: bool, seed: int, epoch: int, *, order: int = DATA_ORDER
) -> EpochPlan:
    """The micro-batches of an epoch. Every document is in exactly one.

    Args:
        documents: What to train on.
        budget: Most tokens of a micro-batch.
        pack: Put several documents into a micro-batch; otherwise one.
        seed: The run's seed, 0 to 2**32 - 1.
        epoch: Number of the epoch, from 0.
        order: version of the data order, 1 or `DATA_ORDER`.

    Raises:
        ValueError: A document is longer than the budget.
    """
    lengths = lengths_of(documents).tolist()
    if lengths and max(lengths) > budget:
        raise ValueError(f"a document has {max(lengths)} tokens, more than the budget of {budget}")
    # RandomState's stream is frozen by NumPy's policy (NEP 19); a Generator's may change between versions, and with it
    # the order of a run that is resumed.
    random = np.random.RandomState([seed, epoch])
    shuffled: list[int] = random.permutation(len(documents)).tolist()
    groups: list[tuple[int, ...]] = []
    if not pack:
        groups = [(row,) for row in shuffled]
    else:
        windows = _even_windows(random, shuffled, lengths, budget) if order > 1 else _plain_windows(shuffled)
        for window in windows:
            groups.extend(best_fit(window, lengths, budget))
    return EpochPlan(documents, [groups[index] for index in random.permutation(len(groups))], budget)


def held_out_batches(documents: Sequence[Document], budget: int) -> EpochPlan:
    """The passes of an evaluation, the same for every run: order 1, so that older runs' losses come out bit for bit.

    Args:
        documents: Held-out documents.
        budget: Most tokens of a pass.
    """
    return epoch_batches(documents, budget, pack=True, seed=0, epoch=0, order=1)


def _plain_windows(shuffled: Sequence[int]) -> list[Sequence[int]]:
    """Stretches of 2,048 documents, as order 1 packs them."""
    return [shuffled[start : start + WINDOW_DOCUMENTS] for start in range(0, len(shuffled), WINDOW_DOCUMENTS)]


def _even_windows(
    random: np.random.RandomState, shuffled: Sequence[int], lengths: Sequence[int], budget: int
) -> list[list[int]]:
    """Windows that each hold about the same lengths as the whole epoch, so that each packs about as well as the whole.

    Documents are sorted by length. Each stretch of as many documents as there are windows is dealt at random, one to
    each window (stratified sampling).

    Args:
        random: source of the dealing.
        shuffled: indices of documents in random order; it decides between documents of equal length.
        lengths: tokens of every document.
        budget: tokens of a pass.

    Returns:
        Indices of the documents of each window, longest first.
    """
    count = max(1, min(sum(lengths) // (WINDOW_PASSES * budget), len(shuffled) // WINDOW_DOCUMENTS))
    rows = np.array(shuffled, dtype=np.int64)
    rows = rows[np.argsort(-np.array(lengths, dtype=np.int64)[rows], kind="stable")]
    stretch = np.arange(len(rows)) // count
    dealt = rows[np.lexsort((random.random_sample(len(rows)), stretch))]
    return [dealt[window::count].tolist() for window in range(count)]


def best_fit(rows: Sequence[int], lengths: Sequence[int], budget: int) -> list[tuple[int, ...]]:
    """Best-fit decreasing: each document, longest first, goes where the least room is left after it.

    Args:
        rows: Indices of documents; documents of equal length are placed in this order.
        lengths: Tokens of every document.
        budget: Tokens of a group.
    """
    groups: list[list[int]] = []
    with_room: dict[int, list[int]] = {}  # free tokens -> groups with just that much room
    rooms: list[int] = []  # the keys of with_room, ascending
    for row in sorted(rows, key=lambda row: -lengths[row]):
        length = lengths[row]
        at = bisect_left(rooms, length)
        if at == len(rooms):
            group, room = len(groups), budget
            groups.append([])
        else:
            room = rooms[at]
            group = with_room[room].pop()
            if not with_room[room]:
                del with_room[room]
                rooms.pop(at)
        groups[group].append(row)
        left = room - length
        if left in with_room:
            with_room[left].append(group)
        elif left:
            with_room[left] = [group]
            rooms.insert(bisect_left(rooms, left), left)
    return [tuple(group) for group in groups]


def micro_batch(documents: Sequence[Document], rows: Sequence[int]) -> MicroBatch:
    """The arrays of one micro-batch.

    Args:
        documents: All documents.
        rows: Which of them, in order.
    """
    chosen = [documents[row] for row in rows]
    lengths = [len(document) for document in chosen]
    boundaries = np.zeros(len(chosen) + 1, dtype=np.int32)
    boundaries[1:] = np.cumsum(lengths)
    input_ids = np.concatenate([document.input_ids for document in chosen]).astype(np.int64)
    learned = np.concatenate([document.learned for document in chosen])
    learned[boundaries[:-1]] = False  # a document's first token is not predicted from the one before it
    labels = np.full(len(input_ids), IGNORED, dtype=np.int64)
    labels[:-1] = np.where(learned[1:], input_ids[1:], IGNORED)
    positions = np.concatenate([np.arange(length, dtype=np.int64) for length in lengths])
    return MicroBatch(input_ids, positions, labels, boundaries, tuple(rows))
