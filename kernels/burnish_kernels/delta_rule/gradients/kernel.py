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
from burnish_kernels.delta_rule.kernel import normalized, pair_decay, pair_products, product, rates


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
    row = chunk * CHUNK + lane
    wide_row = row.to(tl.int64)
    inside = row < T
    key_lane = tl.arange(0, D)
    dq = tl.zeros([CHUNK, D], tl.float32)
    dk = tl.zeros([CHUNK, D], tl.float32)
    for served in range(0, SHARED):
        head = group * SHARED + served
        gates = gates_ptr + head * rows
        beta = tl.load(gates + W * rows + row)
        seen = tl.load(gates + 2 * W * rows + row)
        left = tl.load(gates + 3 * W * rows + row)
        kept = tl.load(gates + 2 * W * rows + chunk * CHUNK + CHUNK - 1)
        dreads = tl.zeros([CHUNK, CHUNK], tl.float32)  # [earlier row, later row]
        dsystem = tl.zeros([CHUNK, CHUNK], tl.float32)  # the same
        dlog_beta = tl.zeros([CHUNK], tl.float32)
        dsum = tl.zeros([CHUNK], tl.float32)  # of g's sum at each row
        behind = 0.0  # of g's sum at the last row, through the state behind
        for first in range(0, E, BLOCK):
            column = (first + tl.arange(0, BLOCK))[None, :]
            state_place = (head * rows // CHUNK + chunk) * D * E + column
            asked = tl.zeros([CHUNK, BLOCK], tl.float32)
            read = tl.zeros([CHUNK, BLOCK], tl.float32)
            told = tl.zeros([CHUNK, BLOCK], tl.float32)
            for key in range(0, D, SLICE):
                slice_key = key + tl.arange(0, SLICE)
                unit_place = (group * rows + row[:, None]) * D + slice_key[None, :]
                k = tl.load(unit_k_ptr + unit_place)
                state = tl.load(states_ptr + state_place + slice_key[:, None] * E)
                dstate = tl.load(dstates_ptr + state_place + slice_key[:, None] * E)
                asked = dot(k, state, asked, PRECISION)
                told = dot(k, dstate, told, PRECISION)
                read = dot(tl.load(unit_q_ptr + unit_place), state, read, PRECISION)
                both = state.to(tl.float32) * dstate.to(tl.float32)
                behind += kept * tl.sum(tl.sum(both, axis=1), axis=0)
            of_head = head * E + column
            v = tl.load(v_ptr + wide_row[:, None] * qkv_stride + of_head, mask=inside[:, None], other=0.0)
            do = tl.load(do_ptr + wide_row[:, None] * do_stride + of_head, mask=inside[:, None], other=0.0)
            du = tl.load(du_ptr + (head * rows + row[:, None]) * E + column).to(tl.float32)
            inverse = tl.load(inverse_ptr + (head * rows + row[:, None]) * CHUNK + lane[None, :])
            x = (v.to(tl.float32) - asked * seen[:, None]) * beta[:, None]
            new = product(inverse, x.to(TYPE), PRECISION)
            dx = product(tl.trans(inverse), (du + told * left[:, None]).to(TYPE), PRECISION)
            to = dv_ptr + wide_row[:, None] * dqkv_stride + of_head
            tl.store(to, (dx * beta[:, None]).to(TYPE), mask=inside[:, None])

            dlog_beta += tl.sum(dx * new, axis=1)
            dsum += tl.sum(do.to(tl.float32) * read, axis=1) * seen * scale
            dsum -= tl.sum(dx * asked, axis=1) * seen * beta
            leaving = tl.sum(new * told, axis=1) * left
            dsum -= leaving
            behind += tl.sum(leaving, axis=0)
            low = new.to(TYPE)
            dreads = dot(low, tl.trans(do), dreads, PRECISION)
            dsystem = dot(low, tl.trans((-dx).to(TYPE)), dsystem, PRECISION)
            state = tl.load(states_ptr + state_place + key_lane[:, None] * E)
            dq = dot((do * (seen * scale)[:, None]).to(TYPE), tl.trans(state), dq, PRECISION)
            dk = dot((dx * (-seen * beta)[:, None]).to(TYPE), tl.trans(state), dk, PRECISION)
            dstate = tl.load(dstates_ptr + state_place + key_lane[:, None] * E)
            dk = dot((new * left[:, None]).to(TYPE), tl.trans(dstate), dk, PRECISION)

        # Pairs of rows: what is read, then the system, which takes strictly earlier rows.
        pairs = pair_decay(gates, start_ptr, chunk, T, CHUNK)
        dreads *= pairs * scale
        by_decay = dreads * pair_products(unit_k_ptr, unit_q_ptr, row, group, rows, CHUNK, D, SLICE, PRECISION)
        dsystem *= tl.where(lane[:, None] < lane[None, :], pairs, 0.0) * beta[None, :]
        by_decay += dsystem * pair_products(unit_k_ptr, unit_k_ptr, row, group, rows, CHUNK, D, SLICE, PRECISION)
        dsum += tl.sum(by_decay, axis=0) - tl.sum(by_decay, axis=1)
        of_reads = dreads.to(TYPE)
        of_system = dsystem.to(TYPE)
        unit_place = (group * rows + row[:, None]) * D + key_lane[None, :]
        k = tl.load(unit_k_ptr + unit_place)
        dq = dot(tl.trans(of_reads), k, dq, PRECISION)
        dk = dot(of_system, k, dk, PRECISION)
        dk = dot(tl.trans(of_system), k, dk, PRECISION)
        dk = dot(of_reads, tl.load(unit_q_ptr + unit_place), dk, PRECISION)

        dsum += tl.where(lane == CHUNK - 1, behind, 0.0)
        start, _, _, slope = rates(
            b_ptr, a_ptr, a_log_ptr, dt_bias_ptr, start_ptr, head, row, T, b_stride, a_stride
        )
        later = (start[:, None] == start[None, :]) & (lane[:, None] >= lane[None, :])
        dg = tl.sum(tl.where(later, dsum[:, None], 0.0), axis=0)
        tl.store(da_ptr + wide_row * da_stride + head, (dg * slope).to(TYPE), mask=inside)
        tl.store(db_ptr + wide_row * db_stride + head, (dlog_beta * (1.0 - beta)).to(TYPE), mask=inside)

    place = wide_row[:, None] * qkv_stride + group * D + key_lane[None, :]
    to = wide_row[:, None] * dqkv_stride + group * D + key_lane[None, :]
    q = tl.load(q_ptr + place, mask=inside[:, None], other=0.0)
    tl.store(dq_ptr + to, _raw_gradient(dq, q).to(TYPE), mask=inside[:, None])
    k = tl.load(k_ptr + place, mask=inside[:, None], other=0.0)
    tl.store(dk_ptr + to, _raw_gradient(dk, k).to(TYPE), mask=inside[:, None])
