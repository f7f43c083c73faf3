"""States between the chunks of a gated delta rule, and their gradients, one chunk after the other, in Triton.

A program holds some columns of a head's state in fp32. The rows are cut into segments of chunks, which run side by
side where documents allow it: a document that begins leaves nothing of the state before it, so that a segment can begin
with zeros at the chunk where the document that runs into it began, if that is at most WARMUP chunks earlier. Where it
is not, the program before goes on through this segment. The grid depends on the number of rows alone, and each state
is computed by the same steps, so that the bits do not depend on the segments.
"""

from __future__ import annotations

import triton
import triton.language as tl

from burnish_kernels.attention.kernel import dot
from burnish_kernels.delta_rule.kernel import at, decay, product


@triton.jit
def _began(start_ptr, chunk, CHUNK: tl.constexpr):
    """Return the chunk in which the document of a chunk's first row began."""
    return tl.load(start_ptr + chunk * CHUNK) // CHUNK


@triton.jit
def _last_chunk(start_ptr, past, chunks, T, WARMUP: tl.constexpr, CHUNK: tl.constexpr):
    """Return the chunk behind which the gradient of the state does not matter to the chunks before `past`.

    That is the one before `past` where a document ends there, else the chunk in which the document ends that runs over;
    a number from `past` + WARMUP on where it is farther away.
    """
    candidate = past + tl.arange(0, WARMUP)
    last_row = tl.minimum(candidate * CHUNK + CHUNK - 1, T - 1)
    start = tl.load(start_ptr + last_row, mask=candidate < chunks, other=0)
    ends = (start >= candidate * CHUNK) | (candidate == chunks - 1)
    found = tl.min(tl.where(ends & (candidate < chunks), candidate, past + WARMUP), axis=0)
    row = tl.minimum(past * CHUNK, T - 1)
    over = (past < chunks) & (tl.load(start_ptr + row) < row)
    return tl.where(over, found, tl.minimum(past, chunks) - 1)


