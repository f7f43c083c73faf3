"""Decoding of GGUF's blocks in Triton: a program decodes groups of neighbors that share scale and offset.

Scale and offset are made once a group; then every value reads the byte of its low bits and, where codes have five or
six bits, that of its high ones. Compiled without fused multiply-add: offsets are added after the product is rounded.
The launcher asserts and never allocates. Offsets into blocks and result are int64.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from burnish_kernels.gguf_blocks.blocks import GgufBlocks
from burnish_kernels.gguf_blocks.types import BLOCK_TYPES, BlockType

VALUES, WARPS = 4096, 4  # values of a program


@triton.jit
def codebook():
    """Make the table of `blocks.CODEBOOK` in registers, which saves a kernel argument."""
    index = tl.arange(0, 16)
    table = tl.where(index == 0, -127.0, -104.0)
    table = tl.where(index == 2, -83.0, table)
    table = tl.where(index == 3, -65.0, table)
    table = tl.where(index == 4, -49.0, table)
    table = tl.where(index == 5, -35.0, table)
    table = tl.where(index == 6, -22.0, table)
    table = tl.where(index == 7, -10.0, table)
    table = tl.where(index == 8, 1.0, table)
    table = tl.where(index == 9, 13.0, table)
    table = tl.where(index == 10, 25.0, table)
    table = tl.where(index == 11, 38.0, table)
    table = tl.where(index == 12, 53.0, table)
    table = tl.where(index == 13, 69.0, table)
    table = tl.where(index == 14, 89.0, table)
    return tl.where(index == 15, 113.0, table)


@triton.jit
def load_byte(pointer, inside):
    """Return bytes as numbers from 0 to 255; 0 outside."""
    return tl.load(pointer, mask=inside, other=0).to(tl.int32)


@triton.jit
def load_signed(pointer, inside):
    """Return bytes as numbers from -128 to 127."""
    byte = load_byte(pointer, inside)
    return byte - ((byte & 128) << 1)


@triton.jit
def load_half(pointer, inside):
    """Return the fp16 numbers that pairs of bytes hold, fp32; no block but begins at an even address."""
    bits = load_byte(pointer, inside) | (load_byte(pointer + 1, inside) << 8)
    return bits.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def group_scales(block_ptr, group, inside, FORM: tl.constexpr):
    """Return scale and offset of groups, fp32; of types without offsets the second means nothing.

    Args:
        block_ptr: pointer to each group's block.
        group: number of each group in its block.
        inside: whether each group exists.
        FORM: same as in `BlockType`.
    """
    if FORM == "Q6_K":
        scale = load_half(block_ptr + 208, inside) * load_signed(block_ptr + 192 + group, inside).to(tl.float32)
        offset = scale
    elif FORM == "IQ4_XS":
        low = (load_byte(block_ptr + 4 + group // 2, inside) >> (4 * (group & 1))) & 15
        high = (load_byte(block_ptr + 2 + group // 4, inside) >> (2 * (group & 3))) & 3
        scale = load_half(block_ptr, inside) * ((low | (high << 4)) - 32).to(tl.float32)
        offset = scale
    elif FORM == "K":
        # Of groups from 4 on, the upper two bits are those of the bytes four before (`get_scale_min_k4`).
        late = group >= 4
        first = load_byte(block_ptr + 4 + (group & 3), inside)
        second = load_byte(block_ptr + 8 + (group & 3), inside)
        rest = load_byte(block_ptr + 12 + (group & 3), inside)
        factor = tl.where(late, (rest & 15) | ((first >> 2) & 48), first & 63)
        least = tl.where(late, (rest >> 4) | ((second >> 2) & 48), second & 63)
        scale = load_half(block_ptr, inside) * factor.to(tl.float32)
        offset = -(load_half(block_ptr + 2, inside) * least.to(tl.float32))
    else:
        scale = load_half(block_ptr, inside)
        offset = load_half(block_ptr + 2, inside)
    return scale, offset


@triton.jit
def load_codes(block_ptr, group, lane, inside, FORM: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr):
    """Return the codes of groups' values, int32, without the shift that centers them.

    Args:
        block_ptr: pointer to each value's block.
        group: number of each value's group in its block.
        lane: number of each value in its group.
        inside: whether each value exists.
        FORM: same as in `BlockType`.
        LOW: offset of the low bits in a block.
        HIGH: offset of the higher bits; -1: there are none.
    """
    if FORM == "bytes":
        code = load_signed(block_ptr + LOW + lane, inside)
    elif FORM == "Q6_K":  # of each half block: 64 bytes of four bits, 32 bytes of two
        half, within = group // 8, (group % 8) * 16 + lane
        code = (load_byte(block_ptr + half * 64 + within % 64, inside) >> (within // 64 * 4)) & 15
        code |= ((load_byte(block_ptr + HIGH + half * 32 + within % 32, inside) >> (within // 32 * 2)) & 3) << 4
    elif FORM == "K":
        code = (load_byte(block_ptr + LOW + group // 2 * 32 + lane, inside) >> ((group & 1) * 4)) & 15
        if HIGH >= 0:
            code |= ((load_byte(block_ptr + HIGH + lane, inside) >> group) & 1) << 4
    else:
        code = (load_byte(block_ptr + LOW + group * 16 + lane % 16, inside) >> (lane // 16 * 4)) & 15
        if HIGH >= 0:
            code |= ((load_byte(block_ptr + HIGH + lane // 8, inside) >> (lane % 8)) & 1) << 4
    return code


@triton.jit
def dequantize_kernel(
    data_ptr,  # [N, row_groups * GROUP / block's values * BYTES] uint8
    out_ptr,  # [N, row_groups * GROUP]
    group_count,
    row_groups,
    out_stride,
    FORM: tl.constexpr,
    BYTES: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    CENTER: tl.constexpr,
    OFFSET: tl.constexpr,
    CODEBOOK: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """Decode GROUPS groups of GROUP neighbors, of BLOCK_GROUPS groups a block."""
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    inside = group < group_count
    block = group // BLOCK_GROUPS
    own = (group - block * BLOCK_GROUPS).to(tl.int32)
    block_ptr = data_ptr + block * BYTES
    scale, offset = group_scales(block_ptr, own, inside, FORM)
    lane = tl.arange(0, GROUP)
    code = load_codes(block_ptr[:, None], own[:, None], lane[None, :], inside[:, None], FORM, LOW, HIGH)
    if CODEBOOK:
        level = tl.reshape(tl.gather(codebook(), tl.reshape(code, [GROUPS * GROUP]), 0), [GROUPS, GROUP])
    else:
        level = (code - CENTER).to(tl.float32)
    value = level * scale[:, None]
    if OFFSET:
        value = value + offset[:, None]
    row = group // row_groups
    at = row * out_stride + (group - row * row_groups) * GROUP
    tl.store(out_ptr + at[:, None] + lane[None, :], value.to(out_ptr.dtype.element_ty), mask=inside[:, None])


def constants(own: BlockType) -> dict[str, Any]:
    """Return the kernel's constants for a type."""
    return {
        "FORM": own.form,
        "BYTES": own.bytes,
        "BLOCK_GROUPS": own.values // own.group,
        "GROUP": own.group,
        "LOW": own.low,
        "HIGH": own.high,
        "CENTER": own.center,
        "OFFSET": own.offset,
        "CODEBOOK": own.codebook,
        "GROUPS": VALUES // own.group,
    }


def launch_dequantize(weight: GgufBlocks, out_NK: torch.Tensor) -> None:
    """Fill `out_NK` with the weight's values."""
    own, (rows, columns) = BLOCK_TYPES[weight.kind], weight.shape
    assert out_NK.shape == (rows, columns)
    assert out_NK.stride(1) == 1
    count = rows * columns // own.group
    dequantize_kernel[(triton.cdiv(count, VALUES // own.group),)](
        data_ptr=weight.data,
        out_ptr=out_NK,
        group_count=count,
        row_groups=columns // own.group,
        out_stride=out_NK.stride(0),
        **constants(own),
        num_warps=WARPS,
        enable_fp_fusion=False,
    )
