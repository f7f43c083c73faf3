"""The experts' narrow products in Triton: a projection by tiles of rows, outer products by expert and columns.

An outer product's program adds up all rows of one expert in their order: no atomics, so the same inputs give the same
bits; an expert without rows is left alone. Launchers assert and never allocate. Row offsets are int64.

Shapes: P sorted rows, C columns, R ranks, E experts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.dispatch import interpreted
from burnish_kernels.grouped_linear.kernel import tile_rows_of
from burnish_kernels.grouped_skinny.tiles import OUTER_ROWS, outer_tile, project_tile
from burnish_kernels.lora_linear.kernel import dot
from burnish_kernels.moe_sort.order import ExpertOrder


@triton.jit(do_not_specialize=["R", "slots"])
def grouped_project_kernel(
    x_ptr,  # [P, C], or [T, C] with GATHER
    matrix_ptr,  # [E, R, C]
    out_ptr,  # [P, R]
    order_ptr,  # [P] int32
    offsets_ptr,  # [E + 1] int32
    tiles_ptr,  # [M, 2] int32
    C,
    R,
    x_stride,
    matrix_expert,
    matrix_rank,
    matrix_column,
    out_stride,
    slots,
    GATHER: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Multiply one tile of rows with a block of its expert's ranks."""
    if tl.load(tiles_ptr + tl.program_id(0) * 2) >= 0:
        expert, sorted_row, own, row = tile_rows_of(
            tl.program_id(0), tiles_ptr, offsets_ptr, order_ptr, slots, GATHER, BLOCK_M
        )
        rank = tl.program_id(1) * BLOCK_R + tl.arange(0, BLOCK_R)
        lane = tl.arange(0, BLOCK_C)
        x_rows = x_ptr + row.to(tl.int64)[:, None] * x_stride
        matrix = matrix_ptr + expert.to(tl.int64) * matrix_expert + rank[None, :] * matrix_rank
        sums = tl.zeros([BLOCK_M, BLOCK_R], tl.float32)
        for first in range(0, C, BLOCK_C):
            column = first + lane
            x = tl.load(x_rows + column[None, :], mask=(column < C)[None, :], other=0.0)
            inside = (column < C)[:, None] & (rank < R)[None, :]
            a = tl.load(matrix + column[:, None] * matrix_column, mask=inside, other=0.0)
            sums = dot(x, a, sums, INTERPRETED)
        out = out_ptr + sorted_row.to(tl.int64)[:, None] * out_stride + rank[None, :]
        tl.store(out, sums.to(out_ptr.dtype.element_ty), mask=own[:, None] & (rank < R)[None, :])


@triton.jit(do_not_specialize=["R", "slots"])
def grouped_outer_kernel(
    p_ptr,  # [P, R]
    q_ptr,  # [P, C], or [T, C] with GATHER
    weights_ptr,  # [T, k] fp32, read only with HAS_WEIGHTS
    out_ptr,  # [E, R, C] fp32, any strides; added to
    order_ptr,  # [P] int32
    offsets_ptr,  # [E + 1] int32
    C,
    R,
    p_stride,
    q_stride,
    out_expert,
    out_rank,
    out_column,
    slots,
    scale,
    GATHER: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Add one expert's outer products of a block of ranks and a block of columns to its gradient."""
    blocks = tl.cdiv(C, BLOCK_C)
    expert = tl.program_id(0) // blocks
    first = tl.load(offsets_ptr + expert)
    last = tl.load(offsets_ptr + expert + 1)
    if first < last:
        column = (tl.program_id(0) % blocks) * BLOCK_C + tl.arange(0, BLOCK_C)
        rank = tl.program_id(1) * BLOCK_R + tl.arange(0, BLOCK_R)
        lane = tl.arange(0, BLOCK_P)
        sums = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
        for start in range(first, last, BLOCK_P):
            sorted_row = start + lane
            own = sorted_row < last
            p_rows = p_ptr + sorted_row.to(tl.int64)[:, None] * p_stride
            p = tl.load(p_rows + rank[None, :], mask=own[:, None] & (rank < R)[None, :], other=0.0)
            row = sorted_row
            if GATHER or HAS_WEIGHTS:
                position = tl.load(order_ptr + sorted_row, mask=own, other=0)
            if HAS_WEIGHTS:
                weight = tl.load(weights_ptr + position, mask=own, other=0.0)
                p = (p.to(tl.float32) * weight[:, None]).to(p_ptr.dtype.element_ty)
            if GATHER:
                row = position // slots
            q_rows = q_ptr + row.to(tl.int64)[:, None] * q_stride
            q = tl.load(q_rows + column[None, :], mask=own[:, None] & (column < C)[None, :], other=0.0)
            sums = dot(tl.trans(p), q, sums, INTERPRETED)
        inside = (rank < R)[:, None] & (column < C)[None, :]
        out = out_ptr + expert.to(tl.int64) * out_expert
        out += rank.to(tl.int64)[:, None] * out_rank + column.to(tl.int64)[None, :] * out_column
        tl.store(out, tl.load(out, mask=inside) + sums * scale, mask=inside)


def launch_project(
    x: torch.Tensor, matrix_ERC: torch.Tensor, order: ExpertOrder, out_PR: torch.Tensor, *, by_token: bool
) -> None:
    """Fill `out_PR`."""
    ranks, columns = matrix_ERC.shape[1:]
    assert out_PR.shape == (order.positions, ranks)
    tile = project_tile(x.dtype, ranks)
    grouped_project_kernel[(order.tiles.shape[0], triton.cdiv(ranks, tile.R))](
        x_ptr=x,
        matrix_ptr=matrix_ERC,
        out_ptr=out_PR,
        order_ptr=order.order,
        offsets_ptr=order.offsets,
        tiles_ptr=order.tiles,
        C=columns,
        R=ranks,
        x_stride=x.stride(0),
        matrix_expert=matrix_ERC.stride(0),
        matrix_rank=matrix_ERC.stride(1),
        matrix_column=matrix_ERC.stride(2),
        out_stride=out_PR.stride(0),
        slots=order.slots,
        GATHER=by_token,
        BLOCK_M=order.tile_rows,
        BLOCK_C=tile.C,
        BLOCK_R=tile.R,
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def launch_outer(
    p_PR: torch.Tensor,
    q: torch.Tensor,
    order: ExpertOrder,
    out_ERC: torch.Tensor,
    *,
    scale: float,
    by_token: bool,
    weights_Tk: torch.Tensor | None,
) -> None:
    """Add to `out_ERC`."""
    experts, ranks, columns = out_ERC.shape
    assert p_PR.shape == (order.positions, ranks)
    assert out_ERC.dtype == torch.float32
    tile = outer_tile(p_PR.dtype, ranks)
    grouped_outer_kernel[(experts * triton.cdiv(columns, tile.C), triton.cdiv(ranks, tile.R))](
        p_ptr=p_PR,
        q_ptr=q,
        weights_ptr=weights_Tk,
        out_ptr=out_ERC,
        order_ptr=order.order,
        offsets_ptr=order.offsets,
        C=columns,
        R=ranks,
        p_stride=p_PR.stride(0),
        q_stride=q.stride(0),
        out_expert=out_ERC.stride(0),
        out_rank=out_ERC.stride(1),
        out_column=out_ERC.stride(2),
        slots=order.slots,
        scale=scale,
        GATHER=by_token,
        HAS_WEIGHTS=weights_Tk is not None,
        BLOCK_P=OUTER_ROWS,
        BLOCK_C=tile.C,
        BLOCK_R=tile.R,
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
