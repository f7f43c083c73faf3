"""The choice of tokens in Triton: a program reads the logits of one row, some times.

The thresholds of top-k and top-p are found by halving the range of the logits' bits, so nothing is sorted: 16 steps for
bf16, 19 for fp16, 32 for fp32. A draw inverts the cumulated shares in the tokens' order, so a row needs one random
number (Philox4x32-10, with the row's seed as the key and its number of tokens as the counter).

Launchers assert and never allocate. Shapes: B rows, V vocabulary, S slots, R recent tokens, K stops.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.attention.kernel import LOG2_E, safe_tanh
from burnish_kernels.sample.rows import Choice, ReplyRows

SHIFT = {torch.float32: 0, torch.bfloat16: 16, torch.float16: 13}
"""Low bits of a logit in fp32 that are zero."""

BLOCK, WARPS = 4096, 8
_LOWEST = tl.constexpr(-(2**31))


@triton.jit
def _load(row_ptr, start, V, BLOCK: tl.constexpr):
    """Logits of a block in fp32, -inf past the end."""
    at = start + tl.arange(0, BLOCK)
    return tl.load(row_ptr + at, mask=at < V, other=float("-inf")).to(tl.float32)


@triton.jit
def _key(logits, SHIFT: tl.constexpr):
    """Integers in the order of the logits; both zeros have the same."""
    bits = tl.where(logits == 0.0, 0.0, logits).to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)) >> SHIFT


@triton.jit
def _share(logits, highest, factor, softcap, HAS_CAP: tl.constexpr):
    """Probability relative to the most likely token's; of -inf, zero."""
    if HAS_CAP:
        logits = softcap * safe_tanh(logits, 2.0 * LOG2_E / softcap)
        highest = softcap * safe_tanh(highest, 2.0 * LOG2_E / softcap)
    return tl.exp2((logits - highest) * factor)


