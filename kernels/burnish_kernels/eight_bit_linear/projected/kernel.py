"""Narrow products of rows that are quantized in the same pass over memory, their largest magnitudes being known.

As `lora_linear.kernel.project_kernel`, but a program has all columns of its segment. Launchers assert, never allocate.

Shapes: T tokens, C columns of the rows, R columns of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from burnish_kernels.dispatch import interpreted
from burnish_kernels.eight_bit_linear.quantize.kernel import kernel_codes, row_scale, to_codes
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.lora_linear.kernel import dot, pick
from burnish_kernels.lora_linear.launch_kernels import segment_arguments
from burnish_kernels.lora_linear.tiles import BLOCK_T, RankSegment, project_tile


@triton.jit(do_not_specialize=["T"])
def project_codes_kernel(
    x_ptr,  # [T, C]
    a_ptr,  # [R, C]
    out_ptr,  # [T, R]
    largest_ptr,  # [T] fp32
    factor_ptr,  # [C] fp32, read only with HAS_FACTOR
    codes_ptr,  # [T, C] INT8 or E4M3, in the interpreter bytes
    scale_ptr,  # [T] fp32
    T,
    x_stride,
    a_row,
    a_column,
    out_stride,
    codes_stride,
    first_0,
    first_1,
    first_2,
    columns_0,
    columns_1,
    columns_2,
    rank_0,
    rank_1,
    rank_2,
    ranks_0,
    ranks_1,
    ranks_2,
    HAS_FACTOR: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Multiply a block of tokens with one segment's ranks, and quantize its columns."""
    which = tl.program_id(1)
    first = pick(which, first_0, first_1, first_2)
    columns = pick(which, columns_0, columns_1, columns_2)
    first_rank = pick(which, rank_0, rank_1, rank_2)
    ranks = pick(which, ranks_0, ranks_1, ranks_2)
    token = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    rank = tl.arange(0, BLOCK_R)
    lane = tl.arange(0, BLOCK_C)
    far = token.to(tl.int64)[:, None]
    x_rows = x_ptr + first + far * x_stride
    codes_rows = codes_ptr + first + far * codes_stride
    a_rows = a_ptr + (first_rank + rank).to(tl.int64)[None, :] * a_row + first.to(tl.int64) * a_column
    own_tokens, own_ranks = (token < T)[:, None], (rank < ranks)[None, :]
    INT8: tl.constexpr = codes_ptr.dtype.element_ty == tl.int8
    scale, inverse = row_scale(tl.load(largest_ptr + token, mask=token < T, other=0.0), INT8)
    if which == 0:
        tl.store(scale_ptr + token, scale, mask=token < T)
    sums = tl.zeros([BLOCK_T, BLOCK_R], tl.float32)
    for column in range(0, columns, BLOCK_C):
        at = column + lane
        own = own_tokens & (at < columns)[None, :]
        x = tl.load(x_rows + at[None, :], mask=own, other=0.0)
        a = tl.load(a_rows + at.to(tl.int64)[:, None] * a_column, mask=(at < columns)[:, None] & own_ranks, other=0.0)
        sums = dot(x, a, sums, INTERPRETED)
        wide = x.to(tl.float32)
        if HAS_FACTOR:
            wide *= tl.load(factor_ptr + first + at, mask=at < columns, other=0.0)[None, :]
        tl.store(codes_rows + at[None, :], to_codes(wide * inverse[:, None], INT8, INTERPRETED), mask=own)
    tl.store(
        out_ptr + far * out_stride + (first_rank + rank)[None, :],
        sums.to(out_ptr.dtype.element_ty),
        mask=own_tokens & own_ranks,
    )


def launch_project_codes(
    *,
    x_TC: torch.Tensor,
    a_RC: torch.Tensor,
    out_TR: torch.Tensor,
    segments: Sequence[RankSegment],
    largest_T: torch.Tensor,
    factor_C: torch.Tensor | None,
    codes: EightBitRows,
) -> None:
    """Fill `out_TR` and `codes`; the segments divide the columns of both."""
    tokens, width = x_TC.shape
    assert codes.codes.shape == (tokens, width)
    assert sum(segment.columns for segment in segments) == width
    assert largest_T.shape == (tokens,)
    ranks = max(segment.ranks for segment in segments)
    tile = project_tile(x_TC.dtype, ranks)
    assert ranks <= tile.R
    project_codes_kernel[(triton.cdiv(tokens, BLOCK_T), len(segments))](
        x_ptr=x_TC,
        a_ptr=a_RC,
        out_ptr=out_TR,
        largest_ptr=largest_T,
        factor_ptr=factor_C,
        codes_ptr=kernel_codes(codes.codes),
        scale_ptr=codes.scale,
        T=tokens,
        x_stride=x_TC.stride(0),
        a_row=a_RC.stride(0),
        a_column=a_RC.stride(1),
        out_stride=out_TR.stride(0),
        codes_stride=codes.codes.stride(0),
        **segment_arguments(segments),
        HAS_FACTOR=factor_C is not None,
        BLOCK_T=BLOCK_T,
        BLOCK_C=tile.C,
        BLOCK_R=tile.R,
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
