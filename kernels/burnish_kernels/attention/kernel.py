"""Attention within packed documents in Triton: one kernel forward, two backward. Launched from `launch_kernels.py`.

Online softmax (Milakov and Gimelshein 2018, arXiv 1805.02867) by blocks, with only the sums of the rows kept for the
backward pass (Dao et al. 2022, arXiv 2205.14135). What differs from FlashAttention-2, whose grid is mostly empty and
whose blocks are mostly hidden at the lengths that people fine-tune on (median document: 181 rows):

- Programs follow a list of tiles made on the CPU, heaviest first; see `tiles.py`.
- A program takes several query heads of a group at once. They share the keys, so short tiles make tall products, and
  less is computed above the diagonal and past the document.
- dK and dV are summed over the group in registers. dQ has a kernel of its own: two products more, but no atomic
  additions, and the same bits every time. It also makes delta = sum(o * do), which dK/dV needs.

Exponentials are of base 2: `factor` is the scale times log2(e). With a soft cap the scores are
`cap * tanh(scores * cap_factor / (2 log2(e)))`, `cap` has log2(e) in it, and `factor` is 1. Strides are compiled in, so
that the rows of a block are reached by immediate offsets: registers are what limits these kernels. Offsets are int64.
Rows past a tile or a document are read as zeros and never stored. A sink counts in the sums of the rows alone, so the
backward kernels need not know of it.
"""

from __future__ import annotations

import triton
import triton.language as tl

NOTHING = tl.constexpr(-1.0e30)  # maximum of no scores: finite, so that two of them do not differ by NaN
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def dot(left, right, total, PRECISION: tl.constexpr):
    """Matrix product of left and right, plus total.

    WORKAROUND: Triton's interpreter multiplies the bits of bf16 (https://github.com/triton-lang/triton/issues/11584).
    The first branch can go when it no longer does.
    """
    if PRECISION == "interpreted":
        total = tl.dot(left.to(tl.float32), right.to(tl.float32), total)
    else:
        total = tl.dot(left, right, total, input_precision=PRECISION)
    return total


@triton.jit
def safe_tanh(scores, cap_factor):
    """tanh(scores * cap_factor / (2 log2(e))), without an exponential that can overflow."""
    shrunk = tl.exp2(-tl.abs(scores) * cap_factor)
    tanh = (1.0 - shrunk) / (1.0 + shrunk)
    return tl.where(scores < 0, -tanh, tanh)


@triton.jit
def _hide(values, otherwise, row_i, row_j, span, begin, clear_from, clear_to, BRANCH: tl.constexpr):
    """Replace values where not 0 <= row_i - row_j <= span (one unsigned comparison).

    With BRANCH, a block that begins in [clear_from, clear_to) is known to have none.
    """
    if BRANCH:
        if (begin < clear_from) | (begin >= clear_to):
            values = tl.where((row_i - row_j).to(tl.uint32) <= span.to(tl.uint32), values, otherwise)
    else:
        values = tl.where((row_i - row_j).to(tl.uint32) <= span.to(tl.uint32), values, otherwise)
    return values


@triton.jit
def _tile(tiles_ptr):
    tile_ptr = tiles_ptr + tl.program_id(1) * 4
    return tl.load(tile_ptr), tl.load(tile_ptr + 1), tl.load(tile_ptr + 2), tl.load(tile_ptr + 3)


@triton.jit
def _inside(rows, column, D: tl.constexpr, WIDTH: tl.constexpr):
    """Mask of a block, from the mask of its rows."""
    mask = rows[:, None]
    if D != WIDTH:
        mask = mask & (column < D)[None, :]
    return mask


@triton.jit
def _at(ptr, row, STRIDE: tl.constexpr, head, D: tl.constexpr, column):
    """Pointers to rows of heads, [rows, WIDTH]. In int64, so that the compiler may turn rows into immediate offsets."""
    return ptr + (tl.cast(row, tl.int64) * STRIDE + head * D)[:, None] + column[None, :]


@triton.jit
def _keys(start_ptr, first, past, first_key, window, BLOCK: tl.constexpr, HAS_WINDOW: tl.constexpr):
    """First key that any row sees, and the range in which a block of keys must begin for all rows to see all of it."""
    lowest = first_key
    clear_from = first_key
    if HAS_WINDOW:
        lowest = tl.maximum(first_key, first - window + 1)
        clear_from = tl.maximum(first_key, past - window)
    one_document = tl.load(start_ptr + past - 1) == first_key
    return lowest, clear_from, tl.where(one_document, first - BLOCK + 2, 0)


