"""Tiles of a projection with NF4 weights on few tokens. Loads no Triton."""

from __future__ import annotations

from functools import cache
from math import gcd

from burnish_kernels.decode_linear.config import MOST_ROWS, MOST_SPLITS, NARROW, DecodeConfig

BLOCK_K = 64
"""Inputs of a step: one block of NF4. More need more registers than a fourth of a multiprocessor has."""
START_STEPS = 6
"""Steps of a program's loop that its start takes as long as; each eight tokens add one, for sums that are shared."""
FULL = 3
"""Programs that a multiprocessor runs at once before more of them take longer."""


def padded(rows: int) -> int:
    """Return the tokens that matrix units multiply."""
    return max(16, 1 << (rows - 1).bit_length())


def is_read_from_registers(rows: int, capability: int | None) -> bool:
    """Return whether matrix units read weights from registers.

    On compute capability 9.0, from 64 tokens on, they read shared memory, where Triton 3.6 does not make them wait for
    weights that were decoded: 18 of 40 products were wrong on an H200.
    """
    return padded(rows) < 64 or (capability is not None and not 90 <= capability < 120)


@cache
def choose(
    rows: int, edges: tuple[int, ...], outputs: int, inputs: int, *, capability: int | None, processors: int
) -> DecodeConfig | None:
    """Choose sizes by counted instructions, which decoding is bound by: a program decodes its weights for all tokens.

    Args:
        rows: number of tokens.
        edges: outputs at which an adapter or a part of the weight begins or ends, but the last.
        outputs: output features.
        inputs: input features.
        capability: compute capability, such as 90; None: Triton's interpreter.
        processors: multiprocessors of the device.

    Returns:
        Sizes; None where this is not for so many tokens: where matrix units do not read weights from registers, or have
        every warp decode all weights of a program that has no more outputs than tokens.
    """
    unit = gcd(*edges)
    block_n = next(size for size in (128, 64, NARROW) if unit % size == 0)
    if rows > MOST_ROWS or padded(rows) >= block_n or not is_read_from_registers(rows, capability):
        return None
    tiles, steps = -(-outputs // block_n), -(-inputs // BLOCK_K)
    start = START_STEPS + rows // 8

    def time(splits: int) -> int:
        return max(FULL, -(-tiles * splits // processors)) * (-(-steps // splits) + start)

    splits = min(range(1, max(1, min(MOST_SPLITS, steps // 2)) + 1), key=time)
    return DecodeConfig(block_n, BLOCK_K, splits, 8 if rows > 64 else 4, 4 if rows <= 32 else 3)