@triton.jit
def _above(row_ptr, V, key, highest, factor, softcap, HAS_CAP: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    """Number and mass of the tokens whose logits have at least this key."""
    count = 0
    mass = tl.zeros([], tl.float32)
    for start in range(0, V, BLOCK):
        logits = _load(row_ptr, start, V, BLOCK)
        kept = (_key(logits, SHIFT) >= key) & (start + tl.arange(0, BLOCK) < V)
        count += tl.sum(kept.to(tl.int32), axis=0)
        mass += tl.sum(tl.where(kept, _share(logits, highest, factor, softcap, HAS_CAP), 0.0), axis=0)
    return count, mass


@triton.jit(do_not_specialize=["V"])
def choose_kernel(
    logits_ptr,  # [B, V]
    temperature_ptr,  # [S] fp32
    top_p_ptr,  # [S] fp32
    min_p_ptr,  # [S] fp32
    top_k_ptr,  # [S] int32
    seed_ptr,  # [S] int64
    count_ptr,  # [S] int32
    slots_ptr,  # [B] int32, read only with HAS_SLOTS
    chosen_ptr,  # [B] int64
    V,
    logits_stride,
    softcap,
    HAS_SLOTS: tl.constexpr,
    HAS_CAP: tl.constexpr,
    SHIFT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Choose the token of one row."""
    row = tl.program_id(0)
    slot = row
    if HAS_SLOTS:
        slot = tl.load(slots_ptr + row)
    row_ptr = logits_ptr + row.to(tl.int64) * logits_stride
    within = tl.arange(0, BLOCK)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    best_at = tl.zeros([BLOCK], tl.int32)
    for start in range(0, V, BLOCK):
        logits = _load(row_ptr, start, V, BLOCK)
        better = logits > best
        best = tl.where(better, logits, best)
        best_at = tl.where(better, start + within, best_at)
    highest = tl.max(best, axis=0)
    chosen = tl.min(tl.where(best == highest, best_at, V - 1), axis=0)
    temperature = tl.load(temperature_ptr + slot)
    if temperature > 0.0:
        factor = LOG2_E / temperature
        top_p = tl.load(top_p_ptr + slot)
        top_k = tl.load(top_k_ptr + slot)
        lowest = tl.full([], _LOWEST, tl.int32) >> SHIFT
        past = _key(highest, SHIFT) + 1
        threshold = lowest
        if (top_k > 0) & (top_k < V):
            high = past
            for _ in range(32 - SHIFT):
                middle = (threshold & high) + ((threshold ^ high) >> 1)
                count, _mass = _above(row_ptr, V, middle, highest, factor, softcap, HAS_CAP, SHIFT, BLOCK)
                threshold = tl.where(count >= top_k, middle, threshold)
                high = tl.where(count >= top_k, high, middle)
        _count, mass = _above(row_ptr, V, threshold, highest, factor, softcap, HAS_CAP, SHIFT, BLOCK)
        if top_p < 1.0:
            wanted = top_p * mass
            high = past
            for _ in range(32 - SHIFT):
                middle = (threshold & high) + ((threshold ^ high) >> 1)
                _count, reached = _above(row_ptr, V, middle, highest, factor, softcap, HAS_CAP, SHIFT, BLOCK)
                threshold = tl.where(reached >= wanted, middle, threshold)
                high = tl.where(reached >= wanted, high, middle)
        least = tl.load(min_p_ptr + slot)
        mass = tl.zeros([], tl.float32)
        for start in range(0, V, BLOCK):
            logits = _load(row_ptr, start, V, BLOCK)
            share = _share(logits, highest, factor, softcap, HAS_CAP)
            kept = (_key(logits, SHIFT) >= threshold) & (share >= least) & (start + within < V)
            mass += tl.sum(tl.where(kept, share, 0.0), axis=0)
        zero = tl.zeros([], tl.int32)
        bits, _r1, _r2, _r3 = tl.philox(tl.load(seed_ptr + slot), zero + tl.load(count_ptr + slot), zero, zero, zero)
        target = (bits.to(tl.uint32, bitcast=True) >> 8).to(tl.float32) * (1.0 / (1 << 24)) * mass
        before = tl.zeros([], tl.float32)
        found = V
        for start in range(0, V, BLOCK):
            logits = _load(row_ptr, start, V, BLOCK)
            share = _share(logits, highest, factor, softcap, HAS_CAP)
            kept = (_key(logits, SHIFT) >= threshold) & (share >= least) & (start + within < V)
            share = tl.where(kept, share, 0.0)
            passed = before + tl.cumsum(share, axis=0) > target
            found = tl.minimum(found, tl.min(tl.where(passed & kept, start + within, V), axis=0))
            before += tl.sum(share, axis=0)
        chosen = tl.where(found < V, found, chosen)  # rounding may leave the target just out of reach
    tl.store(chosen_ptr + row, chosen.to(tl.int64))


@triton.jit(do_not_specialize=["B", "stops"])
def record_kernel(
    tokens_ptr,  # [B] int64
    slots_ptr,  # [B] int32, read only with HAS_SLOTS
    stops_ptr,  # [K] int32
    ids_ptr,  # [S] int64, then int32 [S] each
    place_ptr,
    length_ptr,
    made_ptr,
    limit_ptr,
    live_ptr,
    recent_ptr,  # [S, R] int32
    B,
    stops,
    recent_stride,
    HAS_SLOTS: tl.constexpr,
    RECENT: tl.constexpr,
    BLOCK_B: tl.constexpr,
):
    """Note the chosen tokens of all rows."""
    row = tl.arange(0, BLOCK_B)
    inside = row < B
    slot = row
    if HAS_SLOTS:
        slot = tl.load(slots_ptr + row, mask=inside, other=0)
    token = tl.load(tokens_ptr + row, mask=inside, other=0)
    live = inside & (tl.load(live_ptr + slot, mask=inside, other=0) != 0)
    made = tl.load(made_ptr + slot, mask=live, other=0)
    tl.store(recent_ptr + slot * recent_stride + made % RECENT, token.to(tl.int32), mask=live)
    tl.store(made_ptr + slot, made + 1, mask=live)
    ended = made + 1 >= tl.load(limit_ptr + slot, mask=live, other=0)
    for number in range(stops):
        ended = ended | (token == tl.load(stops_ptr + number))
    length = tl.load(length_ptr + slot, mask=live, other=0)
    place = tl.load(place_ptr + slot, mask=live, other=0)
    tl.store(length_ptr + slot, tl.where(ended, 0, length + 1), mask=live)
    tl.store(live_ptr + slot, 0, mask=live & ended)
    tl.store(ids_ptr + slot, token, mask=live & ~ended)
    tl.store(place_ptr + slot, place + 1, mask=live & ~ended)


def launch_choose(
    logits_BV: torch.Tensor,
    choice: Choice,
    count_S: torch.Tensor,
    slots_B: torch.Tensor | None,
    chosen_B: torch.Tensor,
    softcap: float | None,
) -> None:
    """Fill `chosen_B`."""
    rows, vocabulary = logits_BV.shape
    assert chosen_B.shape == (rows,)
    choose_kernel[(rows,)](
        logits_ptr=logits_BV,
        temperature_ptr=choice.temperature,
        top_p_ptr=choice.top_p,
        min_p_ptr=choice.min_p,
        top_k_ptr=choice.top_k,
        seed_ptr=choice.seed,
        count_ptr=count_S,
        slots_ptr=slots_B,
        chosen_ptr=chosen_B,
        V=vocabulary,
        logits_stride=logits_BV.stride(0),
        softcap=softcap or 0.0,
        HAS_SLOTS=slots_B is not None,
        HAS_CAP=softcap is not None,
        SHIFT=SHIFT[logits_BV.dtype],
        BLOCK=BLOCK,
        num_warps=WARPS,
    )


def launch_record(tokens_B: torch.Tensor, rows: ReplyRows, stops_K: torch.Tensor, slots_B: torch.Tensor | None) -> None:
    """Change `rows`."""
    record_kernel[(1,)](
        tokens_ptr=tokens_B,
        slots_ptr=slots_B,
        stops_ptr=stops_K,
        ids_ptr=rows.ids,
        place_ptr=rows.place,
        length_ptr=rows.length,
        made_ptr=rows.made,
        limit_ptr=rows.limit,
        live_ptr=rows.live,
        recent_ptr=rows.recent,
        B=len(tokens_B),
        stops=len(stops_K),
        recent_stride=rows.recent.stride(0),
        HAS_SLOTS=slots_B is not None,
        RECENT=rows.recent.shape[1],
        BLOCK_B=max(16, triton.next_power_of_2(len(tokens_B))),
        num_warps=4,
    )
