"""Tiles of the experts' narrow products: plain arithmetic on types and ranks, no Triton."""

from __future__ import annotations

from typing import NamedTuple

import torch

OUTER_ROWS = 64
"""Rows that an outer product adds up at a time."""


class SkinnyTile(NamedTuple):
    """Block sizes and launch options of one product."""

    C: int
    R: int
    warps: int
    stages: int


def project_tile(dtype: torch.dtype, ranks: int) -> SkinnyTile:
    """Return the tile of a projection: a block of columns is 128 bytes wide. Without tensor cores 16 ranks fit."""
    return SkinnyTile(32, 16, 4, 2) if dtype == torch.float32 else SkinnyTile(64, _rank_block(ranks), 4, 3)


def outer_tile(dtype: torch.dtype, ranks: int) -> SkinnyTile:
    """Return the tile of an outer product."""
    return SkinnyTile(64, 16, 4, 2) if dtype == torch.float32 else SkinnyTile(128, _rank_block(ranks), 4, 3)


def _rank_block(ranks: int) -> int:
    """Return the next power of two, 16 to 64."""
    return min(64, max(16, 1 << (ranks - 1).bit_length()))
