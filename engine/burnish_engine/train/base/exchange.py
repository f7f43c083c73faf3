"""The protocol by which a trainer shares the passes of its steps with trainers in other processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from burnish_engine.data.tokens.pack import MicroBatch

ERRORS = "exchange_error/"
"""Beginning of the names by which an optimizer's saved state holds what rounded exchanges have left out so far."""


@dataclass(frozen=True)
class GradientSlice:
    """Part of the flat gradient that is complete while the backward pass continues.

    Attributes:
        lowest: number of the lowest layer whose gradients are in it.
        start: first element.
        end: one past the last element.
    """

    lowest: int
    start: int
    end: int


class GradientExchange(Protocol):
    """Deals a step's passes to ranks, and adds up the gradients that they computed.

    A rank is one process with a device of its own. Every rank reads the same stream of micro-batches, so all know the
    counts of the whole step before it begins. `train.parallel` implements it.

    Attributes:
        slices: parts of the gradient that are exchanged one after another, those of the upper layers first; empty: it
            is exchanged as a whole.
    """

    slices: Sequence[GradientSlice]

    @property
    def overlaps(self) -> bool:
        """Whether slices may be exchanged while the step's last pass continues."""
        ...

    def deal(self, batches: Sequence[MicroBatch]) -> Sequence[int]:
        """Return the indices of the step's micro-batches that this rank computes, ascending; maybe none."""
        ...

    def pass_done(self, index: int, gradient: torch.Tensor, loss: torch.Tensor) -> None:
        """Take note of a pass whose gradient and loss are queued.

        Args:
            index: place of the micro-batch within the step.
            gradient: flat fp32 buffer that the step's gradients are added to.
            loss: fp32 buffer that the step's losses are added to.
        """
        ...

    def begin(self, passes: int, gradient: torch.Tensor, loss: torch.Tensor) -> None:
        """Wait until every rank has queued its passes, but for what can fail in none; `sum_slice` and `sum` follow.

        Arguments and errors as of `sum`.
        """
        ...

    def sum_slice(self, number: int, gradient: torch.Tensor) -> None:
        """Begin to add up a slice over all ranks; all work on it is queued. Slices come in order.

        Args:
            number: place of the slice in `slices`.
            gradient: flat fp32 buffer.
        """
        ...

    def sum(self, passes: int, gradient: torch.Tensor, loss: torch.Tensor) -> None:
        """Wait until every rank has queued its passes, then replace gradient and loss by the sums over all ranks.

        After `begin` and `sum_slice` it does the rest. Afterwards every rank holds the same bits.

        Args:
            passes: number of micro-batches in the step, over all ranks; 0 where there is nothing to add up.
            gradient: flat fp32 buffer with the sum of this rank's passes.
            loss: fp32 buffer of the same.

        Raises:
            MemoryError: A rank ran out of memory; nothing is exchanged, and every rank drops the step.
            BurnishError: A rank is gone.
        """
        ...

    def unite(self, weights: torch.Tensor) -> bool:
        """Replace weights by the leader's where ranks have unlike devices, whose updates round differently.

        Args:
            weights: flat fp32 buffer of the trained weights, after the update.

        Returns:
            Whether it did so, so that what is computed from them has to be written anew.

        Raises:
            BurnishError: A rank is gone.
        """
        ...

    def check(self) -> None:
        """Look for ranks that ended; called while the trainer waits for its device.

        Raises:
            BurnishError: A rank is gone, so that what the device waits for will never come.
        """
        ...
