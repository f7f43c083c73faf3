"""Gradients of a gated delta rule's inputs in Triton: of values and gates first, then of queries and keys.

With S the state before the chunk and x = beta (v - seen k S), the new values are u' = (I + A)^-1 x. So the gradient of
x is dx = (I + A)^-T du', and that of A is -dx u'^T: neither needs the inverse's gradient. A row of u' is proportional
to its beta, so that beta's gradient times beta is dx u'.

The gradient of g's sum at a row goes over pairs of rows of a document and over both states; that of g at a row is the
sum over the later rows of its document.

`delta_dvalues_kernel` has a program for a chunk and a value head. In place of what it read, it leaves what goes through
states and pairs of rows to `delta_ddecays_kernel`, which has the same programs, and to `delta_dkeys_kernel`, which has
one for a chunk and a key head with all it serves. Three kernels, because one has too few registers for two programs on
a multiprocessor.
"""

from __future__ import annotations

import triton
import triton.language as tl

from burnish_kernels.attention.kernel import dot
from burnish_kernels.delta_rule.kernel import at, normalized, pair_products, product, rates


@triton.jit
def _raw_gradient(dunit, x):
    """Return the gradient of rows that were normalized, from that of the normalized ones."""
    unit, factor = normalized(x.to(tl.float32))
    return (dunit - unit * tl.sum(unit * dunit, axis=1)[:, None]) * factor[:, None]


@triton.jit
def _decayed(gates, start_ptr, chunk, T, CHUNK: tl.constexpr):
    """Return the decay between two rows of a chunk, whichever is later; 0 where a document ends between them."""
    lane = tl.arange(0, CHUNK)
    place = chunk * CHUNK + lane
    start = tl.load(start_ptr + place, mask=place < T, other=T)
    total = tl.load(gates + place)
    same = start[:, None] == start[None, :]
    return tl.where(same, tl.exp(-tl.abs(total[:, None] - total[None, :])), 0.0)


