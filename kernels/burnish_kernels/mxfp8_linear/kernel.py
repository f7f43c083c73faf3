"""The MXFP8 product in Triton, and the quantization of rows to it.

`tl.dot_scaled` becomes one instruction on compute capability 12.0 and is decoded to bf16 before the product on 8.9 and
9.0, with the same numbers. Triton's interpreter has neither it nor E4M3, so there bytes are decoded to fp32. Launchers
assert and never allocate. Row offsets are int64.

Shapes: T tokens, K columns of the reduction, N outputs, R ranks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.adapter_arguments import adapter_arguments
from burnish_kernels.dispatch import interpreted
from burnish_kernels.eight_bit_linear.kernel import add_adapter, tile_at
from burnish_kernels.eight_bit_linear.quantize.kernel import kernel_codes, operand, to_e4m3
from burnish_kernels.eight_bit_linear.rows import LARGEST
from burnish_kernels.eight_bit_linear.tiles import EightBitTile, rank_block
from burnish_kernels.mxfp8_linear import reference
from burnish_kernels.mxfp8_linear.blocks import BLOCK, MxRows, MxWeight

ROWS, COLUMNS, QUANTIZE_WARPS = 8, 256, 4  # tile of a program that quantizes

_BLOCK = tl.constexpr(BLOCK)
_LARGEST = tl.constexpr(LARGEST)
_ONE = tl.constexpr(reference.ONE)
_SMALLEST = tl.constexpr(reference.SMALLEST)
_NAN = tl.constexpr(reference.NAN)


@triton.jit
def block_scale(largest):
    """Return the exponent of blocks whose largest magnitudes are given, and the reciprocal of their power of two.

    NaN in a block is no magnitude here: its own code is NaN.
    """
    bits = tl.div_rn(largest, _LARGEST).to(tl.int32, bitcast=True)
    scale = (bits >> 23) + tl.where((bits & 0x7FFFFF) != 0, 1, 0)
    scale = tl.where(largest == 0.0, _ONE, tl.maximum(scale, _SMALLEST))
    inverse = (tl.maximum(-scale + 2 * _ONE, 0) << 23).to(tl.float32, bitcast=True)
    return scale, tl.where(scale == _NAN, float("nan"), inverse)


@triton.jit
def _decoded(codes, scale, INTERPRETED: tl.constexpr):
    """Return the values `[A, K]` of codes `[A, K]` and exponents `[A, K / 32]`, fp32. In the interpreter only."""
    power = (scale.to(tl.int32) << 23).to(tl.float32, bitcast=True)
    power = tl.where(scale == 0, 2.0**-127, power)
    power = tl.where(scale == _NAN, float("nan"), power)
    ROWS: tl.constexpr = codes.shape[0]
    K: tl.constexpr = codes.shape[1]
    grouped = tl.reshape(operand(codes, INTERPRETED), [ROWS, K // _BLOCK, _BLOCK]) * power[:, :, None]
    return tl.reshape(grouped, [ROWS, K])


@triton.jit(do_not_specialize=["T"])
def quantize_mx_rows_kernel(
    x_ptr,  # [T, K]
    codes_ptr,  # [T, K] E4M3, bytes in the interpreter
    scale_ptr,  # [T, K / 32] uint8
    T,
    K,
    x_stride,
    codes_stride,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Quantize one tile."""
    column_tiles = tl.cdiv(K, COLUMNS)
    row = tl.program_id(0) // column_tiles * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(0) % column_tiles * COLUMNS
    column = first + tl.arange(0, COLUMNS)
    far = row.to(tl.int64)[:, None]
    inside = (row < T)[:, None] & (column < K)[None, :]
    x = tl.load(x_ptr + far * x_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    grouped = tl.reshape(x, [ROWS, COLUMNS // _BLOCK, _BLOCK])
    scale, inverse = block_scale(tl.max(tl.abs(grouped), axis=2))
    codes = to_e4m3(tl.reshape(grouped * inverse[:, :, None], [ROWS, COLUMNS]), INTERPRETED)
    tl.store(codes_ptr + far * codes_stride + column[None, :], codes, mask=inside)
    block = first // _BLOCK + tl.arange(0, COLUMNS // _BLOCK)
    own = (row < T)[:, None] & (block < K // _BLOCK)[None, :]
    tl.store(scale_ptr + far * (K // _BLOCK) + block[None, :], scale.to(tl.uint8), mask=own)


@triton.jit
def _load_scales(x_scale_at, scale_at, block, scale_column, blocks, part):
    """Load the exponents of a turn's columns; those past the ends count 1."""
    inside = (part < blocks - block)[None, :]
    x_scale = tl.load(x_scale_at + block, mask=inside, other=_ONE)
    return x_scale, tl.load(scale_at + block * scale_column, mask=inside, other=_ONE)


# Strides of exponents count blocks, so that 16 divides them for some sizes of a weight and not for others.
@triton.jit(do_not_specialize=["T"], do_not_specialize_on_alignment=["scale_output", "scale_column"])
def mxfp8_linear_kernel(
    x_ptr,  # [T, K] E4M3, bytes in the interpreter
    x_scale_ptr,  # [T, K / 32] uint8
    weight_ptr,  # [N, K] as x
    scale_ptr,  # [N / 32, K / 32] uint8
    narrow_ptr,  # [T, R], read only with HAS_ADAPTER
    adapter_ptr,  # [N, R], read only with HAS_ADAPTER
    out_ptr,  # [T, N]
    T,
    N,
    K,
    R,
    x_stride,
    weight_stride,
    scale_output,
    scale_column,
    narrow_stride,
    adapter_output,
    adapter_rank,
    out_stride,
    HAS_ADAPTER: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_R: tl.constexpr,
    GROUP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Compute one tile; with EVEN no block of the reduction is partly filled."""
    row, block = tile_at(tl.program_id(0), tl.cdiv(T, BLOCK_T), tl.cdiv(N, BLOCK_N), GROUP)
    token = row * BLOCK_T + tl.arange(0, BLOCK_T)
    output = block * BLOCK_N + tl.arange(0, BLOCK_N)
    own_token, own_output = tl.minimum(token, T - 1), tl.minimum(output, N - 1)  # what exists is read, no more written
    lane, part = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_K // _BLOCK)
    x_at = x_ptr + own_token.to(tl.int64)[:, None] * x_stride + lane[None, :]
    weight_at = weight_ptr + own_output.to(tl.int64)[:, None] * weight_stride + lane[None, :]
    x_scale_at = x_scale_ptr + own_token.to(tl.int64)[:, None] * (K // _BLOCK) + part[None, :]
    scale_at = scale_ptr + (own_output // _BLOCK).to(tl.int64)[:, None] * scale_output + part[None, :] * scale_column
    sums = tl.zeros([BLOCK_T, BLOCK_N], tl.float32)
    # The compiler does not pipeline loads of single bytes: those of the next turn are on their way during this one's.
    x_scale, scale = _load_scales(x_scale_at, scale_at, 0, scale_column, K // _BLOCK, part)
    for column in range(0, K, BLOCK_K):
        if EVEN:
            x, weight = tl.load(x_at + column), tl.load(weight_at + column)
        else:
            inside = (lane < K - column)[None, :]
            x = tl.load(x_at + column, mask=inside, other=0.0)
            weight = tl.load(weight_at + column, mask=inside, other=0.0)
        next_block = (column + BLOCK_K) // _BLOCK
        next_x_scale, next_scale = _load_scales(x_scale_at, scale_at, next_block, scale_column, K // _BLOCK, part)
        if INTERPRETED:
            left, right = _decoded(x, x_scale, INTERPRETED), _decoded(weight, scale, INTERPRETED)
            sums = tl.dot(left, tl.trans(right), sums)
        else:
            sums = tl.dot_scaled(x, x_scale, "e4m3", tl.trans(weight), scale, "e4m3", sums)
        x_scale, scale = next_x_scale, next_scale
    if HAS_ADAPTER:
        sums = add_adapter(
            sums,
            (narrow_ptr, adapter_ptr, R, narrow_stride, adapter_output, adapter_rank),
            own_token,
            output,
            N,
            BLOCK_R,
            False,
            INTERPRETED,
        )
    out = out_ptr + token.to(tl.int64)[:, None] * out_stride + output[None, :]
    tl.store(out, sums.to(out_ptr.dtype.element_ty), mask=(token < T)[:, None] & (output < N)[None, :])


def launch_quantize_rows(x_TK: torch.Tensor, out: MxRows) -> None:
    """Fill codes and scales of `out`."""
    tokens, columns = x_TK.shape
    assert out.codes.shape == x_TK.shape
    assert columns % BLOCK == 0
    quantize_mx_rows_kernel[(triton.cdiv(tokens, ROWS) * triton.cdiv(columns, COLUMNS),)](
        x_ptr=x_TK,
        codes_ptr=kernel_codes(out.codes),
        scale_ptr=out.scale,
        T=tokens,
        K=columns,
        x_stride=x_TK.stride(0),
        codes_stride=out.codes.stride(0),
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        INTERPRETED=interpreted(),
        num_warps=QUANTIZE_WARPS,
    )


def launch_mxfp8_linear(
    *,
    x: MxRows,
    weight: MxWeight,
    narrow_TR: torch.Tensor | None,
    adapter_NR: torch.Tensor | None,
    out_TN: torch.Tensor,
    tile: EightBitTile,
) -> None:
    """Fill `out_TN`."""
    (tokens, columns), outputs = x.codes.shape, len(weight.codes)
    assert weight.codes.shape[1] == columns
    assert out_TN.shape == (tokens, outputs)
    mxfp8_linear_kernel[(triton.cdiv(tokens, tile.tokens) * triton.cdiv(outputs, tile.outputs),)](
        x_ptr=kernel_codes(x.codes),
        x_scale_ptr=x.scale,
        weight_ptr=kernel_codes(weight.codes),
        scale_ptr=weight.scale,
        out_ptr=out_TN,
        T=tokens,
        N=outputs,
        K=columns,
        x_stride=x.codes.stride(0),
        weight_stride=weight.codes.stride(0),
        scale_output=weight.scale.stride(0),
        scale_column=weight.scale.stride(1),
        **adapter_arguments(narrow_TR, adapter_NR, rank_block),
        out_stride=out_TN.stride(0),
        EVEN=columns % tile.reduction == 0,
        BLOCK_T=tile.tokens,
        BLOCK_N=tile.outputs,
        BLOCK_K=tile.reduction,
        GROUP=tile.group,
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
        maxnreg=tile.registers,
    )
