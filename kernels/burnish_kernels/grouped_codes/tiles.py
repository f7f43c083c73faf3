"""Tiles of the grouped product of codes; none is chosen by timing: see `eight_bit_linear.tiles`."""

from __future__ import annotations

import torch

from burnish_kernels.eight_bit_linear.tiles import HOPPERS, EightBitTile
from burnish_kernels.moe_sort.order import TILE_ROWS
from burnish_kernels.tuning import device_of

INTERPRETED = EightBitTile(16, 32, 16, 2, 4, 1, 2)
OTHERS = EightBitTile(TILE_ROWS, 128, 32, 2, 8, 4, registers=128)
"""Tile for RTX cards, that of `eight_bit_linear`. Not timed yet."""

HOPPER = EightBitTile(TILE_ROWS, 256, 128, 1, 8, 4, promoted=False)
"""Tile for Hopper, with the short accumulator as in `eight_bit_linear`'s: the fastest of those below on an H100."""

HOPPER_CANDIDATES = (
    HOPPER,
    EightBitTile(TILE_ROWS, 256, 128, 1, 8, 3, promoted=False),
    EightBitTile(TILE_ROWS, 256, 64, 1, 8, 4, promoted=False),
    EightBitTile(TILE_ROWS, 128, 128, 1, 8, 4, promoted=False),
    EightBitTile(TILE_ROWS, 128, 128, 1, 4, 4, promoted=False),
    EightBitTile(TILE_ROWS, 128, 128, 1, 8, 4),
)
"""Tiles that `python tests/bench grouped_codes` times on Hopper; `HOPPER` is one of them."""


def choose_tile(device: torch.device) -> EightBitTile:
    """Return the configuration for a device."""
    found = device_of(device)
    if found is None:
        return INTERPRETED
    return HOPPER if found.capability in HOPPERS else OTHERS
