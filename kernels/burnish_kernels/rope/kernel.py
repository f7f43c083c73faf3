"""QK norm and rotary embedding in Triton: queries and keys in one launch, each value read and written once.

The unit of work is one head of one token. A program takes ROWS of them, consecutive ones, either of the queries or of
the keys; so any number of heads fills the tiles. The angles of a token are read anew by each of its heads, from the
first-level cache. A head is read as the first and the second numbers of its pairs and the rest that passes through, so
that the partners of a rotation meet in one thread.

Every element is read and written by the same program, and read before it is written: outputs may be inputs.
Token offsets are int64: T·C may pass 2^31.
"""

from __future__ import annotations

import triton
import triton.language as tl

from burnish_kernels.kernel_overlap import let_next_begin, wait_for_earlier


@triton.jit
def _load(ptr, offsets, inside):
    return tl.load(ptr + offsets, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _load_factor(weight_ptr, columns, inside, ONE_PLUS: tl.constexpr):
    """Load the factor of the norm, fp32; per row, because one shared row would have another layout than the tile."""
    factor = _load(weight_ptr, columns + tl.zeros_like(inside).to(tl.int32), inside)
    return factor + 1.0 if ONE_PLUS else factor


@triton.jit
def _normalize(x, inverse, factor, TYPE: tl.constexpr, ONE_PLUS: tl.constexpr):
    """Return the normalized value, rounded to TYPE as a separate norm would leave it."""
    unit = x * inverse
    if not ONE_PLUS:
        unit = unit.to(TYPE).to(tl.float32)
    return (unit * factor).to(TYPE).to(tl.float32)


@triton.jit
def _pair_columns(half, HALF: tl.constexpr, INTERLEAVED: tl.constexpr):
    """Return the columns of the first and the second number of each pair: neighbors, or half the rotated part apart."""
    if INTERLEAVED:
        return 2 * half, 2 * half + 1
    return half, HALF + half


@triton.jit
def _load_pairs(rows_ptr, half, valid, inside, HALF: tl.constexpr, HALF_BLOCK: tl.constexpr, INTERLEAVED: tl.constexpr):
    """Load the first and the second numbers of each row's pairs. Neighbors are read side by side and parted after."""
    if INTERLEAVED:
        column = tl.arange(0, 2 * HALF_BLOCK)[None, :]
        both = _load(rows_ptr, column, valid[:, None] & (column < 2 * HALF))
        first, second = tl.split(tl.reshape(both, [both.shape[0], HALF_BLOCK, 2]))
    else:
        first, second = _load(rows_ptr, half, inside), _load(rows_ptr, HALF + half, inside)
    return first, second


@triton.jit
def _store_pairs(
    rows_ptr,
    first,
    second,
    half,
    valid,
    inside,
    HALF: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):
    """Store what `_load_pairs` loads."""
    if INTERLEAVED:
        column = tl.arange(0, 2 * HALF_BLOCK)[None, :]
        both = tl.reshape(tl.join(first, second), [first.shape[0], 2 * HALF_BLOCK])
        tl.store(rows_ptr + column, both, mask=valid[:, None] & (column < 2 * HALF))
    else:
        tl.store(rows_ptr + half, first, mask=inside)
        tl.store(rows_ptr + HALF + half, second, mask=inside)


@triton.jit
def _load_angles(table_ptr, index_ptr, token, valid, half, inside, HALF: tl.constexpr):
    """Load cosine and sine of each row's pairs."""
    position = tl.load(index_ptr + token, mask=valid, other=0).to(tl.int64)[:, None]
    angles = table_ptr + position * (2 * HALF) + half
    return tl.load(angles, mask=inside, other=0.0), tl.load(angles + HALF, mask=inside, other=0.0)


@triton.jit
def _forward_rows(
    program,
    x_ptr,
    weight_ptr,
    y_ptr,
    x_stride,
    y_stride,
    table_ptr,
    index_ptr,
    T,
    eps,
    HEADS: tl.constexpr,
    SPACING: tl.constexpr,
    D: tl.constexpr,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    NORM: tl.constexpr,
    ONE_PLUS: tl.constexpr,
    WRITE_REST: tl.constexpr,
    ROWS: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
):
    TYPE: tl.constexpr = y_ptr.dtype.element_ty
    row = program * ROWS + tl.arange(0, ROWS)
    token = row // HEADS
    valid = token < T
    head = (row % HEADS)[:, None]
    x_rows = x_ptr + token.to(tl.int64)[:, None] * x_stride + head * SPACING
    y_rows = y_ptr + token.to(tl.int64)[:, None] * y_stride + head * D
    square = tl.zeros([ROWS], tl.float32)
    if HALF > 0:
        half = tl.arange(0, HALF_BLOCK)[None, :]
        inside = valid[:, None] & (half < HALF)
        first, second = _load_pairs(x_rows, half, valid, inside, HALF, HALF_BLOCK, INTERLEAVED)
        cos, sin = _load_angles(table_ptr, index_ptr, token, valid, half, inside, HALF)
        if NORM:
            square += tl.sum(first * first + second * second, axis=1)
    if WRITE_REST:
        rest = 2 * HALF + tl.arange(0, REST_BLOCK)[None, :]
        in_rest = valid[:, None] & (rest < D)
        passed = _load(x_rows, rest, in_rest)
        if NORM:
            square += tl.sum(passed * passed, axis=1)
    inverse = tl.rsqrt(square / D + eps)[:, None]
    if HALF > 0:
        if NORM:
            one, other = _pair_columns(half, HALF, INTERLEAVED)
            factor = _load_factor(weight_ptr, one, inside, ONE_PLUS)
            first = _normalize(first, inverse, factor, TYPE, ONE_PLUS)
            factor = _load_factor(weight_ptr, other, inside, ONE_PLUS)
            second = _normalize(second, inverse, factor, TYPE, ONE_PLUS)
        turned_first, turned_second = (first * cos - second * sin).to(TYPE), (second * cos + first * sin).to(TYPE)
        _store_pairs(y_rows, turned_first, turned_second, half, valid, inside, HALF, HALF_BLOCK, INTERLEAVED)
    if WRITE_REST:
        if NORM:
            factor = _load_factor(weight_ptr, rest, in_rest, ONE_PLUS)
            passed = _normalize(passed, inverse, factor, TYPE, ONE_PLUS)
        tl.store(y_rows + rest, passed.to(TYPE), mask=in_rest)


@triton.jit
def _backward_rows(
    program,
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    dy_stride,
    x_stride,
    dx_stride,
    table_ptr,
    index_ptr,
    T,
    eps,
    HEADS: tl.constexpr,
    SPACING: tl.constexpr,
    D: tl.constexpr,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    NORM: tl.constexpr,
    ONE_PLUS: tl.constexpr,
    WRITE_REST: tl.constexpr,
    ROWS: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
):
    TYPE: tl.constexpr = dx_ptr.dtype.element_ty
    row = program * ROWS + tl.arange(0, ROWS)
    token = row // HEADS
    valid = token < T
    head = (row % HEADS)[:, None]
    dy_rows = dy_ptr + token.to(tl.int64)[:, None] * dy_stride + head * D
    x_rows = x_ptr + token.to(tl.int64)[:, None] * x_stride + head * SPACING
    dx_rows = dx_ptr + token.to(tl.int64)[:, None] * dx_stride + head * SPACING
    square = tl.zeros([ROWS], tl.float32)  # of the values before the norm
    dot = tl.zeros([ROWS], tl.float32)  # of these values and the gradients that arrive at them
    if HALF > 0:
        half = tl.arange(0, HALF_BLOCK)[None, :]
        inside = valid[:, None] & (half < HALF)
        dy_first, dy_second = _load_pairs(dy_rows, half, valid, inside, HALF, HALF_BLOCK, INTERLEAVED)
        cos, sin = _load_angles(table_ptr, index_ptr, token, valid, half, inside, HALF)
        first, second = dy_first * cos + dy_second * sin, dy_second * cos - dy_first * sin
        if NORM:
            x_first, x_second = _load_pairs(x_rows, half, valid, inside, HALF, HALF_BLOCK, INTERLEAVED)
            one, other = _pair_columns(half, HALF, INTERLEAVED)
            first *= _load_factor(weight_ptr, one, inside, ONE_PLUS)
            second *= _load_factor(weight_ptr, other, inside, ONE_PLUS)
            square += tl.sum(x_first * x_first + x_second * x_second, axis=1)
            dot += tl.sum(x_first * first + x_second * second, axis=1)
    if WRITE_REST:
        rest = 2 * HALF + tl.arange(0, REST_BLOCK)[None, :]
        in_rest = valid[:, None] & (rest < D)
        passed = _load(dy_rows, rest, in_rest)
        if NORM:
            x_rest = _load(x_rows, rest, in_rest)
            passed *= _load_factor(weight_ptr, rest, in_rest, ONE_PLUS)
            square += tl.sum(x_rest * x_rest, axis=1)
            dot += tl.sum(x_rest * passed, axis=1)
    inverse = tl.rsqrt(square / D + eps)
    along = (dot * inverse * inverse / D)[:, None]
    inverse = inverse[:, None]
    if HALF > 0:
        if NORM:
            first, second = inverse * (first - x_first * along), inverse * (second - x_second * along)
        _store_pairs(dx_rows, first.to(TYPE), second.to(TYPE), half, valid, inside, HALF, HALF_BLOCK, INTERLEAVED)
    if WRITE_REST:
        if NORM:
            passed = inverse * (passed - x_rest * along)
        tl.store(dx_rows + rest, passed.to(TYPE), mask=in_rest)


@triton.jit(do_not_specialize=["T"])
def rope_forward_kernel(
    q_in_ptr,  # [T, N, D], Q_SPACING from head to head
    k_in_ptr,  # [T, M, D], the queries' token stride
    table_ptr,  # [P, 2·HALF] fp32, cosines then sines; read only if HALF
    index_ptr,  # [T] int32; read only if HALF
    q_weight_ptr,  # [D], read only with NORM
    k_weight_ptr,  # [D], read only with NORM
    q_ptr,  # [T, N, D]
    k_ptr,  # [T, M, D]
    T,
    in_stride,
    q_stride,
    k_stride,
    eps,
    N: tl.constexpr,
    M: tl.constexpr,
    Q_SPACING: tl.constexpr,
    D: tl.constexpr,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    NORM: tl.constexpr,
    ONE_PLUS: tl.constexpr,
    WRITE_REST: tl.constexpr,
    ROWS: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr = False,
):
    """Normalize and rotate ROWS heads, of the queries or of the keys."""
    let_next_begin(OVERLAPS)
    wait_for_earlier(OVERLAPS)
    program = tl.program_id(0)
    q_programs = tl.cdiv(T * N, ROWS)
    if program < q_programs:
        _forward_rows(
            program, q_in_ptr, q_weight_ptr, q_ptr, in_stride, q_stride, table_ptr, index_ptr, T, eps,
            N, Q_SPACING, D, HALF, INTERLEAVED, NORM, ONE_PLUS, WRITE_REST, ROWS, HALF_BLOCK, REST_BLOCK,
        )  # fmt: skip
    elif M > 0:
        _forward_rows(
            program - q_programs, k_in_ptr, k_weight_ptr, k_ptr, in_stride, k_stride, table_ptr, index_ptr, T, eps,
            M, D, D, HALF, INTERLEAVED, NORM, ONE_PLUS, WRITE_REST, ROWS, HALF_BLOCK, REST_BLOCK,
        )  # fmt: skip


@triton.jit(do_not_specialize=["T"])
def rope_backward_kernel(
    dq_ptr,  # [T, N, D]
    dk_ptr,  # [T, M, D]
    q_in_ptr,  # [T, N, D], before the norm, Q_SPACING from head to head; read only with NORM
    k_in_ptr,  # [T, M, D], the queries' token stride; read only with NORM
    table_ptr,  # [P, 2·HALF] fp32, cosines then sines; read only if HALF
    index_ptr,  # [T] int32; read only if HALF
    q_weight_ptr,  # [D], read only with NORM
    k_weight_ptr,  # [D], read only with NORM
    q_out_ptr,  # [T, N, D], Q_SPACING from head to head
    k_out_ptr,  # [T, M, D], the queries' token stride
    T,
    dq_stride,
    dk_stride,
    in_stride,
    out_stride,
    eps,
    N: tl.constexpr,
    M: tl.constexpr,
    Q_SPACING: tl.constexpr,
    D: tl.constexpr,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    NORM: tl.constexpr,
    ONE_PLUS: tl.constexpr,
    WRITE_REST: tl.constexpr,
    ROWS: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
):
    """Compute the gradients of ROWS heads before rotation and norm, of the queries or of the keys."""
    program = tl.program_id(0)
    q_programs = tl.cdiv(T * N, ROWS)
    if program < q_programs:
        _backward_rows(
            program, dq_ptr, q_in_ptr, q_weight_ptr, q_out_ptr, dq_stride, in_stride, out_stride,
            table_ptr, index_ptr, T, eps,
            N, Q_SPACING, D, HALF, INTERLEAVED, NORM, ONE_PLUS, WRITE_REST, ROWS, HALF_BLOCK, REST_BLOCK,
        )  # fmt: skip
    elif M > 0:
        _backward_rows(
            program - q_programs, dk_ptr, k_in_ptr, k_weight_ptr, k_out_ptr, dk_stride, in_stride, out_stride,
            table_ptr, index_ptr, T, eps,
            M, D, D, HALF, INTERLEAVED, NORM, ONE_PLUS, WRITE_REST, ROWS, HALF_BLOCK, REST_BLOCK,
        )  # fmt: skip
