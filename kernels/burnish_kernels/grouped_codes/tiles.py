"""Tiles of the grouped product of codes. Their height is the order's; none is chosen by timing: see `fp8_linear.tiles`."""

from __future__ import annotations

import torch

from burnish_kernels.fp8_linear.tiles import HOPPERS, Fp8Tile
from burnish_kernels.moe_sort.order import TILE_ROWS
from burnish_kernels.tuning import device_of

INTERPRETED = Fp8Tile(16, 32, 16, 2, 4, 1, 2)
OTHERS = Fp8Tile(TILE_ROWS, 128, 32, 2, 8, 4, registers=128)
"""Tile for RTX cards, that of `fp8_linear`. Not timed yet."""

HOPPER = Fp8Tile(TILE_ROWS, 256, 128, 1, 8, 3, promoted=False)
"""Tile for Hopper: as many bytes as the fastest in 16 bits, and the short accumulator as in `fp8_linear`'s."""

HOPPER_CANDIDATES = (
    HOPPER,
    Fp8Tile(TILE_ROWS, 256, 128, 1, 8, 4, promoted=False),
    Fp8Tile(TILE_ROWS, 256, 64, 1, 8, 4, promoted=False),
    Fp8Tile(TILE_ROWS, 128, 128, 1, 8, 4, promoted=False),
    Fp8Tile(TILE_ROWS, 128, 128, 1, 4, 4, promoted=False),
    Fp8Tile(TILE_ROWS, 128, 128, 1, 8, 4),
)
"""Tiles that `tests/bench/grouped_codes.py` times on Hopper; `HOPPER` is one of them."""


def choose_tile(device: torch.device) -> Fp8Tile:
    """Return the configuration for a device."""
    found = device_of(device)
    if found is None:
        return INTERPRETED
    return HOPPER if found.capability in HOPPERS else OTHERS