@triton.jit
def _query_block(step, blocks, first, QUERIES: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr):
    """First query of a step in dK/dV, and first head within the group, both int64: all queries, then the next heads."""
    head = tl.full((), 0, tl.int64)
    block = tl.cast(step, tl.int64)
    if GROUP != HEADS:
        head = tl.cast(step // blocks * HEADS, tl.int64)
        block = tl.cast(step % blocks, tl.int64)
    return first + block * QUERIES, head


@triton.jit(do_not_specialize=["T", "window"])
def forward_kernel(
    q_ptr,  # [T, N, D]
    k_ptr,  # [T, M, D]
    v_ptr,  # [T, M, D]
    o_ptr,  # [T, N, D]
    lse_ptr,  # [N, T] fp32
    sinks_ptr,  # [N] fp32, read only with HAS_SINKS
    start_ptr,  # [T] int32, first row of the row's document
    tiles_ptr,  # [tiles, 4] int32
    T,
    window,
    factor,
    cap,
    cap_factor,
    Q_STRIDE: tl.constexpr,
    K_STRIDE: tl.constexpr,
    V_STRIDE: tl.constexpr,
    O_STRIDE: tl.constexpr,
    GROUP: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    BRANCH: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute the output of one tile of queries, for HEADS heads of a group."""
    first, rows, first_key, _ = _tile(tiles_ptr)
    if rows == 0:
        return
    past = first + rows
    lowest, clear_from, clear_to = _keys(start_ptr, first, past, first_key, window, BLOCK, HAS_WINDOW)
    head = tl.program_id(0) * HEADS
    tile_row = tl.arange(0, HEADS * TILE) % TILE
    tile_head = tl.arange(0, HEADS * TILE) // TILE
    column = tl.arange(0, WIDTH)
    inside = tile_row < rows
    inside_q = _inside(inside, column, D, WIDTH)
    row_i = first + tile_row
    row = tl.cast(first, tl.int64) + tile_row
    span = row_i - tl.load(start_ptr + row_i, mask=inside, other=first)
    if HAS_WINDOW:
        span = tl.minimum(span, window - 1)
    q_ptrs = _at(q_ptr, row, Q_STRIDE, head + tile_head, D, column)
    q = tl.load(q_ptrs, mask=inside_q, other=0.0)

    block_row = tl.arange(0, BLOCK)
    k_ptrs = _at(k_ptr + head // GROUP * D, block_row, K_STRIDE, 0, D, column)
    v_ptrs = _at(v_ptr + head // GROUP * D, block_row, V_STRIDE, 0, D, column)
    highest = tl.full([HEADS * TILE], NOTHING, tl.float32)
    total = tl.zeros([HEADS * TILE], tl.float32)
    o = tl.zeros([HEADS * TILE, WIDTH], tl.float32)
    for key in tl.range(lowest, past, BLOCK):
        row_j = key + block_row
        inside_k = _inside(row_j < past, column, D, WIDTH)
        k = tl.load(k_ptrs + tl.cast(key, tl.int64) * K_STRIDE, mask=inside_k, other=0.0)
        scores = dot(q, tl.trans(k), tl.zeros([HEADS * TILE, BLOCK], tl.float32), PRECISION)
        if HAS_CAP:
            scores = safe_tanh(scores, cap_factor) * cap
        hidden = float("-inf")
        scores = _hide(scores, hidden, row_i[:, None], row_j[None, :], span[:, None], key, clear_from, clear_to, BRANCH)
        higher = tl.maximum(highest, tl.max(scores, 1) * factor)
        p = tl.exp2(scores * factor - higher[:, None])
        shrink = tl.exp2(highest - higher)
        highest = higher
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptrs + tl.cast(key, tl.int64) * V_STRIDE, mask=inside_k, other=0.0)
        o = dot(p.to(v.dtype), v, o * shrink[:, None], PRECISION)

    if HAS_SINKS:  # a key more, without a value
        sink = tl.load(sinks_ptr + head + tile_head) * LOG2_E
        higher = tl.maximum(highest, sink)
        shrink = tl.exp2(highest - higher)
        highest = higher
        total = total * shrink + tl.exp2(sink - higher)
        o *= shrink[:, None]
    statistics = (head + tile_head) * tl.cast(T, tl.int64) + row_i
    tl.store(lse_ptr + statistics, (highest + tl.log2(total)) / LOG2_E, mask=inside)
    o_ptrs = _at(o_ptr, row, O_STRIDE, head + tile_head, D, column)
    tl.store(o_ptrs, (o / total[:, None]).to(o_ptr.dtype.element_ty), mask=inside_q)


@triton.jit(do_not_specialize=["T", "window"])
def dq_kernel(
    q_ptr,  # [T, N, D]
    k_ptr,  # [T, M, D]
    v_ptr,  # [T, M, D]
    o_ptr,  # [T, N, D]
    do_ptr,  # [T, N, D]
    dq_ptr,  # [T, N, D], written
    lse_ptr,  # [N, T] fp32
    delta_ptr,  # [N, T] fp32, written
    start_ptr,  # [T] int32, first row of the row's document
    tiles_ptr,  # [tiles, 4] int32
    T,
    window,
    scale,
    factor,
    cap,
    cap_factor,
    Q_STRIDE: tl.constexpr,
    K_STRIDE: tl.constexpr,
    V_STRIDE: tl.constexpr,
    O_STRIDE: tl.constexpr,
    DO_STRIDE: tl.constexpr,
    DQ_STRIDE: tl.constexpr,
    GROUP: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    BRANCH: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_CAP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute dQ and delta of one tile of queries, for HEADS heads of a group."""
    first, rows, first_key, _ = _tile(tiles_ptr)
    if rows == 0:
        return
    past = first + rows
    lowest, clear_from, clear_to = _keys(start_ptr, first, past, first_key, window, BLOCK, HAS_WINDOW)
    head = tl.program_id(0) * HEADS
    tile_row = tl.arange(0, HEADS * TILE) % TILE
    tile_head = tl.arange(0, HEADS * TILE) // TILE
    column = tl.arange(0, WIDTH)
    inside = tile_row < rows
    inside_q = _inside(inside, column, D, WIDTH)
    row_i = first + tile_row
    row = tl.cast(first, tl.int64) + tile_row
    span = row_i - tl.load(start_ptr + row_i, mask=inside, other=first)
    if HAS_WINDOW:
        span = tl.minimum(span, window - 1)
    do_ptrs = _at(do_ptr, row, DO_STRIDE, head + tile_head, D, column)
    do = tl.load(do_ptrs, mask=inside_q, other=0.0)
    o_ptrs = _at(o_ptr, row, O_STRIDE, head + tile_head, D, column)
    o = tl.load(o_ptrs, mask=inside_q, other=0.0)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    statistics = (head + tile_head) * tl.cast(T, tl.int64) + row_i
    tl.store(delta_ptr + statistics, delta, mask=inside)
    lse = tl.load(lse_ptr + statistics, mask=inside, other=0.0) * LOG2_E
    q_ptrs = _at(q_ptr, row, Q_STRIDE, head + tile_head, D, column)
    q = tl.load(q_ptrs, mask=inside_q, other=0.0)

    block_row = tl.arange(0, BLOCK)
    k_ptrs = _at(k_ptr + head // GROUP * D, block_row, K_STRIDE, 0, D, column)
    v_ptrs = _at(v_ptr + head // GROUP * D, block_row, V_STRIDE, 0, D, column)
    dq = tl.zeros([HEADS * TILE, WIDTH], tl.float32)
    for key in tl.range(lowest, past, BLOCK):
        row_j = key + block_row
        inside_k = _inside(row_j < past, column, D, WIDTH)
        k = tl.load(k_ptrs + tl.cast(key, tl.int64) * K_STRIDE, mask=inside_k, other=0.0)
        v = tl.load(v_ptrs + tl.cast(key, tl.int64) * V_STRIDE, mask=inside_k, other=0.0)
        scores = dot(q, tl.trans(k), tl.zeros([HEADS * TILE, BLOCK], tl.float32), PRECISION)
        dp = dot(do, tl.trans(v), tl.zeros([HEADS * TILE, BLOCK], tl.float32), PRECISION)
        if HAS_CAP:
            tanh = safe_tanh(scores, cap_factor)
            scores = tanh * cap
        p = tl.exp2(scores * factor - lse[:, None])
        p = _hide(p, 0.0, row_i[:, None], row_j[None, :], span[:, None], key, clear_from, clear_to, BRANCH)
        ds = p * (dp - delta[:, None])
        if HAS_CAP:
            ds *= 1.0 - tanh * tanh
        dq = dot(ds.to(k.dtype), k, dq, PRECISION)

    dq_ptrs = _at(dq_ptr, row, DQ_STRIDE, head + tile_head, D, column)
    tl.store(dq_ptrs, (dq * scale).to(dq_ptr.dtype.element_ty), mask=inside_q)


@triton.jit(do_not_specialize=["T", "window"])
def dkdv_kernel(
    q_ptr,  # [T, N, D]
    k_ptr,  # [T, M, D]
    v_ptr,  # [T, M, D]
    do_ptr,  # [T, N, D]
    dk_ptr,  # [T, M, D], written
    dv_ptr,  # [T, M, D], written
    lse_ptr,  # [N, T] fp32
    delta_ptr,  # [N, T] fp32
    end_ptr,  # [T] int32, one past the last row of the row's document
    tiles_ptr,  # [tiles, 4] int32
    T,
    window,
    scale,
    factor,
    cap,
    cap_factor,
    Q_STRIDE: tl.constexpr,
    K_STRIDE: tl.constexpr,
    V_STRIDE: tl.constexpr,
    DO_STRIDE: tl.constexpr,
    DK_STRIDE: tl.constexpr,
    DV_STRIDE: tl.constexpr,
    GROUP: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    BRANCH: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_CAP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute dK and dV of one tile of keys, summed over the heads of its group."""
    first, rows, _, past_query = _tile(tiles_ptr)
    if rows == 0:
        return
    QUERIES: tl.constexpr = BLOCK // HEADS
    kv_head = tl.program_id(0)
    tile_row = tl.arange(0, TILE)
    column = tl.arange(0, WIDTH)
    inside = tile_row < rows
    inside_k = _inside(inside, column, D, WIDTH)
    row_j = tl.where(inside, first + tile_row, past_query)  # rows past the tile: after all queries, so seen by none
    row = tl.cast(first, tl.int64) + tile_row
    span = tl.load(end_ptr + row_j, mask=inside, other=0)
    span = tl.where(inside, span - 1 - row_j, 0)
    # Blocks of queries that start in [clear_from, clear_to) see all keys of the tile.
    clear_from = first + rows - 1
    clear_to = tl.where(tl.load(end_ptr + first) == past_query, past_query - QUERIES + 1, 0)
    if HAS_WINDOW:
        span = tl.minimum(span, window - 1)
        past_query = tl.minimum(past_query, first + rows - 1 + window)
        clear_to = tl.minimum(clear_to, first + window - QUERIES + 1)
    k_ptrs = _at(k_ptr, row, K_STRIDE, kv_head, D, column)
    v_ptrs = _at(v_ptr, row, V_STRIDE, kv_head, D, column)
    k = tl.load(k_ptrs, mask=inside_k, other=0.0)
    v = tl.load(v_ptrs, mask=inside_k, other=0.0)

    block_row = tl.arange(0, BLOCK) % QUERIES
    block_head = kv_head * GROUP + tl.arange(0, BLOCK) // QUERIES
    q_ptrs = _at(q_ptr, block_row, Q_STRIDE, block_head, D, column)
    do_ptrs = _at(do_ptr, block_row, DO_STRIDE, block_head, D, column)
    statistics = block_head * tl.cast(T, tl.int64) + block_row
    lse_ptrs = lse_ptr + statistics
    delta_ptrs = delta_ptr + statistics
    dk = tl.zeros([TILE, WIDTH], tl.float32)
    dv = tl.zeros([TILE, WIDTH], tl.float32)
    blocks = (past_query - first + QUERIES - 1) // QUERIES
    for step in tl.range(0, blocks * (GROUP // HEADS)):
        query, head = _query_block(step, blocks, first, QUERIES, HEADS, GROUP)
        offset = head * tl.cast(T, tl.int64) + query
        row_i = query.to(tl.int32) + block_row
        inside_i = row_i < past_query
        inside_q = _inside(inside_i, column, D, WIDTH)
        q = tl.load(q_ptrs + (query * Q_STRIDE + head * D), mask=inside_q, other=0.0)
        do = tl.load(do_ptrs + (query * DO_STRIDE + head * D), mask=inside_q, other=0.0)
        lse = tl.load(lse_ptrs + offset, mask=inside_i, other=0.0) * LOG2_E
        delta = tl.load(delta_ptrs + offset, mask=inside_i, other=0.0)
        scores = dot(k, tl.trans(q), tl.zeros([TILE, BLOCK], tl.float32), PRECISION)
        if HAS_CAP:
            tanh = safe_tanh(scores, cap_factor)
            scores = tanh * cap
        p = tl.exp2(scores * factor - lse[None, :])
        p = _hide(p, 0.0, row_i[None, :], row_j[:, None], span[:, None], query, clear_from, clear_to, BRANCH)
        dv = dot(p.to(do.dtype), do, dv, PRECISION)
        dp = dot(v, tl.trans(do), tl.zeros([TILE, BLOCK], tl.float32), PRECISION)
        ds = p * (dp - delta[None, :])
        if HAS_CAP:
            ds *= 1.0 - tanh * tanh
        dk = dot(ds.to(q.dtype), q, dk, PRECISION)

    dk_ptrs = _at(dk_ptr, row, DK_STRIDE, kv_head, D, column)
    dv_ptrs = _at(dv_ptr, row, DV_STRIDE, kv_head, D, column)
    tl.store(dk_ptrs, (dk * scale).to(dk_ptr.dtype.element_ty), mask=inside_k)
    tl.store(dv_ptrs, dv.to(dv_ptr.dtype.element_ty), mask=inside_k)
