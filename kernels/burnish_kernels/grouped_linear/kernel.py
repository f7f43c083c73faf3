"""The grouped product in Triton: tiles of rows of one expert times a block of its outputs.

A program walks the tiles of a range of experts, which it reads on the device; the grid is fixed and larger than most
ranges need, so a program mostly takes one tile. Weights are 16-bit or fp32 with any strides, or decoded from four bits
in the loop. The adapter's columns follow in the same accumulator. Launchers assert and never allocate.

Shapes: P sorted rows, N outputs, C columns of the reduction, R ranks, E experts. Row offsets are int64, offsets inside
one expert's weight int32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.adapter_arguments import adapter_arguments
from burnish_kernels.dispatch import interpreted
from burnish_kernels.eight_bit_linear.kernel import tile_at
from burnish_kernels.grouped_linear.tiles import LinearTile, Storage, rank_block
from burnish_kernels.lora_linear.kernel import dot
from burnish_kernels.moe_sort.order import ExpertOrder
from burnish_kernels.moe_unpack.kernel import decode_tile, load_scales


@triton.jit
def tile_rows_of(tile, tiles_ptr, offsets_ptr, order_ptr, slots, GATHER: tl.constexpr, BLOCK_M: tl.constexpr):
    """Return a tile's expert, its sorted rows, which of them exist, and the rows of the input that they read.

    Args:
        tile: number of the tile.
        tiles_ptr: expert and first row of each tile.
        offsets_ptr: first row of each expert.
        order_ptr: position at each sorted row.
        slots: positions of a token.
        GATHER: whether the input has a row for each token rather than for each sorted row.
        BLOCK_M: rows of a tile.
    """
    expert = tl.load(tiles_ptr + tile * 2)
    first = tl.load(tiles_ptr + tile * 2 + 1)
    last = tl.load(offsets_ptr + expert + 1)
    sorted_row = first + tl.arange(0, BLOCK_M)
    own = sorted_row < last
    row = tl.where(own, sorted_row, first)  # what is beyond is read from a row that exists, and never written
    if GATHER:
        row = tl.load(order_ptr + row) // slots
    return expert, sorted_row, own, row


@triton.jit
def _load(pointer, row, row_step, column, column_step, rows, columns, EVEN: tl.constexpr):
    """Load a tile; with EVEN all of it exists."""
    at = row[:, None] * row_step + column[None, :] * column_step
    if EVEN:
        return tl.load(pointer + at)
    return tl.load(pointer + at, mask=(row < rows)[:, None] & (column < columns)[None, :], other=0.0)


@triton.jit
def _scales(scale_ptr, output, column, N, C, STORAGE, TRANSPOSED: tl.constexpr, BLOCK_N, BLOCK_C):
    """Return the scales of the weights of a block of outputs and columns."""
    if TRANSPOSED:
        row = column + tl.arange(0, BLOCK_C)
        return load_scales(scale_ptr, row, row < C, output, N, STORAGE, BLOCK_N)
    else:  # noqa: RET505  Triton compiles what follows a return, and both must then have one shape
        row = output + tl.arange(0, BLOCK_N)
        return load_scales(scale_ptr, row, row < N, column, C, STORAGE, BLOCK_C)


@triton.jit
def _decoded(packed_ptr, scale, output, column, N, C, STORAGE, TYPE, TRANSPOSED: tl.constexpr, BLOCK_N, BLOCK_C):
    """Return the weights `[BLOCK_C, BLOCK_N]` of a block of outputs and columns."""
    if TRANSPOSED:
        row = column + tl.arange(0, BLOCK_C)
        return decode_tile(packed_ptr, scale, row, row < C, output, N, STORAGE, TYPE, BLOCK_C, BLOCK_N)
    else:  # noqa: RET505  as above
        row = output + tl.arange(0, BLOCK_N)
        return tl.trans(decode_tile(packed_ptr, scale, row, row < N, column, C, STORAGE, TYPE, BLOCK_N, BLOCK_C))


@triton.jit
def _add_product(left, right, sums, SWAP: tl.constexpr, INTERPRETED: tl.constexpr):
    if SWAP:
        return dot(tl.trans(right), tl.trans(left), sums, INTERPRETED)
    else:  # noqa: RET505  as above
        return dot(left, right, sums, INTERPRETED)


@triton.jit(do_not_specialize=["R", "slots", "first_expert", "experts"])
def grouped_linear_kernel(
    x_ptr,  # [P, C], or [T, C] with GATHER
    weight_ptr,  # [E, N, C]; packed [E, N, C / 2] uint8, or [E, C, N / 2] with TRANSPOSED
    scale_ptr,  # one for 64 packed values fp32, or for 32 uint8; read only if packed
    narrow_ptr,  # [P, R], read only with HAS_ADAPTER
    adapter_ptr,  # [E, N, R], read only with HAS_ADAPTER
    bias_ptr,  # [E, N], read only with HAS_BIAS
    out_ptr,  # [P, N]
    order_ptr,  # [P] int32
    offsets_ptr,  # [E + 1] int32
    tiles_ptr,  # [M, 2] int32
    tile_starts_ptr,  # [E + 1] int32
    N,
    C,
    R,
    x_stride,
    weight_expert,
    weight_output,
    weight_column,
    narrow_stride,
    adapter_expert,
    adapter_output,
    adapter_rank,
    out_stride,
    slots,
    first_expert,
    experts,
    STORAGE: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    GATHER: tl.constexpr,
    HAS_ADAPTER: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EVEN: tl.constexpr,
    SWAP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
    GROUP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Compute tiles of the outputs of `experts` experts from `first_expert` on."""
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    FACTOR: tl.constexpr = 64 if STORAGE == "nf4" else 32
    begin = tl.load(tile_starts_ptr + first_expert)
    tiles = tl.load(tile_starts_ptr + first_expert + experts) - begin
    blocks = tl.cdiv(N, BLOCK_N)
    lane = tl.arange(0, BLOCK_C)
    for work in range(tl.program_id(0), tiles * blocks, tl.num_programs(0)):
        row_tile, block = tile_at(work, tiles, blocks, GROUP)
        tile, first_output = begin + row_tile, block * BLOCK_N
        expert, sorted_row, own, row = tile_rows_of(tile, tiles_ptr, offsets_ptr, order_ptr, slots, GATHER, BLOCK_M)
        output = first_output + tl.arange(0, BLOCK_N)
        x_rows = x_ptr + row.to(tl.int64)[:, None] * x_stride
        weight_at = (expert - first_expert).to(tl.int64)
        if STORAGE == "dense":
            weights = weight_ptr + weight_at * weight_expert
        else:
            weights = weight_ptr + weight_at * N * C // 2
            scales = scale_ptr + weight_at * N * C // FACTOR
            scale = _scales(scales, first_output, 0, N, C, STORAGE, TRANSPOSED, BLOCK_N, BLOCK_C)
        sums = tl.zeros([BLOCK_N, BLOCK_M] if SWAP else [BLOCK_M, BLOCK_N], tl.float32)
        for column in range(0, C, BLOCK_C):
            at = column + lane
            if EVEN:
                x = tl.load(x_rows + at[None, :])
            else:
                x = tl.load(x_rows + at[None, :], mask=(at < C)[None, :], other=0.0)
            if STORAGE == "dense":
                weight = _load(weights, at, weight_column, output, weight_output, C, N, EVEN)
            else:  # the next scales are asked for before these are used
                following = _scales(scales, first_output, column + BLOCK_C, N, C, STORAGE, TRANSPOSED, BLOCK_N, BLOCK_C)
                weight = _decoded(
                    weights, scale, first_output, column, N, C, STORAGE, TYPE, TRANSPOSED, BLOCK_N, BLOCK_C
                )
                scale = following
            sums = _add_product(x, weight, sums, SWAP, INTERPRETED)
        if HAS_ADAPTER:
            narrow_rows = narrow_ptr + sorted_row.to(tl.int64)[:, None] * narrow_stride
            adapters = adapter_ptr + expert.to(tl.int64) * adapter_expert
            for first_rank in range(0, R, BLOCK_R):
                rank = first_rank + tl.arange(0, BLOCK_R)
                narrow = tl.load(narrow_rows + rank[None, :], mask=own[:, None] & (rank < R)[None, :], other=0.0)
                adapter = _load(adapters, rank, adapter_rank, output, adapter_output, R, N, False)
                sums = _add_product(narrow, adapter, sums, SWAP, INTERPRETED)
        if SWAP:
            sums = tl.trans(sums)
        if HAS_BIAS:
            bias = tl.load(bias_ptr + expert.to(tl.int64) * N + output, mask=output < N, other=0.0)
            sums += bias.to(tl.float32)[None, :]
        out = out_ptr + sorted_row.to(tl.int64)[:, None] * out_stride + output[None, :]
        tl.store(out, sums.to(out_ptr.dtype.element_ty), mask=own[:, None] & (output < N)[None, :])


