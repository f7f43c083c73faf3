"""Tiles of the MXFP8 product, as a table: another tile may sum in another order, so none is chosen by timing."""

from __future__ import annotations

import torch

from burnish_kernels.fp8_linear.tiles import Fp8Tile
from burnish_kernels.tuning import device_of

INTERPRETED = Fp8Tile(32, 32, 32, 1, 4, 1, 2)
COMPILED = Fp8Tile(128, 128, 64, 1, 8, 3)
"""Tile for every GPU. Not timed yet."""


def choose_tile(device: torch.device) -> Fp8Tile:
    """Return the configuration for a device."""
    return INTERPRETED if device_of(device) is None else COMPILED
