"""Tiles of the MXFP8 product, as a table: another tile may sum in another order, so none is chosen by timing."""

from __future__ import annotations

import torch

from burnish_kernels.eight_bit_linear.tiles import EightBitTile
from burnish_kernels.tuning import device_of

INTERPRETED = EightBitTile(32, 32, 32, 1, 4, 1, 2)
COMPILED = EightBitTile(128, 128, 64, 1, 8, 3)
"""Tile for every GPU. Not timed yet."""


def choose_tile(device: torch.device) -> EightBitTile:
    """Return the configuration for a device."""
    return INTERPRETED if device_of(device) is None else COMPILED
