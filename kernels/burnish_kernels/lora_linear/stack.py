"""The layout of a stack's adapters: in its rows, and in the buffer `[[W, sB], [A, 0]]`.

Shapes: N output features, K input features, R = sum of the ranks, each padded to a multiple of 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

RANK_UNIT = 16  # the matrix units' smallest tile: a rank of 1 costs as much as one of 16

# Past this many columns of ranks the zeros of the block-diagonal B cost more than the second product they save.
MAX_FUSED = 448


@dataclass(frozen=True)
class StackedAdapter:
    """One low-rank adapter of a stack.

    Attributes:
        first_row: first output feature of the stack that it adds to.
        rows: number of output features that it adds to.
        rank: true rank, without padding.
        scale: factor alpha / r, or alpha / √r.
    """

    first_row: int
    rows: int
    rank: int
    scale: float

    @property
    def padded(self) -> int:
        """Number of columns it takes in the buffer; those past the rank hold zeros."""
        return -(self.rank // -RANK_UNIT) * RANK_UNIT

    @property
    def span(self) -> slice:
        """Range of the output features that it adds to."""
        return slice(self.first_row, self.first_row + self.rows)


@dataclass(frozen=True)
class Stack:
    """Projections one under another that read the same input, with the adapters of some of them.

    Attributes:
        N: number of output features of all.
        K: number of input features.
        adapters: adapters, top first; their ranges do not overlap.
    """

    N: int
    K: int
    adapters: tuple[StackedAdapter, ...] = ()

    def __post_init__(self) -> None:
        if self.N < 1 or self.K < 1:
            raise ValueError(f"a projection has features, not {self.K} in and {self.N} out")
        end = 0
        for adapter in self.adapters:
            if adapter.first_row < end or adapter.rows < 1 or adapter.first_row + adapter.rows > self.N:
                raise ValueError(f"{adapter} does not follow the one before it, or leaves the {self.N} rows")
            if adapter.rank < 1:
                raise ValueError(f"{adapter} has no rank")
            end = adapter.first_row + adapter.rows

    @cached_property
    def R(self) -> int:
        """Sum of the padded ranks of all adapters."""
        return sum(adapter.padded for adapter in self.adapters)

    @property
    def firsts(self) -> tuple[int, ...]:
        """First of each adapter's R columns."""
        found, total = [], 0
        for adapter in self.adapters:
            found.append(total)
            total += adapter.padded
        return tuple(found)

    @property
    def buffer_shape(self) -> tuple[int, int]:
        """Rows and columns of `[[W, sB], [A, 0]]`."""
        return self.N + self.R, self.K + self.R

    @property
    def fused(self) -> bool:
        """Whether the adapters are computed within the frozen product (unless there is dropout)."""
        return self.R <= MAX_FUSED

    def fill(self, buffer: torch.Tensor, a_rK: Sequence[torch.Tensor], b_Nr: Sequence[torch.Tensor]) -> torch.Tensor:
        """Write the adapters into the buffer, B times its scale; all else right of and under W becomes zero.

        Args:
            buffer: matrix `[N + R, K + R]`; W stays as it is.
            a_rK: A of each adapter, `[r_i, K]`.
            b_Nr: B of each adapter, `[rows_i, r_i]`.
        """
        buffer[self.N :].zero_()
        buffer[: self.N, self.K :].zero_()
        for adapter, first, a, b in zip(self.adapters, self.firsts, a_rK, b_Nr, strict=True):
            buffer[self.N + first : self.N + first + adapter.rank, : self.K] = a
            columns = slice(self.K + first, self.K + first + adapter.rank)
            buffer[adapter.span, columns] = b * adapter.scale
        return buffer


@dataclass(frozen=True)
class Dropout:
    """Dropout on the input of the adapters alone, with a separate mask for each.

    Attributes:
        probability: probability that an input is dropped.
        seed: one int64 on the device; change it every step.
        stream: stream of the first adapter; the others' follow. Distinct for each stack of the model.
    """

    probability: float
    seed: torch.Tensor
    stream: int
