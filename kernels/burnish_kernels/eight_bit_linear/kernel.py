"""The 8-bit product in Triton; the adapter's 16-bit product follows in the same fp32 accumulator, after the scales.

INT8 operands add up exactly in int32 before.

Launchers assert and never allocate. Row offsets are int64.

Shapes: T tokens, K columns of the reduction, N outputs, R ranks.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from burnish_kernels.dispatch import interpreted
from burnish_kernels.eight_bit_linear.quantize.kernel import kernel_codes, operand
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.eight_bit_linear.tiles import EightBitTile, rank_block, short_columns
from burnish_kernels.lora_linear.kernel import dot


@triton.jit
def tile_at(number, rows, blocks, GROUP: tl.constexpr):
    """Return the place of a tile in the grid of tiles, by its number.

    Tiles of GROUP rows of the grid are computed one block of outputs after the other, so that those which run at a time
    share their weights and their inputs through the second-level cache.

    Args:
        number: number of the tile.
        rows: tiles along the tokens.
        blocks: tiles along the outputs.
        GROUP: rows of the grid that share their weights.

    Returns:
        The row and the block of outputs.
    """
    group = number // (GROUP * blocks)
    inner = number - group * GROUP * blocks
    height = tl.minimum(rows - group * GROUP, GROUP)
    return group * GROUP + inner % height, inner // height


@triton.jit
def add_adapter(
    sums,
    narrow_ptr,
    adapter_ptr,
    own_token,
    own_output,
    R,
    narrow_stride,
    adapter_output,
    adapter_rank,
    BLOCK_R: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Return the sums of a tile plus the adapter's product.

    With ONE_BLOCK there is no loop over the ranks, so that the compiler may load them before it scales the sums.
    """
    narrow_at = narrow_ptr + own_token.to(tl.int64)[:, None] * narrow_stride
    adapter_at = adapter_ptr + own_output.to(tl.int64)[None, :] * adapter_output
    if ONE_BLOCK:
        sums = _add_ranks(sums, narrow_at, adapter_at, 0, R, adapter_rank, BLOCK_R, INTERPRETED)
    else:
        for first in tl.range(0, R, BLOCK_R, num_stages=1):
            sums = _add_ranks(sums, narrow_at, adapter_at, first, R, adapter_rank, BLOCK_R, INTERPRETED)
    return sums


@triton.jit
def _add_ranks(sums, narrow_at, adapter_at, first, R, adapter_rank, BLOCK_R: tl.constexpr, INTERPRETED: tl.constexpr):
    rank = first + tl.arange(0, BLOCK_R)
    narrow = tl.load(narrow_at + rank[None, :], mask=(rank < R)[None, :], other=0.0)
    adapter = tl.load(adapter_at + rank[:, None] * adapter_rank, mask=(rank < R)[:, None], other=0.0)
    return dot(narrow, adapter, sums, INTERPRETED)


