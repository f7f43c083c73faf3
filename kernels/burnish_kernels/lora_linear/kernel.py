"""The skinny products of LoRA in Triton, and dropout. All are bound by memory and read their large operand once.

Where the grid would be too small the reduction is split; the parts go to a workspace in fp32 and a second kernel adds
them up in a fixed order: no atomics, so the same inputs give the same bits. A launch serves up to three segments, the
adapters of a stack. `launch_kernels` launches them.

Shapes: T tokens, C columns of the large operand, R columns of ranks, S parts of the reduction.
"""

from __future__ import annotations

import triton
import triton.language as tl

SUM_R, SUM_C, SUM_S = 16, 32, 8  # tile of the kernels that add parts up
DROP_T, DROP_C = 4, 512


@triton.jit
def pick(which, first, second, third):
    """Return the value of one of three segments."""
    return tl.where(which == 0, first, tl.where(which == 1, second, third))


@triton.jit
def dot(left, right, total, INTERPRETED: tl.constexpr):
    """Product left @ right + total; fp32 is never rounded to TF32.

    WORKAROUND: Triton's interpreter multiplies the bit patterns of bf16 (https://github.com/triton-lang/triton/issues/11584).
    This can go when it no longer does. It multiplies with NumPy, whose BLAS sums a transposed operand in another order
    on some processors (OpenBLAS with AVX-512), so operands are laid out row by row there.
    """
    if INTERPRETED:
        left = tl.reshape(tl.ravel(left.to(tl.float32)), left.shape)
        right = tl.reshape(tl.ravel(right.to(tl.float32)), right.shape)
    return tl.dot(left, right, total, input_precision="ieee")


