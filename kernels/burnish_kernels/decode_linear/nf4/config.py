"""Tiles of a projection with NF4 weights on few tokens. Loads no Triton."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from burnish_kernels.decode_linear.config import MOST_SPLITS, NARROW, DecodeConfig

START_STEPS = 3
"""Steps of a program's loop that its start and its end take as long as."""


def choose(rows: int, edges: Sequence[int], outputs: int, inputs: int, *, processors: int) -> DecodeConfig:
    """Choose sizes by counting instructions: a program decodes its weights once, for all tokens.

    Args:
        rows: number of tokens.
        edges: outputs at which an adapter or a part of the weight begins or ends, but the last.
        outputs: output features.
        inputs: input features.
        processors: multiprocessors of the device.
    """
    unit = gcd(*edges)
    wide = outputs >= 64 * processors and unit % 128 == 0
    block_n = 128 if wide else 64 if unit % 64 == 0 else NARROW
    block_k = 128
    tiles, steps = -(-outputs // block_n), -(-inputs // block_k)
    most = max(1, min(MOST_SPLITS, steps // 2))
    splits = min(range(1, most + 1), key=lambda count: _time(tiles * count, -(-steps // count), processors))
    return DecodeConfig(block_n, block_k, splits, 8 if rows > 64 else 4, 4 if rows <= 16 else 3)


def _time(programs: int, steps: int, processors: int) -> float:
    """Return steps that the busiest multiprocessor does one after another; two programs are the fewest that fill it."""
    return max(2, -(-programs // processors)) * (steps + START_STEPS)