@triton.jit(do_not_specialize=["T", "chunks"], do_not_specialize_on_alignment=["db_ptr"])
def delta_dvalues_kernel(
    do_ptr,  # [T, W E]
    v_ptr,  # [T, W E]
    start_ptr,  # [T] int32
    gates_ptr,  # [4, W, P]; in place of beta the gradient of g's sums, as far as keys pass it through states
    unit_k_ptr,  # [G, P, D]
    inverse_ptr,  # [W, P, CHUNK]; behind it the gradients of pairs: reads, and below the diagonal the system's
    u_ptr,  # [W, P, E], written: new values, as far as they are left behind the chunk
    du_ptr,  # [W, P, E], without what comes from the state behind; behind it the gradient of what keys ask
    states_ptr,  # [W, N, D, E]
    dstates_ptr,  # [W, N, D, E]
    dv_ptr,  # [T, W E]
    db_ptr,  # [T, W]
    T,
    chunks,
    do_stride,
    qkv_stride,
    dqkv_stride,
    db_stride,
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
    """Compute the gradients of a chunk's values and betas for one value head."""
    TYPE: tl.constexpr = u_ptr.dtype.element_ty
    chunk = tl.program_id(0) // W
    head = tl.program_id(0) % W
    rows = (chunks * CHUNK).to(tl.int64)
    lane = tl.arange(0, CHUNK)
    first = (chunk * CHUNK).to(tl.int64)
    of_head = head * rows + first
    of_group = head // SHARED * rows + first
    inside = (first + lane < T)[:, None]
    gates = gates_ptr + head * rows
    beta = tl.load(gates + W * rows + first + lane)
    seen = tl.load(gates + 2 * W * rows + first + lane)
    left = tl.load(gates + 3 * W * rows + first + lane)
    kept = tl.load(gates + 2 * W * rows + first + CHUNK - 1)
    inverse = tl.load(at(inverse_ptr, of_head, CHUNK, lane, lane))
    dreads = tl.zeros([CHUNK, CHUNK], tl.float32)  # [earlier row, later row]
    dsystem = tl.zeros([CHUNK, CHUNK], tl.float32)  # [later row, earlier row], times -1
    dlog_beta = tl.zeros([CHUNK], tl.float32)
    dsum = tl.zeros([CHUNK], tl.float32)
    behind = 0.0  # of g's sum at the last row, through the state behind
    for value in range(0, E, BLOCK):
        column = value + tl.arange(0, BLOCK)
        asked = tl.zeros([CHUNK, BLOCK], tl.float32)
        told = tl.zeros([CHUNK, BLOCK], tl.float32)
        for slice_first in range(0, D, SLICE):
            key = slice_first + tl.arange(0, SLICE)
            k = tl.load(at(unit_k_ptr, of_group, D, lane, key))
            state = tl.load(at(states_ptr, of_head // CHUNK * D, E, key, column))
            dstate = tl.load(at(dstates_ptr, of_head // CHUNK * D, E, key, column))
            asked = dot(k, state, asked, PRECISION)
            told = dot(k, dstate, told, PRECISION)
            behind += kept * tl.sum(tl.sum(state.to(tl.float32) * dstate.to(tl.float32), axis=1), axis=0)
        asked *= seen[:, None]
        told *= left[:, None]

        # The values' gradient may take the place of the values: it is stored behind the product that has read them all.
        v = tl.load(at(v_ptr + head * E, first, qkv_stride, lane, column), mask=inside, other=0.0)
        new = product(inverse, ((v.to(tl.float32) - asked) * beta[:, None]).to(TYPE), PRECISION)
        tl.store(at(u_ptr, of_head, E, lane, column), (new * left[:, None]).to(TYPE))

        du = tl.load(at(du_ptr, of_head, E, lane, column)).to(tl.float32)
        dx = product(tl.trans(inverse), (du + told).to(TYPE), PRECISION)
        to = at(dv_ptr + head * E, first, dqkv_stride, lane, column)
        tl.store(to, (dx * beta[:, None]).to(TYPE), mask=inside)
        tl.store(at(du_ptr, of_head, E, lane, column), (dx * (-seen * beta)[:, None]).to(TYPE))
        leaving = tl.sum(new * told, axis=1)
        behind += tl.sum(leaving, axis=0)
        dsum -= leaving + tl.sum(dx * asked, axis=1) * beta
        dlog_beta += tl.sum(dx * new, axis=1)
        do = tl.load(at(do_ptr + head * E, first, do_stride, lane, column), mask=inside, other=0.0)
        dreads = dot(new.to(TYPE), tl.trans(do), dreads, PRECISION)
        dsystem = dot(dx.to(TYPE), tl.trans(new.to(TYPE)), dsystem, PRECISION)

    # Pairs of rows: reads, which take rows from themselves on, above the system, which takes strictly earlier rows.
    pairs = tl.where(lane[:, None] <= lane[None, :], dreads * scale, dsystem * -beta[:, None])
    pairs *= _decayed(gates, start_ptr, chunk, T, CHUNK)
    tl.store(at(inverse_ptr, of_head, CHUNK, lane, lane), pairs.to(TYPE))
    tl.store(gates + W * rows + first + lane, dsum + tl.where(lane == CHUNK - 1, behind, 0.0))
    db = dlog_beta * (1.0 - beta)
    tl.store(db_ptr + first * db_stride + lane * db_stride + head, db.to(TYPE), mask=first + lane < T)


@triton.jit(do_not_specialize=["T", "chunks"], do_not_specialize_on_alignment=["b_ptr", "a_ptr", "da_ptr"])
def delta_ddecays_kernel(
    do_ptr,  # [T, W E]
    b_ptr,  # [T, W]
    a_ptr,  # [T, W]
    a_log_ptr,  # [W]
    dt_bias_ptr,  # [W]
    start_ptr,  # [T] int32
    gates_ptr,  # [4, W, P], as left by `delta_dvalues_kernel`
    unit_q_ptr,  # [G, P, D]
    unit_k_ptr,  # [G, P, D]
    inverse_ptr,  # [W, P, CHUNK], as left by `delta_dvalues_kernel`
    states_ptr,  # [W, N, D, E]
    da_ptr,  # [T, W]
    T,
    chunks,
    do_stride,
    b_stride,
    a_stride,
    da_stride,
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
    """Compute the gradient of what a chunk's decays are computed from, for one value head."""
    TYPE: tl.constexpr = unit_k_ptr.dtype.element_ty
    chunk = tl.program_id(0) // W
    head = tl.program_id(0) % W
    rows = (chunks * CHUNK).to(tl.int64)
    lane = tl.arange(0, CHUNK)
    first = (chunk * CHUNK).to(tl.int64)
    of_head = head * rows + first
    of_group = head // SHARED * rows + first
    place = chunk * CHUNK + lane
    gates = gates_ptr + of_head + lane
    seen = tl.load(gates + 2 * W * rows) * scale
    dsum = tl.load(gates + W * rows)
    for value in range(0, E, BLOCK):
        column = value + tl.arange(0, BLOCK)
        read = tl.zeros([CHUNK, BLOCK], tl.float32)
        for slice_first in range(0, D, SLICE):
            key = slice_first + tl.arange(0, SLICE)
            state = tl.load(at(states_ptr, of_head // CHUNK * D, E, key, column))
            read = dot(tl.load(at(unit_q_ptr, of_group, D, lane, key)), state, read, PRECISION)
        do = tl.load(at(do_ptr + head * E, first, do_stride, lane, column), mask=(place < T)[:, None], other=0.0)
        dsum += tl.sum(do.to(tl.float32) * read, axis=1) * seen

    pairs = tl.load(at(inverse_ptr, of_head, CHUNK, lane, lane)).to(tl.float32)
    by_reads = pair_products(unit_k_ptr, unit_q_ptr, of_group, CHUNK, D, SLICE, PRECISION)
    by_system = pair_products(unit_k_ptr, unit_k_ptr, of_group, CHUNK, D, SLICE, PRECISION)
    pairs *= tl.where(lane[:, None] <= lane[None, :], by_reads, -by_system)
    dsum += tl.sum(pairs, axis=0) - tl.sum(pairs, axis=1)

    start, _, _, slope = rates(b_ptr, a_ptr, a_log_ptr, dt_bias_ptr, start_ptr, head, place, T, b_stride, a_stride)
    later = (start[:, None] == start[None, :]) & (lane[:, None] >= lane[None, :])
    dg = tl.sum(tl.where(later, dsum[:, None], 0.0), axis=0)
    tl.store(da_ptr + first * da_stride + lane * da_stride + head, (dg * slope).to(TYPE), mask=place < T)


@triton.jit(do_not_specialize=["T", "chunks"])
def delta_dkeys_kernel(
    do_ptr,  # [T, W E]
    q_ptr,  # [T, G D], rows as of k
    k_ptr,  # [T, G D]
    gates_ptr,  # [4, W, P]
    unit_q_ptr,  # [G, P, D]
    unit_k_ptr,  # [G, P, D]
    inverse_ptr,  # [W, P, CHUNK], as left by `delta_dvalues_kernel`
    u_ptr,  # [W, P, E], the same
    du_ptr,  # [W, P, E], the same
    states_ptr,  # [W, N, D, E]
    dstates_ptr,  # [W, N, D, E]
    dq_ptr,  # [T, G D], rows as of dk
    dk_ptr,  # [T, G D]
    T,
    chunks,
    do_stride,
    qkv_stride,
    dqkv_stride,
    scale,
    W: tl.constexpr,
    SHARED: tl.constexpr,
    CHUNK: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute the gradients of a chunk's queries and keys for one key head."""
    TYPE: tl.constexpr = u_ptr.dtype.element_ty
    groups: tl.constexpr = W // SHARED
    chunk = tl.program_id(0) // groups
    group = tl.program_id(0) % groups
    rows = (chunks * CHUNK).to(tl.int64)
    lane = tl.arange(0, CHUNK)
    key = tl.arange(0, D)
    first = (chunk * CHUNK).to(tl.int64)
    inside = (first + lane < T)[:, None]
    q = tl.load(at(unit_q_ptr, group * rows + first, D, lane, key))
    k = tl.load(at(unit_k_ptr, group * rows + first, D, lane, key))
    reads = lane[:, None] <= lane[None, :]
    dq = tl.zeros([CHUNK, D], tl.float32)
    dk = tl.zeros([CHUNK, D], tl.float32)
    for served in range(SHARED):
        head = group * SHARED + served
        of_head = head * rows + first
        seen = tl.load(gates_ptr + (2 * W + head) * rows + first + lane) * scale
        for value in range(0, E, BLOCK):
            column = value + tl.arange(0, BLOCK)
            state = tl.load(at(states_ptr, of_head // CHUNK * D, E, key, column))
            dstate = tl.load(at(dstates_ptr, of_head // CHUNK * D, E, key, column))
            do = tl.load(at(do_ptr + head * E, first, do_stride, lane, column), mask=inside, other=0.0)
            dq = dot((do * seen[:, None]).to(TYPE), tl.trans(state), dq, PRECISION)
            dk = dot(tl.load(at(du_ptr, of_head, E, lane, column)), tl.trans(state), dk, PRECISION)
            dk = dot(tl.load(at(u_ptr, of_head, E, lane, column)), tl.trans(dstate), dk, PRECISION)
        pairs = tl.load(at(inverse_ptr, of_head, CHUNK, lane, lane))
        dreads = tl.where(reads, pairs, 0.0)
        dsystem = tl.where(reads, 0.0, pairs)
        dq = dot(tl.trans(dreads), k, dq, PRECISION)
        dk = dot(dreads, q, dk, PRECISION)
        dk = dot(dsystem + tl.trans(dsystem), k, dk, PRECISION)

    x = tl.load(at(q_ptr + group * D, first, qkv_stride, lane, key), mask=inside, other=0.0)
    tl.store(at(dq_ptr + group * D, first, dqkv_stride, lane, key), _raw_gradient(dq, x).to(TYPE), mask=inside)
    x = tl.load(at(k_ptr + group * D, first, qkv_stride, lane, key), mask=inside, other=0.0)
    tl.store(at(dk_ptr + group * D, first, dqkv_stride, lane, key), _raw_gradient(dk, x).to(TYPE), mask=inside)
