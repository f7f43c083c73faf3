"""Block sizes, warps and pipeline depths of the kernels, as data.

Every configuration stays within the 99 KB of shared memory that one program may have on RTX cards, but for heads of 256
and 512 on compute capability 9.0. Two families: compute capability 9.0 multiplies straight from shared memory, 64 rows
by four warps at a time; the others load registers first, and spread the warps over columns where the head is wider than
the tile is high. On GeForce cards products into fp32 run at half rate, so that there what is hidden by the diagonal
costs most, and tiles are kept low.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class KernelConfig:
    """The configuration of one kernel.

    Attributes:
        heads: Most query heads of one group that a program takes together; a group that this does not divide uses the
            largest common divisor. They share the keys, so that low tiles make high products.
        block: Rows of the inner loop: keys, or in `dkdv` queries times heads.
        warps: Warps of a program.
        stages: Depth of the software pipeline.
        registers: Most registers a thread, so that more programs fit a multiprocessor; 0: as the compiler likes.
        branch: 1: blocks that are visible as a whole are not masked, at the price of a branch.
    """

    heads: int
    block: int
    warps: int
    stages: int
    registers: int = 0
    branch: int = 0


@dataclass(frozen=True)
class AttentionConfig:
    """The configurations of the three kernels.

    Attributes:
        tile_rows: rows of a tile: queries in `forward` and `dq`, keys in `dkdv`.
        forward: configuration of the kernel for output and sums.
        dq: configuration of the kernel for the queries' gradient.
        dkdv: configuration of the kernel for the keys' and values' gradients.
    """

    tile_rows: int
    forward: KernelConfig
    dq: KernelConfig
    dkdv: KernelConfig


INTERPRETED = AttentionConfig(32, KernelConfig(2, 32, 4, 1), KernelConfig(2, 32, 4, 1, 0, 1), KernelConfig(2, 32, 4, 1))
"""Small configurations for Triton's interpreter, so that small tests have several tiles; with and without a branch."""

HOPPER = {
    (64, 1): AttentionConfig(
        64, KernelConfig(1, 64, 4, 3, 128, 1), KernelConfig(1, 64, 4, 2, 128, 1), KernelConfig(1, 64, 4, 3, 168)
    ),
    (64, 2): AttentionConfig(
        64, KernelConfig(2, 64, 8, 3, 128, 1), KernelConfig(1, 64, 4, 2, 128, 1), KernelConfig(4, 64, 4, 3, 168)
    ),
    (128, 1): AttentionConfig(
        64, KernelConfig(1, 32, 4, 3, 128, 1), KernelConfig(1, 32, 4, 2, 168, 1), KernelConfig(1, 32, 4, 3)
    ),
    (128, 2): AttentionConfig(
        64, KernelConfig(2, 32, 8, 3, 128, 1), KernelConfig(2, 32, 8, 2, 128, 1), KernelConfig(4, 32, 4, 3)
    ),
    (256, 1): AttentionConfig(64, KernelConfig(1, 32, 4, 2), KernelConfig(1, 16, 4, 2), KernelConfig(1, 32, 8, 2)),
    (256, 2): AttentionConfig(64, KernelConfig(2, 32, 8, 3), KernelConfig(2, 32, 8, 3), KernelConfig(4, 64, 8, 2)),
    (512, 1): AttentionConfig(32, KernelConfig(1, 32, 8, 1), KernelConfig(1, 16, 8, 1), KernelConfig(1, 16, 8, 1)),
    (512, 2): AttentionConfig(32, KernelConfig(1, 32, 8, 1), KernelConfig(1, 16, 8, 1), KernelConfig(2, 16, 8, 1)),
}
"""16-bit types on compute capability 9.0, by padded head size and by whether groups are even (2) or odd (1)."""

