"""Four-bit weights in Triton: the decoding that products do on the fly, and the unpacking of a group in MXFP4.

Both give the same bits, level times scale in fp32, rounded once; and so does `nf4.kernel`, which unpacks groups in NF4.
Levels of NF4 are found by a tree of selects on the nibble's bits; those of MXFP4 are made by placing the bits: a
nibble's exponent and mantissa at the top of a float's are the value times 2^-126. Launchers assert and never allocate.

Shapes: E experts, N rows and K columns of one expert's weight. Offsets are int64 between experts and int32 inside one.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.moe_unpack.stacks import Mxfp4Experts, Nf4Experts
from burnish_kernels.nf4.reference import NESTED_BLOCK

ROWS, COLUMNS, WARPS = 16, 256, 4  # tile of a program that unpacks
SCALES = 1024  # scales of a program

_TWO_126 = tl.constexpr(2.0**126)


@triton.jit
def _nf4_level(nibble):
    """Return the levels of `nf4.reference.LEVELS`: the nibble's bits walk down a tree."""
    one = (nibble & 1) != 0
    two = (nibble & 2) != 0
    four = (nibble & 4) != 0
    low_0 = tl.where(one, -0.6961928009986877, -1.0)
    low_2 = tl.where(one, -0.39491748809814453, -0.5250730514526367)
    low_4 = tl.where(one, -0.18477343022823334, -0.28444138169288635)
    low_6 = tl.where(one, 0.0, -0.09105003625154495)
    high_0 = tl.where(one, 0.16093020141124725, 0.07958029955625534)
    high_2 = tl.where(one, 0.33791524171829224, 0.24611230194568634)
    high_4 = tl.where(one, 0.5626170039176941, 0.44070982933044434)
    high_6 = tl.where(one, 1.0, 0.7229568362236023)
    low = tl.where(four, tl.where(two, low_6, low_4), tl.where(two, low_2, low_0))
    high = tl.where(four, tl.where(two, high_6, high_4), tl.where(two, high_2, high_0))
    return tl.where((nibble & 8) != 0, high, low)


@triton.jit
def _mxfp4_level(nibble):
    bits = ((nibble & 7) << 22) | ((nibble & 8) << 28)
    return bits.to(tl.float32, bitcast=True) * _TWO_126