@triton.jit(do_not_specialize=["T", "chunks"])
def delta_states_kernel(
    start_ptr,  # [T] int32
    gates_ptr,  # [4, W, P]
    unit_k_ptr,  # [G, P, D]
    w_ptr,  # [W, P, D]
    u_ptr,  # [W, P, E]
    states_ptr,  # [W, N, D, E]
    T,
    chunks,
    W: tl.constexpr,
    SHARED: tl.constexpr,
    CHUNK: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    BLOCK: tl.constexpr,
    SEGMENT: tl.constexpr,
    WARMUP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Store the state before each chunk of a segment, some columns of one value head."""
    TYPE: tl.constexpr = w_ptr.dtype.element_ty
    KEPT: tl.constexpr = states_ptr.dtype.element_ty
    blocks: tl.constexpr = E // BLOCK
    head = (tl.program_id(0) // blocks) % W
    segment = tl.program_id(0) // (blocks * W)
    segments = tl.cdiv(chunks, SEGMENT)
    first = segment * SEGMENT
    begin = _began(start_ptr, first, CHUNK)
    # One past this program's last chunk: segments that cannot begin by themselves are this one's.
    past = first + SEGMENT
    follows = True
    for later in range(segment + 1, segments):
        follows = follows & (_began(start_ptr, later * SEGMENT, CHUNK) + WARMUP < later * SEGMENT)
        past += tl.where(follows, SEGMENT, 0)
    past = tl.where((begin + WARMUP < first) & (segment > 0), begin, tl.minimum(past, chunks))
    begin = tl.where(segment > 0, begin, 0)

    rows = (chunks * CHUNK).to(tl.int64)
    lane = tl.arange(0, CHUNK)
    key = tl.arange(0, D)
    column = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    gates = gates_ptr + head * rows
    state = tl.zeros([D, BLOCK], tl.float32)
    for chunk in range(begin, past):
        of_head = head * rows + chunk * CHUNK
        w = tl.load(at(w_ptr, of_head, D, lane, key))
        k = tl.load(at(unit_k_ptr, head // SHARED * rows + chunk * CHUNK, D, lane, key))
        u = tl.load(at(u_ptr, of_head, E, lane, column))
        left = tl.load(gates + 3 * W * rows + chunk * CHUNK + lane)
        kept = tl.load(gates + 2 * W * rows + chunk * CHUNK + CHUNK - 1)
        to = at(states_ptr, of_head // CHUNK * D, E, key, column)
        tl.store(to, state.to(KEPT), mask=(chunk >= first) & (column < E)[None, :])
        new = u.to(tl.float32) - product(w, state.to(TYPE), PRECISION)
        leaving = (new * left[:, None]).to(TYPE)
        state = dot(tl.trans(k), leaving, state * kept, PRECISION)


@triton.jit(do_not_specialize=["T", "chunks"])
def delta_dstates_kernel(
    do_ptr,  # [T, W E]
    start_ptr,  # [T] int32
    gates_ptr,  # [4, W, P]
    unit_q_ptr,  # [G, P, D]
    unit_k_ptr,  # [G, P, D]
    w_ptr,  # [W, P, D]
    du_ptr,  # [W, P, E]
    dstates_ptr,  # [W, N, D, E]
    T,
    chunks,
    do_stride,
    scale,
    W: tl.constexpr,
    SHARED: tl.constexpr,
    CHUNK: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    BLOCK: tl.constexpr,
    SEGMENT: tl.constexpr,
    WARMUP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Store the gradient of the state behind each chunk of a segment, some columns of one value head."""
    TYPE: tl.constexpr = w_ptr.dtype.element_ty
    blocks: tl.constexpr = E // BLOCK
    head = (tl.program_id(0) // blocks) % W
    segments = tl.cdiv(chunks, SEGMENT)
    segment = segments - 1 - tl.program_id(0) // (blocks * W)
    past = tl.minimum((segment + 1) * SEGMENT, chunks)
    last = _last_chunk(start_ptr, past, chunks, T, WARMUP, CHUNK)
    # This program's first chunk: segments that cannot begin by themselves are this one's.
    begin = segment * SEGMENT
    follows = True
    for distance in range(1, segment + 1):
        end = (segment + 1 - distance) * SEGMENT
        follows = follows & (_last_chunk(start_ptr, end, chunks, T, WARMUP, CHUNK) >= end + WARMUP)
        begin -= tl.where(follows, SEGMENT, 0)
    steps = tl.where(last >= past + WARMUP, 0, last + 1 - begin)

    rows = (chunks * CHUNK).to(tl.int64)
    lane = tl.arange(0, CHUNK)
    key = tl.arange(0, D)
    column = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    gates = gates_ptr + head * rows
    dstate = tl.zeros([D, BLOCK], tl.float32)
    for taken in range(0, steps):
        chunk = last - taken
        first = (chunk * CHUNK).to(tl.int64)
        of_head = head * rows + first
        of_group = head // SHARED * rows + first
        k = tl.load(at(unit_k_ptr, of_group, D, lane, key))
        q = tl.load(at(unit_q_ptr, of_group, D, lane, key))
        w = tl.load(at(w_ptr, of_head, D, lane, key))
        du = tl.load(at(du_ptr, of_head, E, lane, column)).to(tl.float32)
        inside = (first + lane < T)[:, None]
        do = tl.load(at(do_ptr + head * E, first, do_stride, lane, column), mask=inside, other=0.0)
        seen = tl.load(gates + 2 * W * rows + first + lane)
        left = tl.load(gates + 3 * W * rows + first + lane)
        kept = tl.load(gates + 2 * W * rows + first + CHUNK - 1)
        low = dstate.to(TYPE)
        to = at(dstates_ptr, of_head // CHUNK * D, E, key, column)
        tl.store(to, low, mask=(chunk < past) & (column < E)[None, :])
        du += product(k, low, PRECISION) * left[:, None]
        read = (do * (seen * scale)[:, None]).to(TYPE)
        dstate = dot(tl.trans(q), read, dstate * kept, PRECISION)
        dstate -= product(tl.trans(w), du.to(TYPE), PRECISION)


@triton.jit(do_not_specialize=["T", "chunks"])
def delta_last_states_kernel(
    last_ptr,  # [R] int32
    start_ptr,  # [T] int32
    gates_ptr,  # [4, W, P]
    unit_k_ptr,  # [G, P, D]
    w_ptr,  # [W, P, D]
    u_ptr,  # [W, P, E]
    states_ptr,  # [W, N, D, E]
    behind_ptr,  # [R, V, D, E], from the group's first head on
    T,
    chunks,
    behind_stride,
    W: tl.constexpr,
    SHARED: tl.constexpr,
    CHUNK: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute the state behind one row, some columns of one value head."""
    TYPE: tl.constexpr = w_ptr.dtype.element_ty
    head = tl.program_id(1)
    key = tl.arange(0, D)
    column = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    last = tl.load(last_ptr + tl.program_id(0))
    chunk = last // CHUNK
    rows = (chunks * CHUNK).to(tl.int64)
    row = chunk * CHUNK + tl.arange(0, CHUNK)
    gates = gates_ptr + head * rows
    start = tl.load(start_ptr + row, mask=row < T, other=T)
    same = (start == tl.load(start_ptr + last)) & (row <= last)
    left = decay(tl.load(gates + last), tl.load(gates + row), same)
    lane = tl.arange(0, CHUNK)
    of_head = head * rows + chunk * CHUNK
    w = tl.load(at(w_ptr, of_head, D, lane, key))
    k = tl.load(at(unit_k_ptr, head // SHARED * rows + chunk * CHUNK, D, lane, key))
    u = tl.load(at(u_ptr, of_head, E, lane, column)).to(tl.float32)
    state = tl.load(at(states_ptr, of_head // CHUNK * D, E, key, column)).to(tl.float32)
    new = u - product(w, state.to(TYPE), PRECISION)
    behind = state * tl.load(gates + 2 * W * rows + last)
    behind += product(tl.trans(k), (new * left[:, None]).to(TYPE), PRECISION)
    behind_ptr += tl.program_id(0).to(tl.int64) * behind_stride
    tl.store(at(behind_ptr, head * D, E, key, column), behind)
