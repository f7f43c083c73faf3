"""Where the adapters of a stack of projections lie: in its rows, and in the buffer `[[W, sB], [A, 0]]`.

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
class Adapter:
    """One low-rank adapter of a stack.

    Attributes:
        first_row: First output feature of the stack that it adds to.
        rows: How many it adds to.
        rank: Its true rank.
        scale: alpha / r, or alpha / √r.
    """

    first_row: int
    rows: int
    rank: int
    scale: float

    @property
    def padded(self) -> int:
        """Columns it takes in the buffer; those past the rank hold zeros."""
        return -(self.rank // -RANK_UNIT) * RANK_UNIT

    @property
    def span(self) -> slice:
        """Its output features."""
        return slice(self.first_row, self.first_row + self.rows)


@dataclass(frozen=True)
class Stack:
    """Projections one under another that read the same input, with the adapters of some of them.

    Attributes:
        N: Output features of all.
        K: Input features.
        adapters: Top first, ranges do not overlap.
    """

    N: int
    K: int
    adapters: tuple[Adapter, ...] = ()

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
        """Padded ranks of all adapters."""
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
        """Whether the adapters ride in the frozen product (unless there is dropout)."""
        return self.R <= MAX_FUSED

    def fill(self, buffer: torch.Tensor, a_rK: Sequence[torch.Tensor], b_Nr: Sequence[torch.Tensor]) -> torch.Tensor:
        """Write the adapters into the buffer, B times its scale; everything else right of and under W becomes zero.

        Args:
            buffer: `[N + R, K + R]`; W stays as it is.
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
    """Dropout on the input of the adapters alone, an own mask for each.

    Attributes:
        probability: That an input is dropped.
        seed: One int64 on the device; change it every step.
        stream: The first adapter's stream; the others' follow. Distinct for each stack of the model.
    """

    probability: float
    seed: torch.Tensor
    stream: int
