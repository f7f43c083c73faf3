"""Gated delta rule in Triton: what each chunk needs of itself, and what it puts out.

A chunk's new values solve (I + A) u' = beta (v - seen k S), with A the strictly lower products of its keys, times beta
and decay, and S the state before it. `delta_solve_kernel` inverts I + A in fp32: both halves by forward
substitution, then one product for the block below. `delta_project_kernel` sends keys and values through the inverse, so
that u' = u - w S. `scan` finds the states one after the other; `delta_output_kernel` reads them.

Documents are told apart by masks within a chunk and by factors that are exactly 0 between chunks, so that the grid
depends on the number of rows alone. Products of 16-bit tensors are summed in fp32; those of fp32 are true fp32.

The workspace's tensors are cut by chunks of whole rows: a row beyond T has beta 0. Head offsets are int64.
"""

from __future__ import annotations

import triton
import triton.language as tl

from burnish_kernels.attention.kernel import dot

_EPS = tl.constexpr(1e-6)


@triton.jit
def product(left, right, PRECISION: tl.constexpr):
    """Return a matrix product; precision as for `dot`."""
    return dot(left, right, tl.zeros([left.shape[0], right.shape[1]], tl.float32), PRECISION)


@triton.jit
def at(pointer, first, stride, row, column):
    """Return pointers to a tile of rows behind the row `first`, an int64: within a tile offsets are int32."""
    return pointer + first * stride + (row[:, None] * stride + column[None, :])


@triton.jit
def rates(b_ptr, a_ptr, a_log_ptr, dt_bias_ptr, start_ptr, head, row, T, b_stride, a_stride):
    """Return each row's first row of its document, beta, g (0 at that first row), and g's slope by a."""
    inside = row < T
    start = tl.load(start_ptr + row, mask=inside, other=T)
    b = tl.load(b_ptr + row.to(tl.int64) * b_stride + head, mask=inside, other=0.0)
    a = tl.load(a_ptr + row.to(tl.int64) * a_stride + head, mask=inside, other=0.0)
    beta = tl.where(inside, tl.sigmoid(b.to(tl.float32)).to(b.dtype).to(tl.float32), 0.0)
    x = a.to(tl.float32) + tl.load(dt_bias_ptr + head)
    rate = -tl.exp(tl.load(a_log_ptr + head))
    softplus = tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))
    decays = inside & (start != row)
    return start, beta, tl.where(decays, rate * softplus, 0.0), tl.where(decays, rate * tl.sigmoid(x), 0.0)


@triton.jit
def decay(later_sum, earlier_sum, same):
    """Return the decay between two rows of a document; 0 where they are none."""
    return tl.where(same, tl.exp(tl.where(same, later_sum - earlier_sum, 0.0)), 0.0)


@triton.jit
def normalized(x):
    """Return rows of length 1, in fp32, and the factors that made them so."""
    factor = tl.rsqrt(tl.sum(x * x, axis=1) + _EPS)
    return x * factor[:, None], factor


@triton.jit
def pair_decay(gates_ptr, start_ptr, chunk, T, CHUNK: tl.constexpr):
    """Return the decay from each row of a chunk (first dimension) to the later ones of its document."""
    row = tl.arange(0, CHUNK)
    place = chunk * CHUNK + row
    total = tl.load(gates_ptr + place)
    start = tl.load(start_ptr + place, mask=place < T, other=T)
    same = (start[:, None] == start[None, :]) & (row[:, None] <= row[None, :])
    return decay(total[None, :], total[:, None], same)