@triton.jit
def scaled_and_adapted(
    sums,
    x_scale_ptr,
    scale_ptr,
    narrow_ptr,
    adapter_ptr,
    own_token,
    own_output,
    R,
    narrow_stride,
    adapter_output,
    adapter_rank,
    HAS_SCALE: tl.constexpr,
    HAS_ADAPTER: tl.constexpr,
    BLOCK_R: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Return the sums of a tile times the scales of its rows and outputs, plus the adapter's product."""
    sums = sums.to(tl.float32) * tl.load(x_scale_ptr + own_token)[:, None]
    if HAS_SCALE:
        sums *= tl.load(scale_ptr + own_output)[None, :]
    if HAS_ADAPTER:
        sums = add_adapter(
            sums,
            narrow_ptr,
            adapter_ptr,
            own_token,
            own_output,
            R,
            narrow_stride,
            adapter_output,
            adapter_rank,
            BLOCK_R,
            ONE_BLOCK,
            INTERPRETED,
        )
    return sums


@triton.jit(do_not_specialize=["T"])
def eight_bit_linear_kernel(
    x_ptr,  # [T, K] INT8 or E4M3, in the interpreter bytes
    x_scale_ptr,  # [T] fp32
    weight_ptr,  # [N, K] as x
    scale_ptr,  # [N] fp32, read only with HAS_SCALE
    narrow_ptr,  # [T, R], read only with HAS_ADAPTER
    adapter_ptr,  # [N, R], read only with HAS_ADAPTER
    out_ptr,  # [T, N]
    T,
    N,
    K,
    R,
    x_stride,
    weight_stride,
    narrow_stride,
    adapter_output,
    adapter_rank,
    out_stride,
    HAS_SCALE: tl.constexpr,
    HAS_ADAPTER: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_R: tl.constexpr,
    PARTS: tl.constexpr,
    GROUP: tl.constexpr,
    IMPRECISE: tl.constexpr,  # columns summed in Hopper's short accumulator; None: all
    INTERPRETED: tl.constexpr,
):
    """Compute one tile; with EVEN no block of the reduction is partly filled."""
    row, block = tile_at(tl.program_id(0), tl.cdiv(T, BLOCK_T), tl.cdiv(N, BLOCK_N), GROUP)
    token = row * BLOCK_T + tl.arange(0, BLOCK_T)
    output = block * BLOCK_N + tl.arange(0, BLOCK_N)
    own_token, own_output = tl.minimum(token, T - 1), tl.minimum(output, N - 1)  # what exists is read, no more written
    lane = tl.arange(0, BLOCK_K)
    x_at = x_ptr + own_token.to(tl.int64)[:, None] * x_stride + lane[None, :]
    weight_at = weight_ptr + own_output.to(tl.int64)[None, :] * weight_stride + lane[:, None]
    sums = tl.zeros([BLOCK_T, BLOCK_N], tl.int32 if x_ptr.dtype.element_ty == tl.int8 else tl.float32)
    for column in range(0, K, PARTS * BLOCK_K):
        for part in tl.static_range(PARTS):
            at = column + part * BLOCK_K
            if EVEN:
                x, weight = tl.load(x_at + at), tl.load(weight_at + at)
            else:
                inside = lane < K - at
                x = tl.load(x_at + at, mask=inside[None, :], other=0.0)
                weight = tl.load(weight_at + at, mask=inside[:, None], other=0.0)
            left, right = operand(x, INTERPRETED), operand(weight, INTERPRETED)
            # 0 would turn wgmma off on Hopper.
            sums = tl.dot(left, right, sums, max_num_imprecise_acc=IMPRECISE, out_dtype=sums.dtype)
    sums = scaled_and_adapted(
        sums,
        x_scale_ptr,
        scale_ptr,
        narrow_ptr,
        adapter_ptr,
        own_token,
        own_output,
        R,
        narrow_stride,
        adapter_output,
        adapter_rank,
        HAS_SCALE,
        HAS_ADAPTER,
        BLOCK_R,
        False,
        INTERPRETED,
    )
    out = out_ptr + token.to(tl.int64)[:, None] * out_stride + output[None, :]
    tl.store(out, sums.to(out_ptr.dtype.element_ty), mask=(token < T)[:, None] & (output < N)[None, :])


def launch_eight_bit_linear(
    *,
    x: EightBitRows,
    weight_NK: torch.Tensor,
    scale_N: torch.Tensor | None,
    narrow_TR: torch.Tensor | None,
    adapter_NR: torch.Tensor | None,
    out_TN: torch.Tensor,
    tile: EightBitTile,
) -> None:
    """Fill `out_TN`."""
    assert not tile.persistent
    (tokens, columns), outputs = x.codes.shape, len(weight_NK)
    assert weight_NK.shape[1] == columns
    assert out_TN.shape == (tokens, outputs)
    eight_bit_linear_kernel[(triton.cdiv(tokens, tile.tokens) * triton.cdiv(outputs, tile.outputs),)](
        x_ptr=kernel_codes(x.codes),
        x_scale_ptr=x.scale,
        weight_ptr=kernel_codes(weight_NK),
        scale_ptr=x.scale if scale_N is None else scale_N,
        out_ptr=out_TN,
        T=tokens,
        N=outputs,
        K=columns,
        x_stride=x.codes.stride(0),
        weight_stride=weight_NK.stride(0),
        **adapter_arguments(narrow_TR, adapter_NR, out_TN),
        out_stride=out_TN.stride(0),
        HAS_SCALE=scale_N is not None,
        EVEN=columns % (tile.parts * tile.reduction) == 0,
        BLOCK_T=tile.tokens,
        BLOCK_N=tile.outputs,
        BLOCK_K=tile.reduction,
        PARTS=tile.parts,
        GROUP=tile.group,
        IMPRECISE=short_columns(tile, x.codes.dtype),
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
        maxnreg=tile.registers,
    )


def adapter_arguments(
    narrow_TR: torch.Tensor | None, adapter_NR: torch.Tensor | None, out_TN: torch.Tensor
) -> dict[str, Any]:
    """Return the arguments of a product's kernel that say where its adapter lies; without one nothing is read."""
    ranks = 0 if narrow_TR is None else narrow_TR.shape[1]
    narrow = out_TN if narrow_TR is None else narrow_TR
    adapter = out_TN if adapter_NR is None else adapter_NR
    return {
        "narrow_ptr": narrow,
        "adapter_ptr": adapter,
        "R": ranks,
        "narrow_stride": narrow.stride(0),
        "adapter_output": adapter.stride(0),
        "adapter_rank": adapter.stride(1),
        "HAS_ADAPTER": ranks > 0,
        "BLOCK_R": rank_block(ranks),
    }
