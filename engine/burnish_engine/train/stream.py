"""The endless sequence of micro-batches, and how much of it a run uses. A pure function of recipe and documents."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.recipe import TrainSection
from burnish_engine.data.pack import EpochPlan, MicroBatch, epoch_batches
from burnish_engine.data.tokenize import Document


@dataclass(frozen=True)
class Budget:
    """How much a run trains.

    Attributes:
        micro_batches: Over all epochs.
        steps: Optimizer steps; the last one may have fewer micro-batches.
        per_epoch: Micro-batches of the first epoch.
    """

    micro_batches: int
    steps: int
    per_epoch: int


class BatchStream:
    """Micro-batches by their number from the start of the run; epoch after epoch, each packed and shuffled anew."""

    def __init__(self, documents: Sequence[Document], section: TrainSection) -> None:
        self._documents = documents
        self._section = section
        self._plans: list[EpochPlan] = []
        self._ends: list[int] = []

    def epoch_of(self, index: int) -> float:
        """Passes over the data after `index` micro-batches."""
        if index == 0:
            return 0.0
        epoch, offset = self._place(index - 1)
        return epoch + (offset + 1) / len(self._plans[epoch])

    def tokens(self, index: int) -> int:
        """Real tokens of micro-batch `index`."""
        epoch, offset = self._place(index)
        return sum(len(self._documents[row]) for row in self._plans[epoch].groups[offset])

    def __getitem__(self, index: int) -> MicroBatch:
        epoch, offset = self._place(index)
        return self._plans[epoch][offset]

    @property
    def most_tokens(self) -> int:
        """Most tokens that any pass of any epoch can have."""
        lengths = [len(document) for document in self._documents]
        whole = sum(lengths) if self._section.pack else max(lengths)
        return min(whole, self._section.micro_batch_tokens)

    @property
    def most_supervised(self) -> int:
        """Most learned tokens in a pass of the first epoch."""
        groups = self.first_epoch.groups
        return max(sum(self._documents[row].supervised_tokens for row in group) for group in groups)

    @property
    def first_epoch(self) -> EpochPlan:
        """The plan of the first epoch."""
        self._place(0)
        return self._plans[0]

    def budget(self) -> Budget:
        """How many micro-batches and steps the recipe's epochs, max_steps and max_tokens allow.

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

    def _place(self, index: int) -> tuple[int, int]:
        """Epoch and number within it of micro-batch `index`; plans epochs as they are reached."""
        while not self._ends or index >= self._ends[-1]:
            section = self._section
            plan = epoch_batches(
                self._documents, section.micro_batch_tokens, section.pack, section.seed, len(self._plans)
            )
            self._plans.append(plan)
            self._ends.append((self._ends[-1] if self._ends else 0) + len(plan))
        epoch = bisect_right(self._ends, index)
        return epoch, index - (self._ends[epoch - 1] if epoch else 0)