@triton.jit
def project_kernel(
    x_ptr,  # [T, C]
    a_ptr,  # [R, C]
    out_ptr,  # [T, R], or parts [S, T, R] fp32
    T,
    x_stride,
    a_row,
    a_column,
    out_stride,
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
    rank_blocks,
    split_columns,
    part_size,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Multiply a block of tokens with a block of one segment's ranks, over a share of its columns."""
    which = tl.program_id(2) // rank_blocks
    first = pick(which, first_0, first_1, first_2)
    columns = pick(which, columns_0, columns_1, columns_2)
    first_rank = pick(which, rank_0, rank_1, rank_2)
    ranks = pick(which, ranks_0, ranks_1, ranks_2)
    token = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    rank = (tl.program_id(2) % rank_blocks) * BLOCK_R + tl.arange(0, BLOCK_R)
    lane = tl.arange(0, BLOCK_C)
    start = tl.program_id(1) * split_columns
    end = tl.minimum(start + split_columns, columns)
    x_rows = x_ptr + first + token.to(tl.int64)[:, None] * x_stride
    a_rows = a_ptr + (first_rank + rank).to(tl.int64)[None, :] * a_row + first.to(tl.int64) * a_column
    own_tokens, own_ranks = (token < T)[:, None], (rank < ranks)[None, :]
    sums = tl.zeros([BLOCK_T, BLOCK_R], tl.float32)
    for column in range(start, end, BLOCK_C):  # blocks do not cross `end`: masks with `columns` keep loads wide
        at = column + lane
        x = tl.load(x_rows + at[None, :], mask=own_tokens & (at < columns)[None, :], other=0.0)
        a = tl.load(a_rows + at.to(tl.int64)[:, None] * a_column, mask=(at < columns)[:, None] & own_ranks, other=0.0)
        sums = dot(x, a, sums, INTERPRETED)
    out_ptr += tl.program_id(1).to(tl.int64) * part_size
    tl.store(
        out_ptr + token.to(tl.int64)[:, None] * out_stride + (first_rank + rank)[None, :],
        sums.to(out_ptr.dtype.element_ty),
        mask=own_tokens & own_ranks,
    )


@triton.jit
def join_projections_kernel(
    parts_ptr,  # [S, T, R] fp32
    out_ptr,  # [T, R]
    T,
    R,
    splits,
    part_size,
    out_stride,
    SUM_T: tl.constexpr,
    SUM_R: tl.constexpr,
    SUM_S: tl.constexpr,
):
    """Add up the parts of a tile of projections."""
    token = tl.program_id(0).to(tl.int64) * SUM_T + tl.arange(0, SUM_T)
    rank = tl.program_id(1) * SUM_R + tl.arange(0, SUM_R)
    inside = (token < T)[:, None] & (rank < R)[None, :]
    sums = _add_parts(parts_ptr, token[:, None] * R + rank[None, :], inside, part_size, splits, SUM_S)
    tl.store(out_ptr + token[:, None] * out_stride + rank[None, :], sums.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _add_parts(parts_ptr, offsets, inside, part_size, splits, SUM_S: tl.constexpr):
    """Sum the parts of a tile, with several loads in flight."""
    part = tl.arange(0, SUM_S)
    sums = tl.zeros(offsets.shape, tl.float32)
    for begin in range(0, splits, SUM_S):
        at = begin + part
        sums += tl.sum(
            tl.load(
                parts_ptr + at.to(tl.int64)[:, None, None] * part_size + offsets[None, :, :],
                mask=(at < splits)[:, None, None] & inside[None, :, :],
                other=0.0,
            ),
            axis=0,
        )
    return sums


@triton.jit
def outer_kernel(
    p_ptr,  # [T, R]
    q_ptr,  # [T, C]
    parts_ptr,  # [S, part_rows, C] fp32
    T,
    p_stride,
    q_stride,
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
    part_rows,
    C,
    split_tokens,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Multiply a block of ranks with a block of one segment's columns, over a share of the tokens."""
    block = tl.program_id(0)
    blocks_0 = tl.cdiv(columns_0, BLOCK_C)
    blocks_1 = tl.cdiv(columns_1, BLOCK_C)
    which = (block >= blocks_0).to(tl.int32) + (block >= blocks_0 + blocks_1).to(tl.int32)
    block -= pick(which, 0, blocks_0, blocks_0 + blocks_1)
    columns = pick(which, columns_0, columns_1, columns_2)
    first = pick(which, first_0, first_1, first_2)
    first_rank = pick(which, rank_0, rank_1, rank_2)
    ranks = pick(which, ranks_0, ranks_1, ranks_2)
    column = block * BLOCK_C + tl.arange(0, BLOCK_C)
    rank = tl.program_id(2) * BLOCK_R + tl.arange(0, BLOCK_R)
    lane = tl.arange(0, BLOCK_T)
    start = tl.program_id(1) * split_tokens
    end = tl.minimum(start + split_tokens, T)
    p_columns = p_ptr + (first_rank + rank)[None, :]
    q_columns = q_ptr + (first + column)[None, :]
    sums = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    for token in range(start, end, BLOCK_T):
        at = token + lane
        row = at.to(tl.int64)[:, None]
        p = tl.load(p_columns + row * p_stride, mask=(at < end)[:, None] & (rank < ranks)[None, :], other=0.0)
        q = tl.load(q_columns + row * q_stride, mask=(at < end)[:, None] & (column < columns)[None, :], other=0.0)
        sums = dot(tl.trans(p), q, sums, INTERPRETED)
    part = (tl.program_id(1).to(tl.int64) * part_rows + rank)[:, None]
    tl.store(
        parts_ptr + part * C + (first + column)[None, :],
        sums,
        mask=(rank < ranks)[:, None] & (column < columns)[None, :],
    )


@triton.jit
def join_outers_kernel(
    parts_ptr,  # [S, part_rows, C] fp32
    out_0,  # [R_0, columns_0] fp32, any strides; added to
    out_1,
    out_2,
    row_stride_0,
    row_stride_1,
    row_stride_2,
    column_stride_0,
    column_stride_1,
    column_stride_2,
    scale_0,
    scale_1,
    scale_2,
    first_0,
    first_1,
    first_2,
    columns_0,
    columns_1,
    columns_2,
    part_0,
    part_1,
    part_2,
    ranks_0,
    ranks_1,
    ranks_2,
    C,
    part_size,
    splits,
    SUM_R: tl.constexpr,
    SUM_C: tl.constexpr,
    SUM_S: tl.constexpr,
):
    """Add up the parts of a tile of one segment's sums, and add them, scaled, to its output."""
    which = tl.program_id(2)
    columns = pick(which, columns_0, columns_1, columns_2)
    ranks = pick(which, ranks_0, ranks_1, ranks_2)
    if tl.program_id(0) * SUM_C < columns and tl.program_id(1) * SUM_R < ranks:
        column = tl.program_id(0) * SUM_C + tl.arange(0, SUM_C)
        rank = tl.program_id(1) * SUM_R + tl.arange(0, SUM_R)
        inside = (rank < ranks)[:, None] & (column < columns)[None, :]
        first = pick(which, first_0, first_1, first_2)
        part = pick(which, part_0, part_1, part_2)
        offsets = (part + rank).to(tl.int64)[:, None] * C + (first + column)[None, :]
        sums = _add_parts(parts_ptr, offsets, inside, part_size, splits, SUM_S)
        scaled = sums * pick(which, scale_0, scale_1, scale_2)
        row = rank.to(tl.int64)[:, None] * pick(which, row_stride_0, row_stride_1, row_stride_2)
        at = row + column.to(tl.int64)[None, :] * pick(which, column_stride_0, column_stride_1, column_stride_2)
        if which == 0:
            tl.store(out_0 + at, tl.load(out_0 + at, mask=inside) + scaled, mask=inside)
        elif which == 1:
            tl.store(out_1 + at, tl.load(out_1 + at, mask=inside) + scaled, mask=inside)
        else:
            tl.store(out_2 + at, tl.load(out_2 + at, mask=inside) + scaled, mask=inside)


@triton.jit
def dropout_kernel(
    x_ptr,  # [T, K]
    seed_ptr,  # [1] int64
    out_ptr,  # [T, K]; added to with ADD
    T,
    K,
    x_stride,
    out_stride,
    stream_id,
    threshold,
    scale,
    ADD: tl.constexpr,
    DROP_T: tl.constexpr,
    DROP_C: tl.constexpr,
):
    """Drop elements of a tile and scale the others."""
    token = tl.program_id(0) * DROP_T + tl.arange(0, DROP_T)
    group = tl.program_id(1) * (DROP_C // 4) + tl.arange(0, DROP_C // 4)
    zero = tl.zeros([DROP_T, DROP_C // 4], tl.int32)
    seed = tl.load(seed_ptr)
    # Four words a counter: (column / 4, row, stream, 0), as `reference.kept` has it.
    r0, r1, r2, r3 = tl.philox(seed, zero + group[None, :], zero + token[:, None], zero + stream_id, zero)
    draws = tl.reshape(tl.join(tl.join(r0, r2), tl.join(r1, r3)), [DROP_T, DROP_C])
    keep = (draws >> 1).to(tl.int32) >= threshold
    column = tl.program_id(1) * DROP_C + tl.arange(0, DROP_C)
    inside = (token < T)[:, None] & (column < K)[None, :]
    row = token.to(tl.int64)[:, None]
    x = tl.load(x_ptr + row * x_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    kept = tl.where(keep, x * scale, 0.0)
    out = out_ptr + row * out_stride + column[None, :]
    if ADD:
        kept += tl.load(out, mask=inside, other=0.0).to(tl.float32)
    tl.store(out, kept.to(out_ptr.dtype.element_ty), mask=inside)
