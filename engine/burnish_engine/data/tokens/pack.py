"""Packs documents into micro-batches of a fixed token budget; the order depends on seed and epoch alone.

A resumed run must find the same micro-batches. A change that gives the same recipe and data others has to raise
`CHECKPOINT_VERSION` (train/lifecycle/checkpoint.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.best_fit import best_fit_decreasing
from burnish_engine.data.tokens.documents import lengths_of
from burnish_engine.data.tokens.tokenize import Document

IGNORED = -100
"""Label of positions that the loss ignores; torch's default."""

WINDOW_MICRO_BATCHES = 128
"""Least micro-batches that are packed together. Each window may leave its last one half empty, which costs at most
1/128 of the fill. Smaller windows would cost more; larger ones would pair the same documents in more epochs."""
ATTENTION_TOKENS = 8192
"""Length of a document at which attention takes about as long as the rest of the model. Arithmetic gives 4,300 to
17,000 tokens for models of 0.6B to 4B."""
WINDOW_DOCUMENTS = 2048
"""Least documents that are packed together."""


@dataclass(frozen=True, eq=False)
class ReplyTerms:
    """Terms by which replies that the model wrote itself are learned.

    Attributes:
        advantage: [sequences] reward of each reply less the mean of its group, perhaps divided by the group's spread.
        share: [sequences] weight of each token of a reply in the loss of the whole step.
        old: [supervised tokens] log-probability of each as the replies were written, nats, one reply after another;
            None: the weights are still those that wrote them.
        reference: the same under the model as training began; None where the objective compares with none.
    """

    advantage: npt.NDArray[np.float32]
    share: npt.NDArray[np.float32]
    old: npt.NDArray[np.float32] | None = None
    reference: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """The data of one forward and backward pass: whole documents one after another, without padding. T tokens.

    Attributes:
        input_ids: [T] token ids.
        positions: [T] index of each token in its document, from 0.
        labels: [T] the next token's id where that token is supervised and in the same document, else -100. Already
            shifted: position t is compared with the logits of position t.
        boundaries: [sequences + 1] indices where sequences begin and end, from 0 to T. A document is one sequence; a
            preference pair is two.
        rows: indices of the documents.
        reference: [sequences] log-probability of each sequence's supervised tokens without the adapter, nats; None
            where the objective compares with none.
        desirable: [rows] whether each document's reply is labeled good; so are replies without a label.
        mismatched: passes over the rows' prompts with replies to other prompts, which an estimate of the divergence
            from the reference needs (`data.tokens.mismatch`); empty where the objective needs none.
        replies: terms of replies that the model wrote itself; None where rows are learned.
    """

    input_ids: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    boundaries: npt.NDArray[np.int32]
    rows: tuple[int, ...]
    reference: npt.NDArray[np.float32] | None = None
    desirable: npt.NDArray[np.bool_] | None = None
    mismatched: tuple[MicroBatch, ...] = ()
    replies: ReplyTerms | None = None

    @property
    def tokens(self) -> int:
        """Number of tokens, T."""
        return len(self.input_ids)

    @property
    def supervised_tokens(self) -> int:
        """Number of positions that the loss counts."""
        return int((self.labels != IGNORED).sum())

    @property
    def sequence_tokens(self) -> npt.NDArray[np.int64]:
        """[sequences] positions of each sequence that the loss counts."""
        counted: npt.NDArray[np.int64] = np.add.reduceat(self.labels != IGNORED, self.boundaries[:-1], dtype=np.int64)
        return counted


class EpochPlan(Sequence[MicroBatch]):
    """The micro-batches of one epoch. Only indices are kept; the arrays of a micro-batch are built when it is indexed.

    Args:
        documents: all documents.
        groups: indices of the documents of each micro-batch, in order.
        budget: most tokens of a micro-batch.
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
        """Number of tokens in the epoch."""
        lengths = lengths_of(self._documents)
        return sum(int(lengths[list(group)].sum()) for group in self.groups)

    @property
    def fill(self) -> float:
        """Used share of the micro-batches' token budgets, 0 to 1."""
        return self.tokens / (self.budget * len(self.groups)) if self.groups else 0.0