OTHERS = {
    (64, 1): AttentionConfig(64, KernelConfig(1, 64, 4, 2), KernelConfig(1, 32, 4, 2, 168), KernelConfig(1, 32, 4, 2)),
    (64, 2): AttentionConfig(
        64, KernelConfig(2, 32, 8, 3, 128), KernelConfig(1, 32, 4, 2, 168), KernelConfig(4, 32, 4, 2)
    ),
    (128, 1): AttentionConfig(64, KernelConfig(1, 32, 4, 2), KernelConfig(1, 32, 4, 2), KernelConfig(1, 64, 8, 2)),
    (128, 2): AttentionConfig(64, KernelConfig(2, 32, 8, 3), KernelConfig(2, 32, 8, 2), KernelConfig(4, 64, 8, 2)),
    (256, 1): AttentionConfig(32, KernelConfig(1, 32, 4, 2), KernelConfig(1, 32, 4, 2), KernelConfig(1, 32, 4, 2)),
    (256, 2): AttentionConfig(32, KernelConfig(1, 32, 4, 2), KernelConfig(1, 32, 4, 2), KernelConfig(2, 32, 4, 2)),
    (512, 1): AttentionConfig(16, KernelConfig(1, 32, 8, 1), KernelConfig(1, 16, 8, 1), KernelConfig(1, 16, 8, 1)),
    (512, 2): AttentionConfig(16, KernelConfig(2, 32, 8, 1), KernelConfig(2, 16, 8, 1), KernelConfig(2, 16, 8, 1)),
}
"""16-bit types on other GPUs."""

LOW = AttentionConfig(16, KernelConfig(4, 32, 8, 2), KernelConfig(2, 32, 4, 2), KernelConfig(2, 32, 4, 2))
"""16-bit types and heads of up to 256, where the model's widest heads need tiles of 16 rows."""

FULL = {
    64: AttentionConfig(32, KernelConfig(1, 16, 4, 1), KernelConfig(1, 16, 4, 1), KernelConfig(1, 16, 4, 1)),
    128: AttentionConfig(16, KernelConfig(1, 16, 4, 1), KernelConfig(1, 16, 8, 1), KernelConfig(1, 16, 4, 1)),
    256: AttentionConfig(16, KernelConfig(1, 16, 8, 1), KernelConfig(1, 16, 8, 1), KernelConfig(1, 16, 8, 1)),
    512: AttentionConfig(8, KernelConfig(1, 16, 8, 1), KernelConfig(1, 16, 4, 1), KernelConfig(1, 16, 8, 1)),
}
"""fp32, without tensor cores."""


def choose_config(
    head_dim: int, dtype: torch.dtype, capability: int | None, group: int = 1, tile_rows: int | None = None
) -> AttentionConfig:
    """Return the configuration before tuning.

    Args:
        head_dim: size of a head.
        dtype: dtype of queries, keys and values.
        capability: compute capability, such as 89; None: Triton's interpreter.
        group: number of query heads that share a key head. The height of the tiles does not depend on it.
        tile_rows: rows that a tile has to have, as in a model whose heads differ in size; None: those of this size.

    Raises:
        ValueError: No configuration has tiles of this height.
    """
    if capability is None:
        return INTERPRETED
    width = padded(head_dim)
    if dtype == torch.float32:
        return _as_high([FULL[one] for one in FULL if one >= width], tile_rows)
    table, parity = HOPPER if 90 <= capability < 120 else OTHERS, math.gcd(group, 2)
    usual = [table[width, parity], OTHERS[width, parity], *([LOW] if width <= 256 else [])]
    config = _as_high(usual, tile_rows)
    return replace(config, dkdv=replace(config.dkdv, heads=math.gcd(group, config.dkdv.heads)))


def _as_high(configs: Sequence[AttentionConfig], tile_rows: int | None) -> AttentionConfig:
    """Return the first configuration with tiles of a height."""
    found = next((one for one in configs if tile_rows in {None, one.tile_rows}), None)
    if found is None:
        raise ValueError(f"no configuration has tiles of {tile_rows} rows, but of {configs[0].tile_rows}")
    return found


def padded(head_dim: int) -> int:
    """Return the head size that configurations are listed under."""
    return next(width for width in (64, 128, 256, 512) if head_dim <= width)