def launch_grouped_linear(
    *,
    x: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor | None,
    narrow_PR: torch.Tensor | None,
    adapter_ENR: torch.Tensor | None,
    bias_EN: torch.Tensor | None,
    out_PN: torch.Tensor,
    order: ExpertOrder,
    storage: Storage,
    transposed: bool,
    by_token: bool,
    first_expert: int,
    experts: int,
    tile: LinearTile,
) -> None:
    """Fill the rows of `out_PN` of `experts` experts from `first_expert` on, with which `weight` and `scales` begin."""
    outputs, columns = out_PN.shape[1], x.shape[1]
    dense = storage == "dense"
    assert dense == (scales is None)
    blocks = triton.cdiv(outputs, tile.outputs)
    grouped_linear_kernel[(launched_tiles(order, experts) * blocks,)](
        x_ptr=x,
        weight_ptr=weight,
        scale_ptr=scales,
        bias_ptr=bias_EN,
        out_ptr=out_PN,
        order_ptr=order.order,
        offsets_ptr=order.offsets,
        tiles_ptr=order.tiles,
        tile_starts_ptr=order.tile_starts,
        N=outputs,
        C=columns,
        x_stride=x.stride(0),
        weight_expert=weight.stride(0) if dense else 0,
        weight_output=weight.stride(1) if dense else 0,
        weight_column=weight.stride(2) if dense else 0,
        out_stride=out_PN.stride(0),
        slots=order.slots,
        first_expert=first_expert,
        experts=experts,
        STORAGE=storage,
        TRANSPOSED=transposed,
        GATHER=by_token,
        **adapter_arguments(narrow_PR, adapter_ENR, rank_block, grouped=True),
        HAS_BIAS=bias_EN is not None,
        EVEN=outputs % tile.outputs == 0 and columns % tile.reduction == 0,
        SWAP=bool(tile.swap),
        BLOCK_M=order.tile_rows,
        BLOCK_N=tile.outputs,
        BLOCK_C=tile.reduction,
        GROUP=tile.group,
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def launched_tiles(order: ExpertOrder, experts: int) -> int:
    """Return the tiles that the grid has programs for: all, or of a part of the experts twice its share."""
    share = 2 * order.positions * experts // (order.experts * order.tile_rows) + experts
    return max(1, min(order.tiles.shape[0], share))