def epoch_batches(
    documents: Sequence[Document],
    budget: int,
    pack: bool,
    seed: int,
    epoch: int,
    *,
    step: int = 1,
    lead: int = 0,
) -> EpochPlan:
    """Plan the micro-batches of an epoch; every document is in exactly one.

    Args:
        documents: documents to train on.
        budget: most tokens of a micro-batch.
        pack: whether to put several documents into a micro-batch; otherwise each holds one.
        seed: the run's seed, 0 to 2**32 - 1.
        epoch: number of the epoch, from 0.
        step: micro-batches of a step; with more than one, those of like cost come into the same step.
        lead: micro-batches that complete a step of the epoch before.

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
        for window in _even_windows(random, shuffled, lengths, budget):
            groups.extend(best_fit_decreasing(window, lengths, budget))
    shuffled_groups = [groups[index] for index in random.permutation(len(groups))]
    if step > 1:
        costs = [pass_cost([lengths[row] for row in group]) for group in shuffled_groups]
        shuffled_groups = [shuffled_groups[index] for index in _alike_steps(random, costs, step, lead)]
    return EpochPlan(documents, shuffled_groups, budget)


def pass_cost(lengths: Sequence[int]) -> float:
    """Predict the time of a pass over documents of these lengths, as a number of tokens that attend to nothing.

    What a token takes beside attention does not depend on its document; attention grows with the document. At
    `ATTENTION_TOKENS` both are alike. The order of data depends on this: a run that was begun must find the same.
    """
    return sum(length + length * length / ATTENTION_TOKENS for length in lengths)


def _alike_steps(random: np.random.RandomState, costs: Sequence[float], step: int, lead: int) -> list[int]:
    """Order micro-batches so that each step holds those of like cost; steps, and the order within each, are random.

    Args:
        random: random numbers.
        costs: predicted time of each micro-batch; their order is random already.
        step: micro-batches of a step.
        lead: micro-batches that complete a step of the epoch before; they and the last, incomplete step are those of
            the least cost.
    """
    by_cost = sorted(range(len(costs)), key=lambda index: costs[index])
    lead = min(lead, len(costs))
    tail = (len(costs) - lead) % step
    rest = by_cost[lead + tail :]
    steps = [rest[first : first + step] for first in range(0, len(rest), step)]
    ordered = [by_cost[:lead], *(steps[index] for index in random.permutation(len(steps))), by_cost[lead : lead + tail]]
    return [index for part in ordered for index in sorted(part)]


def held_out_batches(documents: Sequence[Document], budget: int) -> EpochPlan:
    """Plan the micro-batches of an evaluation, which are the same in every run.

    Args:
        documents: held-out documents.
        budget: most tokens of a micro-batch.
    """
    return epoch_batches(documents, budget, pack=True, seed=0, epoch=0)


def _even_windows(
    random: np.random.RandomState, shuffled: Sequence[int], lengths: Sequence[int], budget: int
) -> list[list[int]]:
    """Deal documents into windows of about the same lengths, so that each packs about as well as the whole epoch.

    Documents are sorted by length. Each stretch of as many documents as there are windows is dealt at random, one to
    each window (stratified sampling).

    Args:
        random: random numbers for the dealing.
        shuffled: indices of documents in random order; it decides between documents of equal length.
        lengths: tokens of every document.
        budget: tokens of a micro-batch.

    Returns:
        Indices of the documents of each window, longest first.
    """
    count = max(1, min(sum(lengths) // (WINDOW_MICRO_BATCHES * budget), len(shuffled) // WINDOW_DOCUMENTS))
    rows = np.array(shuffled, dtype=np.int64)
    rows = rows[np.argsort(-np.array(lengths, dtype=np.int64)[rows], kind="stable")]
    stretch = np.arange(len(rows)) // count
    dealt = rows[np.lexsort((random.random_sample(len(rows)), stretch))]
    return [dealt[window::count].tolist() for window in range(count)]


def micro_batch(documents: Sequence[Document], rows: Sequence[int]) -> MicroBatch:
    """Build the arrays of one micro-batch.

    Args:
        documents: all documents.
        rows: indices of the micro-batch's documents, in order.
    """
    chosen = [documents[row] for row in rows]
    lengths = [length for document in chosen for length in document.sequence_lengths]
    boundaries = np.zeros(len(lengths) + 1, dtype=np.int32)
    boundaries[1:] = np.cumsum(lengths)
    input_ids = np.concatenate([document.input_ids for document in chosen]).astype(np.int64)
    supervised = np.concatenate([document.supervised for document in chosen])
    supervised[boundaries[:-1]] = False  # a sequence's first token is not predicted from the one before it
    labels = np.full(len(input_ids), IGNORED, dtype=np.int64)
    labels[:-1] = np.where(supervised[1:], input_ids[1:], IGNORED)
    positions = np.concatenate([np.arange(length, dtype=np.int64) for length in lengths])
    desirable = np.array([document.desirable for document in chosen])
    return MicroBatch(input_ids, positions, labels, boundaries, tuple(rows), desirable=desirable)
