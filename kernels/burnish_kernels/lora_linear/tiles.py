"""Divide the skinny products into programs: plain arithmetic, no Triton.

The choice depends on shapes and dtype alone, never on the device, so that equal inputs give equal bits everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

MAX_SEGMENTS = 3  # q, k and v
PROGRAMS = 256  # two on every multiprocessor of the largest cards, more or less
BLOCK_T = 64


class RankSegment(NamedTuple):
    """Columns of the large operand, and the columns of the small one that belong to them."""

    first: int
    columns: int
    first_rank: int
    ranks: int


class Tile(NamedTuple):
    """Block sizes and launch options of one product."""

    C: int
    R: int
    warps: int
    stages: int


class OuterPlan(NamedTuple):
    """The division of an outer product into programs.

    Attributes:
        segments: segments of the first kernel: those of the caller, or one with the ranks of all.
        splits: number of parts of the tokens.
        rows: rows of a part in the workspace `[splits, rows, C]`.
    """

    segments: tuple[RankSegment, ...]
    splits: int
    rows: int

    def rows_before(self, segments: Sequence[RankSegment]) -> list[int]:
        """Return the first row of each of the caller's segments in a part."""
        apart = len(self.segments) == len(segments)
        return [0 if apart else segment.first_rank - segments[0].first_rank for segment in segments]


def project_tile(dtype: torch.dtype, ranks: int) -> Tile:
    """Return the tile of xAᵀ: a block of columns is 128 bytes wide; 30 to 72 KB of shared memory."""
    if dtype == torch.float32:
        return Tile(C=32, R=16 if ranks <= 16 else 64, warps=4, stages=4)
    block = _rank_block(ranks)
    return Tile(C=64, R=block, warps=4, stages=4 if block <= 64 else 3)


def outer_tile(dtype: torch.dtype, ranks: int) -> Tile:
    """Return the tile of pᵀq: 20 to 74 KB of shared memory."""
    if dtype == torch.float32:
        return Tile(C=64, R=16 if ranks <= 16 else 64, warps=4, stages=2)
    block = _rank_block(ranks)
    return Tile(C=128 if block <= 64 else 64, R=block, warps=4, stages=3)


def project_splits(tokens: int, segments: Sequence[RankSegment], dtype: torch.dtype) -> int:
    """Return the parts of the columns that make the grid fill a device; at least four blocks each."""
    tile = project_tile(dtype, max(segment.ranks for segment in segments))
    programs = _blocks(tokens, BLOCK_T) * sum(_blocks(segment.ranks, tile.R) for segment in segments)
    blocks = _blocks(max(segment.columns for segment in segments), tile.C)
    return max(1, min(round(PROGRAMS / programs), blocks // 4))


def merged(segments: Sequence[RankSegment]) -> tuple[RankSegment, ...]:
    """Merge segments of the same columns into one with the ranks of all, so that the large operand is read once."""
    if any(segment[:2] != segments[0][:2] for segment in segments):
        return tuple(segments)
    return (segments[0]._replace(ranks=sum(segment.ranks for segment in segments)),)


def outer_plan(tokens: int, segments: Sequence[RankSegment], dtype: torch.dtype) -> OuterPlan:
    """Divide the tokens into parts so that the grid fills a device; at least four blocks each."""
    work = merged(segments)
    rows = max(segment.ranks for segment in work)
    tile = outer_tile(dtype, rows)
    programs = sum(_blocks(segment.columns, tile.C) for segment in work) * _blocks(rows, tile.R)
    return OuterPlan(work, max(1, min(round(PROGRAMS / programs), tokens // (4 * BLOCK_T))), rows)


def _rank_block(ranks: int) -> int:
    """Return the next power of two, 16 to 128."""
    return min(128, max(16, 1 << (ranks - 1).bit_length()))


def _blocks(size: int, block: int) -> int:
    return -(size // -block)
