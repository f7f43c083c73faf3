"""Tiles of a projection on few tokens, and the adapter of each tile. Loads no Triton."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_kernels.lora_linear.stack import Stack

MOST_ROWS = 128
"""Most tokens: with more, unpacked weights and ordinary products are faster."""
MOST_RANKS = 64
"""Most padded ranks of one adapter: a program computes x Aᵀ of its own."""
MOST_SPLITS = 16
LARGE = 8 << 20
"""Weights of a matrix from which on cuBLAS is faster."""
NARROW = 32
"""Outputs of the narrowest program: adapters must begin and end at multiples."""


@dataclass(frozen=True)
class DecodeConfig:
    """Sizes of a program.

    Attributes:
        block_n: outputs of a program.
        block_k: inputs of a step of its loop.
        splits: programs that share the inputs.
        warps: warps of a program.
        stages: depth of the software pipeline.
        vector: whether one token is multiplied without matrix units, by programs that share no inputs.
    """

    block_n: int
    block_k: int
    splits: int
    warps: int = 4
    stages: int = 4
    vector: bool = False


def choose(rows: int, outputs: int, inputs: int, *, wide: bool, processors: int) -> DecodeConfig | None:
    """Choose sizes by measurements on an H200.

    Args:
        rows: number of tokens.
        outputs: output features.
        inputs: input features.
        wide: whether inputs have 32 bits.
        processors: multiprocessors of the device.

    Returns:
        Sizes; None where cuBLAS is faster: it shares the tokens among programs, which counts once matrices are large.
    """
    if rows == 1:
        return _one_token(outputs, inputs)
    if outputs * inputs > LARGE:
        return None
    block_n, block_k = 2 * NARROW if outputs > NARROW * processors else NARROW, 64 if wide else 128
    splits = min(max(1, processors * block_n // outputs), max(1, inputs // block_k // 2), MOST_SPLITS)
    return DecodeConfig(block_n, block_k, splits, 4, 4 if rows <= 64 and not wide else 2)


def _one_token(outputs: int, inputs: int) -> DecodeConfig:
    """Choose sizes for one token, by measurements of ten shapes of Qwen3 and Llama 3."""
    if outputs >= 2 * inputs and inputs < 4096:
        return DecodeConfig(4, 512, 1, 2, 1, vector=True)
    block_k = 1024 if 2048 < inputs < 12_288 and outputs < 2 * inputs else 2048
    return DecodeConfig(2, block_k, 1, 4, 1, vector=True)


def rank_spans(stack: Stack, block_n: int) -> tuple[tuple[int, int, int, int], ...] | None:
    """Return which outputs have which ranks: first output, its end, first rank, number of padded ranks.

    Args:
        stack: layout of the adapters.
        block_n: outputs of a program.

    Returns:
        The adapters; None where a program would need more than one, or an adapter is too wide.
    """
    spans = []
    for adapter, first in zip(stack.adapters, stack.firsts, strict=True):
        end = adapter.first_row + adapter.rows
        if adapter.first_row % block_n or (end % block_n and end != stack.N) or adapter.padded > MOST_RANKS:
            return None
        spans.append((adapter.first_row, end, first, adapter.padded))
    return tuple(spans)
