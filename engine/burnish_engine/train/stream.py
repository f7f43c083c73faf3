"""The endless sequence of micro-batches, and how much of it a run uses. A pure function of recipe and documents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.recipe import TrainSection
from burnish_engine.data.pack import EpochPlan, MicroBatch
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
        epoch = self._find(index - 1)
        start = self._ends[epoch - 1] if epoch else 0
        return epoch + (index - start) / len(self._plans[epoch])

    def tokens(self, index: int) -> int:
        """Real tokens of micro-batch `index`."""
        epoch = self._find(index)
        return self._plans[epoch].tokens(index - (self._ends[epoch - 1] if epoch else 0))

    def __getitem__(self, index: int) -> MicroBatch:
        epoch = self._find(index)
        return self._plans[epoch][index - (self._ends[epoch - 1] if epoch else 0)]

    @property
    def first_epoch(self) -> EpochPlan:
        """The plan of the first epoch."""
        self._find(0)
        return self._plans[0]

    def budget(self) -> Budget:
        """How many micro-batches and steps the recipe's epochs, max_steps and max_tokens allow.

        Raises:
            DataError: max_tokens does not allow even one micro-batch.
        """
        section, per_epoch = self._section, len(self.first_epoch)
        count = math.ceil(section.epochs * per_epoch)
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

    def _find(self, index: int) -> int:
        while not self._ends or index >= self._ends[-1]:
            section = self._section
            plan = EpochPlan(
                self._documents,
                budget=section.micro_batch_tokens,
                pack=section.pack,
                seed=section.seed,
                epoch=len(self._plans),
            )
            self._plans.append(plan)
            self._ends.append((self._ends[-1] if self._ends else 0) + len(plan))
        return next(epoch for epoch, end in enumerate(self._ends) if index < end)
