"""Gated delta rule in Triton: what each chunk needs of itself, and what it puts out.

A chunk's new values solve (I + A) u' = beta (v - seen k S), with A the strictly lower products of its keys, times beta
and decay, and S the state before it. `delta_solve_kernel` inverts I + A in fp32: blocks of 16 on the diagonal side by
side by forward substitution, then blocks below them by products. `delta_project_kernel` sends keys and values through
the inverse, so that u' = u - w S. `scan` finds the states one after the other; `delta_output_kernel` reads them.

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
def _unit_rows(from_ptr, to_ptr, row, T, stride, D: tl.constexpr, STORES):
    """Return normalized rows in the tensors' type, and store them where wanted."""
    column = tl.arange(0, D)[None, :]
    x = tl.load(from_ptr + row.to(tl.int64)[:, None] * stride + column, mask=(row < T)[:, None], other=0.0)
    unit = normalized(x.to(tl.float32))[0].to(x.dtype)
    tl.store(to_ptr + row.to(tl.int64)[:, None] * D + column, unit, mask=STORES & (row >= 0)[:, None])
    return unit


@triton.jit
def _sum_of_document(begun, total, begins, more):
    """Add up within a document: what came before one that begins does not count."""
    return begun | begins, tl.where(begins, more, total + more)


@triton.jit
def _blocks(system, BLOCKS: tl.constexpr, BELOW: tl.constexpr):
    """Return the blocks on the diagonal of a square matrix, or BELOW blocks below it; the first of those are 0."""
    SIZE: tl.constexpr = system.shape[0] // BLOCKS
    block = tl.arange(0, BLOCKS)
    wanted = block[:, None, None, None] == block[None, None, :, None] + BELOW
    return tl.sum(tl.where(wanted, tl.reshape(system, [BLOCKS, SIZE, BLOCKS, SIZE]), 0.0), axis=2)


@triton.jit
def _inverse(system):
    """Return the inverses of I plus strictly lower matrices [blocks, SIZE, SIZE], by forward substitution."""
    SIZE: tl.constexpr = system.shape[1]
    i = tl.arange(0, SIZE)[None, :, None]
    j = tl.arange(0, SIZE)[None, None, :]
    found = tl.where(i == j, 1.0, 0.0) + tl.zeros_like(system)
    for row in tl.static_range(0, SIZE - 1):
        weights = tl.sum(tl.where(j == row, system, 0.0), axis=2)
        solved = tl.sum(tl.where(i == row, found, 0.0), axis=1)
        found -= weights[:, :, None] * solved[:, None, :]
    return found


@triton.jit
def _pairs(blocks):
    """Return the even and the odd of some matrices [blocks, SIZE, SIZE]."""
    shape: tl.constexpr = [blocks.shape[0] // 2, 2, blocks.shape[1], blocks.shape[2]]
    return tl.split(tl.permute(tl.reshape(blocks, shape), 0, 2, 3, 1))


@triton.jit
def _merged(inverse, system, PRECISION: tl.constexpr):
    """Return the inverses of I plus the system's blocks of twice the size, from those of the blocks."""
    HALF: tl.constexpr = inverse.shape[0] // 2
    SIZE: tl.constexpr = inverse.shape[1]
    _, below = _pairs(_blocks(system, 2 * HALF, 1))
    first, second = _pairs(inverse)
    zeros = tl.zeros([HALF, SIZE, SIZE], tl.float32)
    below = -dot(dot(second, below, zeros, PRECISION), first, zeros, PRECISION)
    left = tl.reshape(tl.permute(tl.join(first, below), 0, 3, 1, 2), [HALF, 2 * SIZE, SIZE])
    right = tl.reshape(tl.permute(tl.join(zeros, second), 0, 3, 1, 2), [HALF, 2 * SIZE, SIZE])
    return tl.reshape(tl.permute(tl.join(left, right), 0, 1, 3, 2), [HALF, 2 * SIZE, 2 * SIZE])


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
    PRECISION: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Compute a chunk's gates, normalized queries and keys, and the inverse of its system, for one value head."""
    chunk = tl.program_id(0) // W
    head = tl.program_id(0) % W
    rows = (chunks * CHUNK).to(tl.int64)
    first = chunk * CHUNK
    lane = tl.arange(0, CHUNK)
    row = first + lane
    start, beta, g, _ = rates(b_ptr, a_ptr, a_log_ptr, dt_bias_ptr, start_ptr, head, row, T, b_stride, a_stride)
    same = start[:, None] == start[None, :]
    _, total = tl.associative_scan(((start == row) & (row < T), g), 0, _sum_of_document)

    # What of the state before the chunk a row sees, and what of a row is left in the state behind it.
    last_total = tl.sum(tl.where(lane == CHUNK - 1, total, 0.0), axis=0)
    last_start = tl.sum(tl.where(lane == CHUNK - 1, start, 0), axis=0)
    gates = gates_ptr + head * rows + row
    plane = W * rows
    tl.store(gates, total)
    tl.store(gates + plane, beta)
    tl.store(gates + 2 * plane, tl.where(start < first, tl.exp(total), 0.0))
    tl.store(gates + 3 * plane, decay(last_total, total, start == last_start))

    group = head // SHARED
    stores = head % SHARED == 0
    if stores:
        _unit_rows(q_ptr + group * D, unit_q_ptr + group * rows * D, row, T, qkv_stride, D, True)
    k = _unit_rows(k_ptr + group * D, unit_k_ptr + group * rows * D, row, T, qkv_stride, D, stores)
    system = product(k, tl.trans(k), PRECISION) * beta[:, None]
    system *= decay(total[:, None], total[None, :], same & (lane[:, None] > lane[None, :]))

    HALF: tl.constexpr = CHUNK // 2
    TYPE: tl.constexpr = inverse_ptr.dtype.element_ty
    inverses = _inverse(_blocks(system, CHUNK // 16, 0))
    if HALF == 32:
        inverses = _merged(inverses, system, EXACT)
    top, low = _pairs(inverses)
    _, below = _pairs(_blocks(system, 2, 1))
    top, low, below = tl.reshape(top, [HALF, HALF]), tl.reshape(low, [HALF, HALF]), tl.reshape(below, [HALF, HALF])
    below = -product(product(low, below, EXACT), top, EXACT)
    to = at(inverse_ptr, head * rows + first, CHUNK, tl.arange(0, HALF), tl.arange(0, HALF))
    tl.store(to, top.to(TYPE))
    tl.store(to + HALF, tl.zeros([HALF, HALF], TYPE))
    tl.store(to + HALF * CHUNK, below.to(TYPE))
    tl.store(to + HALF * CHUNK + HALF, low.to(TYPE))


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
