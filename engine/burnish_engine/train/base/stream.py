"""The endless sequence of micro-batches and the share that a run uses; both follow from recipe and documents alone."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.best_fit import best_fit_decreasing
from burnish_engine.contract.errors import DataError
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.data.tokens.documents import lengths_of, supervised_tokens_of
from burnish_engine.data.tokens.mismatch import MismatchedDocuments
from burnish_engine.data.tokens.pack import EpochPlan, MicroBatch, epoch_batches, micro_batch
from burnish_engine.data.tokens.tokenize import Document


@dataclass(frozen=True)
class Budget:
    """Amount of training in a run.

    Attributes:
        micro_batches: micro-batches over all epochs.
        steps: optimizer steps; the last one may have fewer micro-batches.
        per_epoch: micro-batches of the first epoch.
    """

    micro_batches: int
    steps: int
    per_epoch: int


@dataclass(frozen=True)
class References:
    """Log-probabilities (nats) of supervised tokens under the reference, [documents, sequences of each].

    Attributes:
        train: of the training documents: of pairs the chosen and the rejected reply, else the reply.
        held_out: of the held-out documents that evaluations use.
        mismatched: of the training prompts with replies to other prompts; no rows where the objective needs none.
        held_out_mismatched: the same of the held-out documents.
    """

    train: npt.NDArray[np.float32]
    held_out: npt.NDArray[np.float32]
    mismatched: npt.NDArray[np.float32]
    held_out_mismatched: npt.NDArray[np.float32]


def pass_size(lengths: Sequence[int], *, padded: bool) -> int:
    """Count the tokens that a pass over rows of these lengths computes, padding included."""
    return len(lengths) * max(lengths) if padded else sum(lengths)


class BatchStream:
    """Micro-batches by their number from the start of the run; each epoch is packed and shuffled anew.

    Args:
        documents: tokenized training rows.
        section: the recipe's training section.
        mismatched: prompts with replies to other prompts, of the same documents; None where no passes over them are
            needed.
        alike: whether the micro-batches of a step shall take about the same time, so that ranks that share them do not
            wait for one another.

    Attributes:
        mismatched: the same.
        references: log-probabilities under the reference; None where the objective compares with none, or they are
            not known yet.
    """

    references: References | None = None

    def __init__(
        self,
        documents: Sequence[Document],
        section: TrainSection,
        *,
        mismatched: MismatchedDocuments | None = None,
        alike: bool = False,
    ) -> None:
        self._documents, self.mismatched = documents, mismatched
        self._mismatched_lengths: list[int] = mismatched.lengths.tolist() if mismatched is not None else []
        self._longest_mismatched = max(self._mismatched_lengths, default=0)
        self._lengths, self._supervised = lengths_of(documents), supervised_tokens_of(documents)
        self._section, self._alike = section, alike
        self._plans: list[EpochPlan] = []
        self._ends: list[int] = []

    @property
    def documents(self) -> Sequence[Document]:
        """All training rows."""
        return self._documents

    def epoch_of(self, index: int) -> float:
        """Count the epochs done after `index` micro-batches."""
        if index == 0:
            return 0.0
        epoch, offset = self._epoch_and_offset(index - 1)
        return epoch + (offset + 1) / len(self._plans[epoch])

    def tokens(self, index: int) -> int:
        """Count the real tokens of micro-batch `index`."""
        epoch, offset = self._epoch_and_offset(index)
        return int(self._lengths[list(self._plans[epoch].groups[offset])].sum())

    def supervised(self, index: int) -> int:
        """Count the supervised tokens of micro-batch `index` in the rows it is made of."""
        epoch, offset = self._epoch_and_offset(index)
        return int(self._supervised[list(self._plans[epoch].groups[offset])].sum())

    def __getitem__(self, index: int) -> MicroBatch:
        epoch, offset = self._epoch_and_offset(index)
        return self._completed(self._plans[epoch][offset])

    def longest(self, count: int, *, padded: bool = False) -> MicroBatch:
        """Return the one of the first `count` micro-batches that takes the most memory.

        It is the one with the most tokens, and among equals the one with the most supervised tokens.

        Args:
            count: micro-batches of the run.
            padded: whether rows are padded to the longest of their pass.
        """
        lengths = self._lengths.tolist()
        self._epoch_and_offset(count - 1)
        groups = [group for plan in self._plans for group in plan.groups][:count]
        sizes = [pass_size([lengths[row] for row in group], padded=padded) for group in groups]
        most = max(sizes)
        longest = [group for group, size in zip(groups, sizes, strict=True) if size == most]
        supervised = {row: self._documents[row].supervised_tokens for group in longest for row in group}
        chosen = max(longest, key=lambda group: sum(supervised[row] for row in group))
        return self._completed(micro_batch(self._documents, chosen))

    def _completed(self, batch: MicroBatch) -> MicroBatch:
        """Add to a micro-batch what its objective compares with."""
        references = self.references
        if references is None:
            return batch
        known = references.train[list(batch.rows)].ravel()
        return replace(batch, reference=known, mismatched=tuple(self._mismatched_passes(batch.rows, references)))

    def _mismatched_passes(self, rows: Sequence[int], references: References) -> Iterator[MicroBatch]:
        """Yield passes over the mismatched documents of some rows; these may have more tokens than the rows."""
        if self.mismatched is None:
            return
        groups: list[tuple[int, ...]] = [(row,) for row in rows]
        if self._section.pack:
            groups = best_fit_decreasing(rows, self._mismatched_lengths, self.most_tokens)
        for group in groups:
            known = references.mismatched[list(group)].ravel()
            yield replace(micro_batch(self.mismatched, group), reference=known)

    @property
    def longest_document(self) -> int:
        """Tokens of the longest document."""
        return int(self._lengths.max())

    @property
    def span(self) -> float:
        """Mean length of the document that a token is in, over all tokens."""
        lengths = self._lengths.tolist()
        return sum(length * length for length in lengths) / max(sum(lengths), 1)

    @property
    def most_tokens(self) -> int:
        """Largest number of tokens that a pass of any epoch can have."""
        whole = self._lengths.sum() if self._section.pack else self._lengths.max()
        return min(max(int(whole), self._longest_mismatched), self._section.micro_batch_tokens)

    @property
    def most_supervised(self) -> int:
        """Largest number of supervised tokens in a pass of the first epoch."""
        return max(int(self._supervised[list(group)].sum()) for group in self.first_epoch.groups)

    @property
    def first_epoch(self) -> EpochPlan:
        """Plan of the first epoch."""
        self._epoch_and_offset(0)
        return self._plans[0]

    def budget(self) -> Budget:
        """Count the micro-batches and steps that the recipe's epochs, max_steps and max_tokens allow.

        Raises:
            DataError: max_tokens does not allow even one micro-batch.
        """
        section, per_epoch = self._section, len(self.first_epoch)
        count = math.ceil(section.epochs * per_epoch - 1e-9)  # 1.1 x 10 is 11, whatever floats say
        if section.max_steps:
            count = min(count, section.max_steps * section.accumulation)
        if section.max_tokens:
            used, allowed = 0, 0
            while allowed < count and used + self.tokens(allowed) <= section.max_tokens:
                used += self.tokens(allowed)
                allowed += 1
            if not allowed:
                raise DataError(
                    f"train.max_tokens ({section.max_tokens}) is below the first pass's {self.tokens(0)} tokens.",
                    "Raise train.max_tokens or lower train.micro_batch_tokens.",
                )
            count = allowed
        return Budget(count, math.ceil(count / section.accumulation), per_epoch)

    def _epoch_and_offset(self, index: int) -> tuple[int, int]:
        """Locate micro-batch `index`: its epoch and its number within that; plan epochs as they are reached."""
        while not self._ends or index >= self._ends[-1]:
            section, before = self._section, self._ends[-1] if self._ends else 0
            step = section.accumulation if self._alike else 1
            plan = epoch_batches(
                self._documents,
                section.micro_batch_tokens,
                section.pack,
                section.seed,
                len(self._plans),
                step=step,
                lead=-before % step,
            )
            self._plans.append(plan)
            self._ends.append(before + len(plan))
        epoch = bisect_right(self._ends, index)
        return epoch, index - (self._ends[epoch - 1] if epoch else 0)
