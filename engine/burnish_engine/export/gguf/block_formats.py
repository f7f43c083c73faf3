"""Unpack the integer codes inside quantized GGUF blocks, and pack them back beside their scales.

A block stores scales and, for each weight, a code; the weight is offset + scale * levels[code], with one scale and one
offset for each group of neighbors. Layouts: ggml-common.h and the dequantizers of ggml-quants.c (llama.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class BlockFormat:
    """Position of the codes inside a block."""

    weights: int  # number of weights in a block
    bytes: int  # size of a block, bytes
    group: int  # number of weights that share scale and offset
    levels: int  # number of codes
    low: int | None  # offset of the byte with the first code's low four bits; None where a code is a byte
    half: int = 16  # distance, in weights, of the two whose low bits share a byte
    high: int | None = None  # offset of the first byte of the higher bits; None where there are none


BLOCK_FORMATS: Final[dict[str, BlockFormat]] = {
    "Q4_0": BlockFormat(32, 18, 32, 16, low=2),
    "Q4_1": BlockFormat(32, 20, 32, 16, low=4),
    "Q5_0": BlockFormat(32, 22, 32, 32, low=6, high=2),
    "Q5_1": BlockFormat(32, 24, 32, 32, low=8, high=4),
    "Q8_0": BlockFormat(32, 34, 32, 256, low=None),
    "Q4_K": BlockFormat(256, 144, 32, 16, low=16, half=32),
    "Q5_K": BlockFormat(256, 176, 32, 32, low=48, half=32, high=16),
    "Q6_K": BlockFormat(256, 210, 16, 64, low=0, half=64, high=128),
    "IQ4_NL": BlockFormat(32, 18, 32, 16, low=2),
    "IQ4_XS": BlockFormat(256, 136, 32, 16, low=8),
}
"""GGUF types whose codes GPTQ can choose."""

_CODEBOOK: Final = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
_TWO_BITS: Final[Codes] = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 1, 4, 1)
_ONE = 8  # the code of level 1


@dataclass(frozen=True)
class Grid:
    """Values that the weights of a tensor can take."""

    scale: Floats  # factor of each group [rows, groups], fp32
    offset: Floats  # offset of each group [rows, groups], fp32
    levels: Floats  # numbers that codes stand for, ascending [codes], fp32
    group: int  # number of neighbors in a row that share scale and offset


def unpack(data: Codes, kind: str) -> Codes:
    """Unpack the codes of a tensor.

    Args:
        data: bytes of the tensor [rows, bytes of a row].
        kind: GGUF type, one of `BLOCK_FORMATS`.

    Returns:
        Codes [rows, columns]; those of Q8_0 are shifted by 128.
    """
    layout = BLOCK_FORMATS[kind]
    blocks = data.reshape(-1, layout.bytes)
    if layout.low is None:
        codes = blocks[:, 2:] ^ np.uint8(128)
    else:
        low = blocks[:, layout.low : layout.low + layout.weights // 2].reshape(len(blocks), -1, 1, layout.half)
        codes = np.concatenate([low & 15, low >> 4], axis=2).reshape(len(blocks), -1)
        if layout.high is not None:
            codes |= _read_high(blocks[:, layout.high :], kind, layout) << np.uint8(4)
    return np.ascontiguousarray(codes).reshape(len(data), -1)


def pack(codes: Codes, data: Codes, kind: str) -> Codes:
    """Replace the codes in a tensor's bytes.

    Args:
        codes: codes [rows, columns], as `unpack` gives them.
        data: bytes of the tensor [rows, bytes of a row]; their scales stay.
        kind: GGUF type, one of `BLOCK_FORMATS`.
    """
    layout = BLOCK_FORMATS[kind]
    blocks = data.reshape(-1, layout.bytes).copy()
    flat = codes.reshape(-1, layout.weights)
    if layout.low is None:
        blocks[:, 2:] = flat ^ np.uint8(128)
        return blocks.reshape(data.shape)
    pairs = (flat & 15).reshape(len(blocks), -1, 2, layout.half)
    low = pairs[:, :, 0] | pairs[:, :, 1] << np.uint8(4)
    blocks[:, layout.low : layout.low + layout.weights // 2] = low.reshape(len(blocks), -1)
    if layout.high is not None:
        _write_high(blocks[:, layout.high :], flat >> np.uint8(4), kind, layout)
    return blocks.reshape(data.shape)


def grid(data: Codes, kind: str) -> Grid:
    """Compute the values that a tensor's scales allow, by dequantizing two codes with the gguf library.

    Args:
        data: bytes of the tensor [rows, bytes of a row].
        kind: GGUF type, one of `BLOCK_FORMATS`.
    """
    layout = BLOCK_FORMATS[kind]
    if kind.startswith("IQ"):
        scale = _constant(data, kind, _ONE)
        return Grid(scale, np.zeros_like(scale), _CODEBOOK, layout.group)
    first, last = _constant(data, kind, 0), _constant(data, kind, layout.levels - 1)
    levels = np.arange(layout.levels, dtype=np.float32)
    return Grid((last - first) / np.float32(layout.levels - 1), first, levels, layout.group)


def dequantize(data: Codes, kind: str) -> Floats:
    """Dequantize weights [rows, columns] to fp32 with the gguf library."""
    from gguf import GGMLQuantizationType, quants

    values: Any = quants.dequantize(data, GGMLQuantizationType[kind])
    return np.asarray(values, dtype=np.float32).reshape(len(data), -1)


def _constant(data: Codes, kind: str, code: int) -> Floats:
    """Compute the value that one code stands for in each group."""
    layout = BLOCK_FORMATS[kind]
    codes = np.full((len(data), data.shape[1] // layout.bytes * layout.weights), code, dtype=np.uint8)
    return np.ascontiguousarray(dequantize(pack(codes, data, kind), kind)[:, :: layout.group])


def _read_high(part: Codes, kind: str, layout: BlockFormat) -> Codes:
    if kind == "Q6_K":  # two bits: byte i of 32 holds those of weights i, i + 32, i + 64 and i + 96 of a half block
        return (part[:, :64].reshape(-1, 2, 1, 32) >> _TWO_BITS & np.uint8(3)).reshape(len(part), -1)
    bits = np.unpackbits(part[:, : layout.weights // 8], axis=1, bitorder="little")
    if kind == "Q5_K":  # bit s of byte i belongs to weight 32 s + i
        return bits.reshape(-1, 32, 8).transpose(0, 2, 1).reshape(len(part), -1)
    return bits


def _write_high(part: Codes, high: Codes, kind: str, layout: BlockFormat) -> None:
    if kind == "Q6_K":
        part[:, :64] = np.bitwise_or.reduce(high.reshape(-1, 2, 4, 32) << _TWO_BITS, axis=2).reshape(len(part), -1)
        return
    if kind == "Q5_K":
        high = high.reshape(-1, 8, 32).transpose(0, 2, 1).reshape(len(part), -1)
    part[:, : layout.weights // 8] = np.packbits(high, axis=1, bitorder="little")
