"""Tiles of the experts' narrow products: plain arithmetic on types and ranks, no Triton."""

from __future__ import annotations

import torch

from burnish_kernels.grouped_linear.tiles import rank_block
from burnish_kernels.lora_linear.tiles import Tile

OUTER_ROWS = 64
"""Rows that an outer product adds up at a time."""


def project_tile(dtype: torch.dtype, ranks: int) -> Tile:
    """Return the tile of a projection: a block of columns is 128 bytes wide. Without tensor cores 16 ranks fit."""
    return Tile(32, 16, 4, 2) if dtype == torch.float32 else Tile(64, rank_block(ranks), 4, 3)


def outer_tile(dtype: torch.dtype, ranks: int) -> Tile:
    """Return the tile of an outer product."""
    return Tile(64, 16, 4, 2) if dtype == torch.float32 else Tile(128, rank_block(ranks), 4, 3)
