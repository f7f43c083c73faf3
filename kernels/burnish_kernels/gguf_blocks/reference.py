"""Decoding of GGUF's blocks in plain PyTorch: the definition of the kernel's result, and the path without a GPU.

Values are those of `gguf.quants.dequantize` bit for bit: scales and codes are multiplied in fp32, offsets are added
after the product is rounded. Source: `dequantize_row_*` of ggml-quants.c (llama.cpp).
"""

from __future__ import annotations

import torch

from burnish_kernels.gguf_blocks.blocks import GgufBlocks
from burnish_kernels.gguf_blocks.types import BLOCK_TYPES, CODEBOOK, BlockType

_VALUES = 1 << 22  # decoded at a time


def dequantize(weight: GgufBlocks, out: torch.Tensor) -> torch.Tensor:
    """Write the weight's values `[N, K]`, rounded once to the type of `out`, some rows at a time."""
    rows, columns = weight.shape
    step = max(1, _VALUES // columns)
    for first in range(0, rows, step):
        out[first : first + step] = values(weight.data[first : first + step], weight.kind)
    return out


def values(data: torch.Tensor, kind: str) -> torch.Tensor:
    """Return the values `[N, K]` fp32 of rows of blocks `[N, bytes]`."""
    own = BLOCK_TYPES[kind]
    blocks = data.reshape(-1, own.bytes)
    codes = _codes(blocks, kind).reshape(len(blocks), own.values // own.group, own.group)
    scale, offset = _scales(blocks, kind)
    found = scale[..., None] * codes
    if offset is not None:
        found += offset[..., None]
    return found.reshape(len(data), -1)


def _codes(blocks: torch.Tensor, kind: str) -> torch.Tensor:
    """Return the numbers `[blocks, values]` fp32 that scales are multiplied with."""
    own = BLOCK_TYPES[kind]
    if own.form == "bytes":
        return blocks[:, own.low :].contiguous().view(torch.int8).float()
    half = {"K": 32, "Q6_K": 64}.get(own.form, 16)  # distance of the two values whose low bits share a byte
    low = blocks[:, own.low : own.low + own.values // 2].reshape(len(blocks), -1, 1, half)
    codes = torch.cat([low & 15, low >> 4], dim=2).reshape(len(blocks), -1)
    if own.codebook:
        return torch.tensor(CODEBOOK, dtype=torch.float32, device=blocks.device)[codes.int()]
    if own.high >= 0:
        codes = codes | _high_bits(blocks, own) << 4
    return codes.float() - own.center


def _high_bits(blocks: torch.Tensor, own: BlockType) -> torch.Tensor:
    """Return the bits above the lowest four, `[blocks, values]`."""
    if own.form == "Q6_K":  # byte i of 32 holds those of values i, i + 32, i + 64 and i + 96 of a half block
        parts = blocks[:, own.high : own.high + 64].reshape(-1, 2, 32, 1)
        return _bits(parts, 4, 2).transpose(2, 3).flatten(1)
    bits = _bits(blocks[:, own.high : own.high + own.values // 8, None], 8, 1)
    return (bits.transpose(1, 2) if own.form == "K" else bits).flatten(1)  # bit s of byte i is that of value 32 s + i


def _bits(data: torch.Tensor, count: int, width: int) -> torch.Tensor:
    """Split bytes `[..., 1]` into `count` parts of `width` bits, lowest first."""
    shifts = torch.arange(0, count * width, width, dtype=torch.uint8, device=data.device)
    return data >> shifts & (1 << width) - 1


def _scales(blocks: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return scale and offset of each group, `[blocks, groups]` fp32; None where there are no offsets."""
    own = BLOCK_TYPES[kind]
    if own.form == "Q6_K":
        return _half(blocks, 208) * blocks[:, 192:208].contiguous().view(torch.int8).float(), None
    scale = _half(blocks, 0)
    if own.form == "IQ4_XS":
        low = _bits(blocks[:, 4:8, None], 2, 4).flatten(1)
        high = _bits(blocks[:, 2:4, None], 4, 2).flatten(1)
        return scale * ((low | high << 4).float() - 32.0), None
    if own.form == "K":
        factors, least = _six_bits(blocks[:, 4:16])
        return scale * factors, -(_half(blocks, 2) * least)
    return scale, _half(blocks, 2) if own.offset else None


def _half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """Return the fp16 number at an offset of each block, `[blocks, 1]` fp32."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _six_bits(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Unpack the eight scales and eight offsets of K-quants, `[blocks, 8]` fp32 each, from their twelve bytes."""
    first, second, rest = packed.split(4, dim=1)
    scales = torch.cat([first & 63, rest & 15 | first >> 2 & 48], dim=1)
    least = torch.cat([second & 63, rest >> 4 | second >> 2 & 48], dim=1)
    return scales.float(), least.float()