@triton.jit
def load_scales(
    scale_ptr,  # [N, K / GROUP] of one expert: fp32 for NF4, uint8 exponents for MXFP4
    row,
    own,
    column,
    K,
    STORAGE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Return the scales of a tile's rows, `[ROWS, COLUMNS / GROUP]` fp32; 0 outside.

    Args:
        scale_ptr: pointer to an expert's scales.
        row: rows of the tile `[ROWS]`.
        own: whether each row exists `[ROWS]`.
        column: first column, a multiple of GROUP.
        K: columns of the weight.
        STORAGE: "nf4" or "mxfp4".
        COLUMNS: columns of the tile.
    """
    GROUP: tl.constexpr = 64 if STORAGE == "nf4" else 32
    block = column // GROUP + tl.arange(0, COLUMNS // GROUP)
    inside = own[:, None] & (block < K // GROUP)[None, :]
    scale = tl.load(scale_ptr + row[:, None] * (K // GROUP) + block[None, :], mask=inside, other=0)
    if STORAGE == "mxfp4":
        bits = scale.to(tl.int32)
        bits = tl.where(bits == 0, 1 << 22, bits << 23)  # 2^-127 has no exponent of its own
        scale = bits.to(tl.float32, bitcast=True)
    return scale


@triton.jit
def decode_tile(
    packed_ptr,  # [N, K / 2] uint8 of one expert
    scale,
    row,
    own,
    column,
    K,
    STORAGE: tl.constexpr,
    TYPE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Return a tile of an expert's weight `[ROWS, COLUMNS]` of type TYPE; 0 outside.

    Args:
        packed_ptr: pointer to an expert's bytes.
        scale: scales from `load_scales`.
        row: same as there.
        own: same as there.
        column: same as there.
        K: same as there.
        STORAGE: "nf4" or "mxfp4".
        TYPE: type of the result.
        ROWS: rows of the tile.
        COLUMNS: columns of the tile.
    """
    GROUP: tl.constexpr = 64 if STORAGE == "nf4" else 32
    block = tl.arange(0, COLUMNS // GROUP)
    byte = tl.arange(0, GROUP // 2)
    inside = own[:, None, None] & (column + block * GROUP < K)[None, :, None]
    at = row[:, None, None] * (K // 2) + column // 2 + block[None, :, None] * (GROUP // 2) + byte[None, None, :]
    bits = tl.load(packed_ptr + at, mask=inside, other=0).to(tl.int32)
    if STORAGE == "nf4":
        level = tl.join(_nf4_level(bits >> 4), _nf4_level(bits & 15))
    else:
        level = tl.join(_mxfp4_level(bits & 15), _mxfp4_level(bits >> 4))
    return tl.reshape((level * scale[:, :, None, None]).to(TYPE), [ROWS, COLUMNS])


@triton.jit(do_not_specialize=["first"])
def nf4_scales_kernel(
    absmax_ptr,  # [E, blocks] uint8
    nested_ptr,  # [E, nested] fp32
    code_ptr,  # [256] fp32
    offset_ptr,  # [E] fp32
    out_ptr,  # [count, blocks] fp32
    first,
    blocks,
    nested,
    NESTED: tl.constexpr,
    SCALES: tl.constexpr,
):
    """Dequantize some scales of one expert; compiled without fused multiply-add, as in `nf4.kernel`."""
    expert = (first + tl.program_id(0)).to(tl.int64)
    block = tl.program_id(1) * SCALES + tl.arange(0, SCALES)
    inside = block < blocks
    level = tl.load(code_ptr + tl.load(absmax_ptr + expert * blocks + block, mask=inside, other=0).to(tl.int32))
    scale = level * tl.load(nested_ptr + expert * nested + block // NESTED, mask=inside, other=0.0)
    scale = scale + tl.load(offset_ptr + expert)
    tl.store(out_ptr + tl.program_id(0).to(tl.int64) * blocks + block, scale, mask=inside)


@triton.jit(do_not_specialize=["first"])
def unpack_mxfp4_kernel(
    packed_ptr,  # [E, N, K / 2] uint8
    scale_ptr,  # [E, N, K / 32] uint8
    out_ptr,  # [count, N, K]
    first,
    N,
    K,
    out_stride,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Unpack one tile of one expert."""
    place = tl.program_id(1).to(tl.int64)
    columns = tl.cdiv(K, COLUMNS)
    row = (tl.program_id(0) // columns) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % columns) * COLUMNS
    own = row < N
    scale_ptr += (first + place) * N * K // 32
    scale = load_scales(scale_ptr, row, own, column, K, "mxfp4", COLUMNS)
    packed_ptr += (first + place) * N * K // 2
    tile = decode_tile(packed_ptr, scale, row, own, column, K, "mxfp4", out_ptr.dtype.element_ty, ROWS, COLUMNS)
    at = column + tl.arange(0, COLUMNS)
    inside = own[:, None] & (at < K)[None, :]
    tl.store(out_ptr + place * out_stride + row[:, None] * K + at[None, :], tile, mask=inside)


def launch_nf4_scales(stack: Nf4Experts, first: int, out_Gb: torch.Tensor) -> None:
    """Fill `out_Gb` with the scales of experts from `first` on."""
    assert stack.nested_absmax is not None
    count, blocks = out_Gb.shape
    assert stack.absmax.shape == (stack.experts, blocks)
    nf4_scales_kernel[(count, triton.cdiv(blocks, SCALES))](
        absmax_ptr=stack.absmax,
        nested_ptr=stack.nested_absmax,
        code_ptr=stack.code256,
        offset_ptr=stack.offset,
        out_ptr=out_Gb,
        first=first,
        blocks=blocks,
        nested=stack.nested_absmax.shape[1],
        NESTED=NESTED_BLOCK,
        SCALES=SCALES,
        num_warps=WARPS,
        enable_fp_fusion=False,
    )


def launch_unpack_mxfp4(stack: Mxfp4Experts, first: int, out_GNK: torch.Tensor) -> None:
    """Fill `out_GNK` with experts from `first` on."""
    count, rows, columns = out_GNK.shape
    assert (rows, columns) == stack.shape
    assert out_GNK.stride()[1:] == (columns, 1)
    unpack_mxfp4_kernel[(triton.cdiv(rows, ROWS) * triton.cdiv(columns, COLUMNS), count)](
        packed_ptr=stack.blocks,
        scale_ptr=stack.scales,
        out_ptr=out_GNK,
        first=first,
        N=rows,
        K=columns,
        out_stride=out_GNK.stride(0),
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=WARPS,
    )