@triton.jit
def pair_products(
    left_ptr,
    right_ptr,
    first,
    CHUNK: tl.constexpr,
    D: tl.constexpr,
    SLICE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return the products of a chunk's normalized rows, those of the left tensor along the first dimension."""
    row = tl.arange(0, CHUNK)
    total = tl.zeros([CHUNK, CHUNK], tl.float32)
    for key in range(0, D, SLICE):
        column = key + tl.arange(0, SLICE)
        left = tl.load(at(left_ptr, first, D, row, column))
        total = dot(left, tl.trans(tl.load(at(right_ptr, first, D, row, column))), total, PRECISION)
    return total


@triton.jit
def _factor(from_ptr, row, T, stride, D: tl.constexpr):
    """Return what rows are multiplied by to have length 1."""
    place = row.to(tl.int64)[:, None] * stride + tl.arange(0, D)[None, :]
    _, factor = normalized(tl.load(from_ptr + place, mask=(row < T)[:, None], other=0.0).to(tl.float32))
    return factor


@triton.jit
def _unit_rows(from_ptr, to_ptr, factor, row, T, stride, key, D: tl.constexpr, SLICE: tl.constexpr, STORES):
    """Return a slice of normalized rows in the tensors' type, and store it where wanted."""
    column = key + tl.arange(0, SLICE)[None, :]
    x = tl.load(from_ptr + row.to(tl.int64)[:, None] * stride + column, mask=(row < T)[:, None], other=0.0)
    unit = (x.to(tl.float32) * factor[:, None]).to(x.dtype)
    tl.store(to_ptr + row.to(tl.int64)[:, None] * D + column, unit, mask=STORES & (row >= 0)[:, None])
    return unit


@triton.jit
def _inverse(system, HALF: tl.constexpr):
    """Return the inverse of I plus a strictly lower matrix that is given transposed."""
    i = tl.arange(0, HALF)[:, None]
    j = tl.arange(0, HALF)[None, :]
    found = tl.where(i == j, 1.0, 0.0)
    for row in range(1, HALF):
        weights = tl.sum(tl.where(j == row, system, 0.0), axis=1)
        change = tl.sum(weights[:, None] * found, axis=0)
        found -= tl.where(i == row, change[None, :], 0.0)
    return found


@triton.jit(do_not_specialize=["T", "chunks"], do_not_specialize_on_alignment=["b_ptr", "a_ptr"])
def delta_solve_kernel(
    q_ptr,  # [T, G D], rows as of k
    k_ptr,  # [T, G D]
    b_ptr,  # [T, W]
    a_ptr,  # [T, W]
    a_log_ptr,  # [W]
    dt_bias_ptr,  # [W]
    start_ptr,  # [T] int32
    gates_ptr,  # [4, W, P]
    unit_q_ptr,  # [G, P, D]
    unit_k_ptr,  # [G, P, D]
    inverse_ptr,  # [W, P, CHUNK]
    T,
    chunks,
    qkv_stride,
    b_stride,
    a_stride,
    W: tl.constexpr,
    SHARED: tl.constexpr,
    CHUNK: tl.constexpr,
    D: tl.constexpr,
    SLICE: tl.constexpr,
    PRECISION: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Compute a chunk's gates, normalized queries and keys, and the inverse of its system, for one value head."""
    HALF: tl.constexpr = CHUNK // 2
    chunk = tl.program_id(0) // W
    head = tl.program_id(0) % W
    rows = (chunks * CHUNK).to(tl.int64)
    half = tl.arange(0, HALF)
    top = chunk * CHUNK + half
    low = top + HALF
    start_top, beta_top, g_top, _ = rates(
        b_ptr, a_ptr, a_log_ptr, dt_bias_ptr, start_ptr, head, top, T, b_stride, a_stride
    )
    start_low, beta_low, g_low, _ = rates(
        b_ptr, a_ptr, a_log_ptr, dt_bias_ptr, start_ptr, head, low, T, b_stride, a_stride
    )
    not_later = half[None, :] <= half[:, None]
    within_top = (start_top[:, None] == start_top[None, :]) & not_later
    within_low = (start_low[:, None] == start_low[None, :]) & not_later
    across = start_low[:, None] == start_top[None, :]
    sum_top = tl.sum(tl.where(within_top, g_top[None, :], 0.0), axis=1)
    sum_low = tl.sum(tl.where(within_low, g_low[None, :], 0.0), axis=1)
    sum_low += tl.sum(tl.where(across, g_top[None, :], 0.0), axis=1)

    # What of the state before the chunk a row sees, and what of a row is left in the state behind it.
    first = chunk * CHUNK
    last_sum = tl.sum(tl.where(half == HALF - 1, sum_low, 0.0), axis=0)
    last_start = tl.sum(tl.where(half == HALF - 1, start_low, 0), axis=0)
    gates = gates_ptr + head * rows
    plane = W * rows
    tl.store(gates + top, sum_top)
    tl.store(gates + low, sum_low)
    tl.store(gates + plane + top, beta_top)
    tl.store(gates + plane + low, beta_low)
    tl.store(gates + 2 * plane + top, tl.where(start_top < first, tl.exp(sum_top), 0.0))
    tl.store(gates + 2 * plane + low, tl.where(start_low < first, tl.exp(sum_low), 0.0))
    tl.store(gates + 3 * plane + top, decay(last_sum, sum_top, start_top == last_start))
    tl.store(gates + 3 * plane + low, decay(last_sum, sum_low, start_low == last_start))

    group = head // SHARED
    stores = head % SHARED == 0
    q_ptr += group * D
    k_ptr += group * D
    q_to = unit_q_ptr + group * rows * D
    k_to = unit_k_ptr + group * rows * D
    if stores:
        q_factor_top = _factor(q_ptr, top, T, qkv_stride, D)
        q_factor_low = _factor(q_ptr, low, T, qkv_stride, D)
        for key in range(0, D, SLICE):
            _unit_rows(q_ptr, q_to, q_factor_top, top, T, qkv_stride, key, D, SLICE, True)
            _unit_rows(q_ptr, q_to, q_factor_low, low, T, qkv_stride, key, D, SLICE, True)
    factor_top = _factor(k_ptr, top, T, qkv_stride, D)
    factor_low = _factor(k_ptr, low, T, qkv_stride, D)
    system_top = tl.zeros([HALF, HALF], tl.float32)
    system_low = tl.zeros([HALF, HALF], tl.float32)
    below = tl.zeros([HALF, HALF], tl.float32)
    for key in range(0, D, SLICE):
        k_top = _unit_rows(k_ptr, k_to, factor_top, top, T, qkv_stride, key, D, SLICE, stores)
        k_low = _unit_rows(k_ptr, k_to, factor_low, low, T, qkv_stride, key, D, SLICE, stores)
        system_top = dot(k_top, tl.trans(k_top), system_top, PRECISION)
        system_low = dot(k_low, tl.trans(k_low), system_low, PRECISION)
        below = dot(k_low, tl.trans(k_top), below, PRECISION)

    # The systems are transposed: the later row along the second dimension.
    earlier = half[:, None] < half[None, :]
    system_top *= beta_top[None, :]
    system_top *= decay(sum_top[None, :], sum_top[:, None], (start_top[:, None] == start_top[None, :]) & earlier)
    system_low *= beta_low[None, :]
    system_low *= decay(sum_low[None, :], sum_low[:, None], (start_low[:, None] == start_low[None, :]) & earlier)
    below *= beta_low[:, None]
    below *= decay(sum_low[:, None], sum_top[None, :], across)

    inverse_top = _inverse(system_top, HALF)
    inverse_low = _inverse(system_low, HALF)
    inverse_below = -product(product(inverse_low, below, EXACT), inverse_top, EXACT)
    TYPE: tl.constexpr = inverse_ptr.dtype.element_ty
    to = inverse_ptr + (head * rows + first) * CHUNK + half[:, None] * CHUNK + half[None, :]
    tl.store(to, inverse_top.to(TYPE))
    tl.store(to + HALF, tl.zeros([HALF, HALF], TYPE))
    tl.store(to + HALF * CHUNK, inverse_below.to(TYPE))
    tl.store(to + HALF * CHUNK + HALF, inverse_low.to(TYPE))


@triton.jit(do_not_specialize=["T", "chunks"])
def delta_project_kernel(
    v_ptr,  # [T, W E]
    do_ptr,  # [T, W E], read only with BACKWARD
    start_ptr,  # [T] int32
    gates_ptr,  # [4, W, P]
    unit_q_ptr,  # [G, P, D], read only with BACKWARD
    unit_k_ptr,  # [G, P, D]
    inverse_ptr,  # [W, P, CHUNK]
    w_ptr,  # [W, P, D]
    u_ptr,  # [W, P, E]
    du_ptr,  # [W, P, E], written only with BACKWARD
    T,
    chunks,
    qkv_stride,
    do_stride,
    scale,
    W: tl.constexpr,
    SHARED: tl.constexpr,
    CHUNK: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    BLOCK: tl.constexpr,
    SLICE: tl.constexpr,
    BACKWARD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Send a chunk's keys and values through its inverse, for one value head.

    With BACKWARD also compute what the chunk's own outputs contribute to the gradient of its new values.
    """
    TYPE: tl.constexpr = w_ptr.dtype.element_ty
    chunk = tl.program_id(0) // W
    head = tl.program_id(0) % W
    group = head // SHARED
    rows = (chunks * CHUNK).to(tl.int64)
    lane = tl.arange(0, CHUNK)
    first = (chunk * CHUNK).to(tl.int64)
    of_head = head * rows + first
    of_group = group * rows + first
    inside = (first + lane < T)[:, None]
    gates = gates_ptr + head * rows
    beta = tl.load(gates + W * rows + first + lane)
    seen = tl.load(gates + 2 * W * rows + first + lane)
    inverse = tl.load(at(inverse_ptr, of_head, CHUNK, lane, lane))
    for key in range(0, D, SLICE):
        column = key + tl.arange(0, SLICE)
        k = tl.load(at(unit_k_ptr, of_group, D, lane, column))
        w = product(inverse, (k * (beta * seen)[:, None]).to(TYPE), PRECISION)
        tl.store(at(w_ptr, of_head, D, lane, column), w.to(TYPE))
    for value in range(0, E, BLOCK):
        column = value + tl.arange(0, BLOCK)
        v = tl.load(at(v_ptr + head * E, first, qkv_stride, lane, column), mask=inside, other=0.0)
        u = product(inverse, (v * beta[:, None]).to(TYPE), PRECISION)
        tl.store(at(u_ptr, of_head, E, lane, column), u.to(TYPE))
    if BACKWARD:
        reads = pair_products(unit_k_ptr, unit_q_ptr, of_group, CHUNK, D, SLICE, PRECISION) * scale
        reads = (reads * pair_decay(gates, start_ptr, chunk, T, CHUNK)).to(TYPE)
        for value in range(0, E, BLOCK):
            column = value + tl.arange(0, BLOCK)
            do = tl.load(at(do_ptr + head * E, first, do_stride, lane, column), mask=inside, other=0.0)
            du = product(reads, do, PRECISION)
            tl.store(at(du_ptr, of_head, E, lane, column), du.to(TYPE))


@triton.jit(do_not_specialize=["T", "chunks"])
def delta_output_kernel(
    start_ptr,  # [T] int32
    gates_ptr,  # [4, W, P]
    unit_q_ptr,  # [G, P, D]
    unit_k_ptr,  # [G, P, D]
    w_ptr,  # [W, P, D]
    u_ptr,  # [W, P, E]
    states_ptr,  # [W, N, D, E]
    o_ptr,  # [T, W E]
    T,
    chunks,
    o_stride,
    scale,
    W: tl.constexpr,
    SHARED: tl.constexpr,
    CHUNK: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    BLOCK: tl.constexpr,
    SLICE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute a chunk's output for one value head: what its rows read from the state, and from each other."""
    TYPE: tl.constexpr = o_ptr.dtype.element_ty
    chunk = tl.program_id(0) // W
    head = tl.program_id(0) % W
    group = head // SHARED
    rows = (chunks * CHUNK).to(tl.int64)
    lane = tl.arange(0, CHUNK)
    first = (chunk * CHUNK).to(tl.int64)
    of_head = head * rows + first
    of_group = group * rows + first
    gates = gates_ptr + head * rows
    seen = tl.load(gates + 2 * W * rows + first + lane) * scale
    reads = pair_products(unit_k_ptr, unit_q_ptr, of_group, CHUNK, D, SLICE, PRECISION) * scale
    reads = tl.trans((reads * pair_decay(gates, start_ptr, chunk, T, CHUNK)).to(TYPE))
    for value in range(0, E, BLOCK):
        column = value + tl.arange(0, BLOCK)
        known = tl.zeros([CHUNK, BLOCK], tl.float32)
        o = tl.zeros([CHUNK, BLOCK], tl.float32)
        for key in range(0, D, SLICE):
            key_lane = key + tl.arange(0, SLICE)
            state = tl.load(at(states_ptr, of_head // CHUNK * D, E, key_lane, column)).to(TYPE)
            known = dot(tl.load(at(w_ptr, of_head, D, lane, key_lane)), state, known, PRECISION)
            o = dot(tl.load(at(unit_q_ptr, of_group, D, lane, key_lane)), state, o, PRECISION)
        u = tl.load(at(u_ptr, of_head, E, lane, column)).to(tl.float32)
        o = dot(reads, (u - known).to(TYPE), o * seen[:, None], PRECISION)
        to = at(o_ptr + head * E, first, o_stride, lane, column)
        tl.store(to, o.to(TYPE), mask=(first + lane < T)[:, None])
