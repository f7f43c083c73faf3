"""Tiles of the 8-bit product, as a table: another tile may sum in another order, so none is chosen by timing."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.eight_bit_linear.rows import CODES, INT8
from burnish_kernels.registry import CAPABILITIES, FP8_CAPABILITIES
from burnish_kernels.tuning import device_of

CAPABILITIES_OF = {CODES: FP8_CAPABILITIES, INT8: CAPABILITIES}
"""Compute capabilities that multiply codes, by their type."""

HOPPERS = (90,)
"""Compute capabilities with `wgmma`, whose accumulator of 8-bit products is short."""


@dataclass(frozen=True)
class EightBitTile:
    """The configuration of one product.

    Attributes:
        tokens: rows of a tile.
        outputs: outputs of a tile.
        reduction: columns multiplied at a time; after as many the sums pass from Hopper's short accumulator to fp32.
        parts: products of a turn of the loop. Where there is one, Triton's prefetching for compute capability 8.9 packs
            and unpacks bytes in registers, eight times for each matrix instruction.
        warps: warps of a program.
        stages: depth of the software pipeline.
        group: tiles of tokens that share their weights through the second-level cache.
        registers: most registers of a thread; None: the compiler decides.
        persistent: number of programs a multiprocessor, which stay and whose operands the copy engine moves; 0: there
            is a program for each tile. Hopper only.
        promoted: whether sums pass from Hopper's short accumulator (about 14 bits) to fp32 after each block of columns;
            that takes twice the registers, so tiles of 256 outputs have none for it.
    """

    tokens: int
    outputs: int
    reduction: int
    parts: int
    warps: int
    stages: int
    group: int = 8
    registers: int | None = None
    persistent: int = 0
    promoted: bool = True


@dataclass(frozen=True)
class RowsTile:
    """The configuration of a program that quantizes rows, reading them twice; its rows share what factors it reads.

    Attributes:
        rows: number of rows.
        columns: columns at a time.
        warps: warps of a program.
    """

    rows: int
    columns: int
    warps: int


@dataclass(frozen=True)
class RotatedTile:
    """The configuration of programs that rotate and quantize rows, each of which is read once and kept in registers.

    Attributes:
        rows: rows at a time.
        blocks: blocks of a row, a power of two.
        warps: warps of a program, each of which keeps 2,048 values.
        programs: number of programs a multiprocessor, which stay.
    """

    rows: int
    blocks: int
    warps: int
    programs: int


ROWS_TILES = (RowsTile(4, 1024, 8), RowsTile(2, 2048, 8), RowsTile(2, 4096, 16))
"""Tiles for rows of up to 4,096 columns, of up to 12,288 and of more: the rows of all programs that run at a time fit
the second-level cache, where they are read again. The result is the same with each."""

ROTATED_VALUES = 8192
"""Values of short rows that a program rotates at a time, 64 a thread of four warps."""

INTERPRETED = EightBitTile(32, 32, 16, 2, 4, 1, 2)
INTERPRETED_PERSISTENT = EightBitTile(32, 32, 16, 1, 4, 1, 2, persistent=1)
INTERPRETED_ROTATED = EightBitTile(32, 128, 16, 2, 4, 1, 2)
INTERPRETED_ROTATED_PERSISTENT = EightBitTile(32, 128, 16, 1, 4, 1, 2, persistent=1)
OTHERS = EightBitTile(128, 128, 32, 2, 8, 4, registers=128)
"""Tile for RTX cards, of which two programs fit a multiprocessor. Not timed yet."""

UNALIGNED = EightBitTile(128, 128, 128, 1, 8, 4)
"""Tile for Hopper where rows are not aligned as its copy engine wants them."""

HOPPER = EightBitTile(128, 256, 128, 1, 8, 3, group=16, persistent=1, promoted=False)
"""Tile for Hopper: 1,115 TFLOP/s on the stacks of a 4B on an H100, where `UNALIGNED` reaches 720 and cuBLAS 1,430."""

HOPPER_ROTATED = EightBitTile(128, 256, 128, 1, 8, 3, persistent=1, promoted=False)
"""Tile for Hopper and products that are rotated: over 6,144 to 19,456 columns up to 5 % faster than `HOPPER` (H100)."""

HOPPER_SHORT = EightBitTile(128, 128, 128, 1, 4, 3, persistent=2, promoted=False)
"""Tile for Hopper and products of INT8 over at most `SHORT` columns, there up to 18 % faster than `HOPPER` (H100)."""

SHORT = 3072
"""Most columns of a short sum; at 4,096 both tiles are equally fast, and beyond `HOPPER` is faster."""

HOPPER_CANDIDATES = (
    HOPPER_ROTATED,
    EightBitTile(128, 256, 128, 1, 8, 4, persistent=1, promoted=False),
    HOPPER,
    EightBitTile(256, 128, 128, 1, 8, 3, persistent=1, promoted=False),
    HOPPER_SHORT,
    EightBitTile(128, 128, 128, 1, 8, 4, persistent=1),
    UNALIGNED,
)
"""Tiles that `python tests/bench eight_bit_products` times on Hopper; those that are chosen are among them."""


def choose_tile(
    device: torch.device, codes: torch.dtype = CODES, columns: int = SHORT + 1, *, rotated: bool = False
) -> EightBitTile:
    """Return the configuration for a device.

    Args:
        device: device that multiplies.
        codes: type of the operands.
        columns: columns of the reduction.
        rotated: whether the result is rotated by blocks of outputs.
    """
    found = device_of(device)
    if found is None:
        return INTERPRETED_ROTATED if rotated else INTERPRETED
    if found.capability not in HOPPERS:
        return OTHERS
    if codes == INT8 and columns <= SHORT:
        return HOPPER_SHORT
    return HOPPER_ROTATED if rotated else HOPPER


def rows_tile(columns: int) -> RowsTile:
    """Return the configuration to quantize rows with."""
    return ROWS_TILES[(columns > 4096) + (columns > 12288)]


def rotated_tile(columns: int, rotation: int) -> RotatedTile:
    """Return the configuration to rotate rows by blocks of so many columns and quantize them."""
    padded = 1 << (columns - 1).bit_length()
    rows = max(ROTATED_VALUES // padded, 1)
    warps = max(rows * padded // 2048, 4)
    return RotatedTile(rows, padded // rotation, warps, programs=16 // warps)


def short_columns(tile: EightBitTile, codes: torch.dtype) -> int | None:
    """Return the columns that Hopper sums in its short accumulator; None: all, or INT8, whose sums are exact."""
    return tile.reduction if tile.promoted and codes == CODES else None


def use_eight_bit_kernels(tensor: torch.Tensor, codes: torch.dtype = CODES) -> bool:
    """Return whether Triton does the operation: in its interpreter, and on GPUs that multiply codes of the type."""
    found = device_of(tensor.device)
    return use_kernels(tensor) and (found is None or found.capability >= min(CAPABILITIES_OF[codes]))


def rank_block(ranks: int) -> int:
    """Return the adapter's columns multiplied at a time, 16 or 32; more would take registers of the wide product."""
    return 16 if ranks <= 16 else 32
