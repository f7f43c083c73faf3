"""Tiles of a projection with weights in 8 bits on few tokens. Loads no Triton."""

from __future__ import annotations

from burnish_kernels.decode_linear.config import MOST_SPLITS, NARROW, DecodeConfig

MOST_ROWS = 8
"""Most tokens: with more, unpacked weights and ordinary products share the work of decoding."""
BLOCK_B = 16
"""Tokens that matrix units multiply, padding included."""
BLOCK_K = 128
"""Inputs of a step of the loop."""


def choose(outputs: int, inputs: int, *, processors: int) -> DecodeConfig:
    """Choose sizes so that every multiprocessor has a program; those of 16 bits for some tokens, not measured.

    Args:
        outputs: output features.
        inputs: input features.
        processors: multiprocessors of the device.
    """
    block_n = 2 * NARROW if outputs > NARROW * processors else NARROW
    splits = min(max(1, processors * block_n // outputs), max(1, inputs // BLOCK_K // 2), MOST_SPLITS)
    return DecodeConfig(block_n, BLOCK_K, splits, 4, 4)
