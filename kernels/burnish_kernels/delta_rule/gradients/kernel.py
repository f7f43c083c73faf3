"""Gradients of a gated delta rule's inputs in Triton: one program for a chunk and a key head, with all it serves.

With S the state before the chunk, S' the one behind it and x = beta (v - seen k S), the new values are u' = (I + A)^-1 x.
So the gradient of x is dx = (I + A)^-T du', and that of A is -dx u'^T: neither needs the inverse's gradient. A row of u'
is proportional to its beta, so that beta's gradient times beta is dx u'. The gradient of g's sum at each row goes over
pairs of rows of a document and over both states; that of g at a row is the sum over the later rows of its document.
"""

from __future__ import annotations

import triton
import triton.language as tl

from burnish_kernels.attention.kernel import dot
from burnish_kernels.delta_rule.kernel import at, normalized, pair_decay, pair_products, product, rates


@triton.jit
def _raw_gradient(dunit, x):
    """Return the gradient of rows that were normalized, from that of the normalized ones."""
    unit, factor = normalized(x.to(tl.float32))
    return (dunit - unit * tl.sum(unit * dunit, axis=1)[:, None]) * factor[:, None]


@triton.jit(do_not_specialize=["T", "chunks"], do_not_specialize_on_alignment=["b_ptr", "a_ptr", "db_ptr", "da_ptr"])
def delta_gradients_kernel(
    do_ptr,  # [T, W E]
    q_ptr,  # [T, G D], rows as of v
    k_ptr,  # [T, G D]
    v_ptr,  # [T, W E]
    b_ptr,  # [T, W]
    a_ptr,  # [T, W]
    a_log_ptr,  # [W]
    dt_bias_ptr,  # [W]
    start_ptr,  # [T] int32
    gates_ptr,  # [4, W, P]
    unit_q_ptr,  # [G, P, D]
    unit_k_ptr,  # [G, P, D]
    inverse_ptr,  # [W, P, CHUNK]
    du_ptr,  # [W, P, E], without what comes from the state behind
    states_ptr,  # [W, N, D, E]
    dstates_ptr,  # [W, N, D, E]
    dq_ptr,  # [T, G D], rows as of dv
    dk_ptr,  # [T, G D]
    dv_ptr,  # [T, W E]
    db_ptr,  # [T, W]
    da_ptr,  # [T, W]
    T,
    chunks,
    do_stride,
    qkv_stride,
    b_stride,
    a_stride,
    dqkv_stride,
    db_stride,
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
    """Compute the gradients of a chunk for one key head."""
    TYPE: tl.constexpr = unit_k_ptr.dtype.element_ty
    groups: tl.constexpr = W // SHARED
    chunk = tl.program_id(0) // groups
    group = tl.program_id(0) % groups
    rows = (chunks * CHUNK).to(tl.int64)
    lane = tl.arange(0, CHUNK)
    key_lane = tl.arange(0, D)
    first = (chunk * CHUNK).to(tl.int64)
    of_group = group * rows + first
    inside = (first + lane < T)[:, None]
    dq = tl.zeros([CHUNK, D], tl.float32)
    dk = tl.zeros([CHUNK, D], tl.float32)
    for served in range(0, SHARED):
        head = group * SHARED + served
        of_head = head * rows + first
        gates = gates_ptr + head * rows
        beta = tl.load(gates + W * rows + first + lane)
        seen = tl.load(gates + 2 * W * rows + first + lane)
        left = tl.load(gates + 3 * W * rows + first + lane)
        kept = tl.load(gates + 2 * W * rows + first + CHUNK - 1)
        dreads = tl.zeros([CHUNK, CHUNK], tl.float32)  # [earlier row, later row]
        dsystem = tl.zeros([CHUNK, CHUNK], tl.float32)  # the same
        dlog_beta = tl.zeros([CHUNK], tl.float32)
        dsum = tl.zeros([CHUNK], tl.float32)  # of g's sum at each row
        behind = 0.0  # of g's sum at the last row, through the state behind
        for value in range(0, E, BLOCK):
            column = value + tl.arange(0, BLOCK)
            asked = tl.zeros([CHUNK, BLOCK], tl.float32)
            read = tl.zeros([CHUNK, BLOCK], tl.float32)
            told = tl.zeros([CHUNK, BLOCK], tl.float32)
            for key in range(0, D, SLICE):
                slice_key = key + tl.arange(0, SLICE)
                k = tl.load(at(unit_k_ptr, of_group, D, lane, slice_key))
                q = tl.load(at(unit_q_ptr, of_group, D, lane, slice_key))
                state = tl.load(at(states_ptr, of_head // CHUNK * D, E, slice_key, column))
                dstate = tl.load(at(dstates_ptr, of_head // CHUNK * D, E, slice_key, column))
                asked = dot(k, state, asked, PRECISION)
                told = dot(k, dstate, told, PRECISION)
                read = dot(q, state, read, PRECISION)
                both = state.to(tl.float32) * dstate.to(tl.float32)
                behind += kept * tl.sum(tl.sum(both, axis=1), axis=0)
            v = tl.load(at(v_ptr + head * E, first, qkv_stride, lane, column), mask=inside, other=0.0)
            do = tl.load(at(do_ptr + head * E, first, do_stride, lane, column), mask=inside, other=0.0)
            du = tl.load(at(du_ptr, of_head, E, lane, column)).to(tl.float32)
            inverse = tl.load(at(inverse_ptr, of_head, CHUNK, lane, lane))
            x = (v.to(tl.float32) - asked * seen[:, None]) * beta[:, None]
            new = product(inverse, x.to(TYPE), PRECISION)
            dx = product(tl.trans(inverse), (du + told * left[:, None]).to(TYPE), PRECISION)
            to = at(dv_ptr + head * E, first, dqkv_stride, lane, column)
            tl.store(to, (dx * beta[:, None]).to(TYPE), mask=inside)

            dlog_beta += tl.sum(dx * new, axis=1)
            dsum += tl.sum(do.to(tl.float32) * read, axis=1) * seen * scale
            dsum -= tl.sum(dx * asked, axis=1) * seen * beta
            leaving = tl.sum(new * told, axis=1) * left
            dsum -= leaving
            behind += tl.sum(leaving, axis=0)
            low = new.to(TYPE)
            dreads = dot(low, tl.trans(do), dreads, PRECISION)
            dsystem = dot(low, tl.trans((-dx).to(TYPE)), dsystem, PRECISION)
            state = tl.load(at(states_ptr, of_head // CHUNK * D, E, key_lane, column))
            dq = dot((do * (seen * scale)[:, None]).to(TYPE), tl.trans(state), dq, PRECISION)
            dk = dot((dx * (-seen * beta)[:, None]).to(TYPE), tl.trans(state), dk, PRECISION)
            dstate = tl.load(at(dstates_ptr, of_head // CHUNK * D, E, key_lane, column))
            dk = dot((new * left[:, None]).to(TYPE), tl.trans(dstate), dk, PRECISION)

        # Pairs of rows: what is read, then the system, which takes strictly earlier rows.
        pairs = pair_decay(gates, start_ptr, chunk, T, CHUNK)
        dreads *= pairs * scale
        by_decay = dreads * pair_products(unit_k_ptr, unit_q_ptr, of_group, CHUNK, D, SLICE, PRECISION)
        dsystem *= tl.where(lane[:, None] < lane[None, :], pairs, 0.0) * beta[None, :]
        by_decay += dsystem * pair_products(unit_k_ptr, unit_k_ptr, of_group, CHUNK, D, SLICE, PRECISION)
        dsum += tl.sum(by_decay, axis=0) - tl.sum(by_decay, axis=1)
        of_reads = dreads.to(TYPE)
        of_system = dsystem.to(TYPE)
        k = tl.load(at(unit_k_ptr, of_group, D, lane, key_lane))
        dq = dot(tl.trans(of_reads), k, dq, PRECISION)
        dk = dot(of_system, k, dk, PRECISION)
        dk = dot(tl.trans(of_system), k, dk, PRECISION)
        dk = dot(of_reads, tl.load(at(unit_q_ptr, of_group, D, lane, key_lane)), dk, PRECISION)

        dsum += tl.where(lane == CHUNK - 1, behind, 0.0)
        row = chunk * CHUNK + lane
        start, _, _, slope = rates(
            b_ptr, a_ptr, a_log_ptr, dt_bias_ptr, start_ptr, head, row, T, b_stride, a_stride
        )
        later = (start[:, None] == start[None, :]) & (lane[:, None] >= lane[None, :])
        dg = tl.sum(tl.where(later, dsum[:, None], 0.0), axis=0)
        db = dlog_beta * (1.0 - beta)
        tl.store(da_ptr + first * da_stride + lane * da_stride + head, (dg * slope).to(TYPE), mask=row < T)
        tl.store(db_ptr + first * db_stride + lane * db_stride + head, db.to(TYPE), mask=row < T)

    q = tl.load(at(q_ptr + group * D, first, qkv_stride, lane, key_lane), mask=inside, other=0.0)
    to = at(dq_ptr + group * D, first, dqkv_stride, lane, key_lane)
    tl.store(to, _raw_gradient(dq, q).to(TYPE), mask=inside)
    k = tl.load(at(k_ptr + group * D, first, qkv_stride, lane, key_lane), mask=inside, other=0.0)
    to = at(dk_ptr + group * D, first, dqkv_stride, lane, key_lane)
    tl.store(to, _raw_gradient(dk, k).to(TYPE), mask=inside)
