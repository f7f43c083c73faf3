"""The choice of tokens in Triton: a program reads one chunk of the logits of one row.

The thresholds of top-k and top-p are found four bits of the logits at a time, so nothing is sorted: four launches for
bf16, five for fp16, eight for fp32. A draw inverts the cumulated shares in the tokens' order, so a row needs one random
number (Philox4x32-10, with the row's seed as the key and its number of tokens as the counter). All sums have a fixed
order.

Shapes: B rows, V vocabulary, C chunks, S slots, R recent tokens, K stops.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from burnish_kernels.attention.kernel import LOG2_E, safe_tanh
from burnish_kernels.sample.rows import ReplyRows, SamplingRows

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
def _whole_peak(peaks_ptr, row, CHUNKS: tl.constexpr, BLOCK_C: tl.constexpr):
    """Largest logit of a row."""
    chunk = tl.arange(0, BLOCK_C)
    return tl.max(tl.load(peaks_ptr + row * CHUNKS + chunk, mask=chunk < CHUNKS, other=float("-inf")), axis=0)


@triton.jit
def _slot(slots_ptr, row, HAS_SLOTS: tl.constexpr):
    """Slot of a row."""
    if HAS_SLOTS:
        row = tl.load(slots_ptr + row).to(tl.int64)
    return row


@triton.jit
def _kept_shares(
    row_ptr,
    start,
    V,
    highest,
    factor,
    softcap,
    least_ptr,
    least_share,
    row,
    HAS_LEAST: tl.constexpr,
    HAS_CAP: tl.constexpr,
    SHIFT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Shares of a chunk's tokens, zero for those that are not drawn from."""
    logits = _load(row_ptr, start, V, BLOCK)
    share = _share(logits, highest, factor, softcap, HAS_CAP)
    kept = (share >= least_share) & (start + tl.arange(0, BLOCK) < V)
    if HAS_LEAST:
        kept = kept & (_key(logits, SHIFT) >= tl.load(least_ptr + row))
    return tl.where(kept, share, 0.0)


@triton.jit
def _factor(temperature):
    """Factor of logits whose powers of two are shares; some number for greedy rows, whose shares nobody reads."""
    return LOG2_E / tl.where(temperature > 0.0, temperature, 1.0)


@triton.jit(do_not_specialize=["V"])
def peaks_kernel(logits_ptr, peaks_ptr, places_ptr, V, logits_stride, CHUNKS: tl.constexpr, BLOCK: tl.constexpr):
    """Find the first largest logit of one chunk of one row."""
    row = tl.program_id(0).to(tl.int64)
    start = tl.program_id(1) * BLOCK
    logits = _load(logits_ptr + row * logits_stride, start, V, BLOCK)
    peak = tl.max(logits, axis=0)
    place = start + tl.arange(0, BLOCK)
    at = row * CHUNKS + tl.program_id(1)
    tl.store(peaks_ptr + at, peak)
    tl.store(places_ptr + at, tl.min(tl.where((logits == peak) & (place < V), place, V - 1), axis=0))


@triton.jit(do_not_specialize=["V"])
def search_kernel(
    logits_ptr,  # [B, V]
    peaks_ptr,  # [B, C] fp32
    temperature_ptr,  # [S] fp32
    wanted_ptr,  # [S] int32 number of tokens with COUNTS, else fp32 share of the mass
    slots_ptr,  # [B] int32, read only with HAS_SLOTS
    least_ptr,  # [B] int32 key that kept tokens have at least, read only with HAS_LEAST
    found_ptr,  # [B] int32 key found so far
    totals_ptr,  # [B] fp32 mass of all kept tokens
    before_ptr,  # [B, C, 16] fp32 sums of the step before
    sums_ptr,  # [B, C, 16] fp32 sums of this step
    V,
    logits_stride,
    softcap,
    STEP: tl.constexpr,
    STEPS: tl.constexpr,
    COUNTS: tl.constexpr,
    HAS_LEAST: tl.constexpr,
    HAS_SLOTS: tl.constexpr,
    HAS_CAP: tl.constexpr,
    SHIFT: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Settle four bits of a row's key from the sums of the step before, and sum up for the next four.

    The key is the largest that enough tokens reach, by number or by mass. All programs of a row settle the same.
    """
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    slot = _slot(slots_ptr, row, HAS_SLOTS)
    digit = tl.arange(0, 16)
    if STEP == 0:
        found = tl.full([], _LOWEST, tl.int32) >> SHIFT
    else:
        shift: tl.constexpr = (STEPS - STEP) * 4
        every = tl.arange(0, BLOCK_C)
        at = (row * CHUNKS + every)[:, None] * 16 + digit[None, :]
        reached = tl.sum(tl.load(before_ptr + at, mask=(every < CHUNKS)[:, None], other=0.0), axis=0)
        wanted = tl.load(wanted_ptr + slot).to(tl.float32)
        if COUNTS:
            wanted = tl.where((wanted > 0) & (wanted < V), wanted, V)
        else:
            if STEP == 1:
                total = tl.sum(tl.where(digit == 0, reached, 0.0), axis=0)
                if chunk == 0:
                    tl.store(totals_ptr + row, total)
            else:
                total = tl.load(totals_ptr + row)
            wanted = tl.where(wanted < 1.0, wanted * total, float("inf"))
        found = tl.load(found_ptr + (STEP - 1) * tl.num_programs(0) + row)
        found += tl.max(tl.where((reached >= wanted) | (digit == 0), digit, 0), axis=0) << shift
    if chunk == 0:
        tl.store(found_ptr + STEP * tl.num_programs(0) + row, found)
    if STEP < STEPS:
        highest = _whole_peak(peaks_ptr, row, CHUNKS, BLOCK_C)
        place = chunk * BLOCK + tl.arange(0, BLOCK)
        logits = _load(logits_ptr + row * logits_stride, chunk * BLOCK, V, BLOCK)
        key = _key(logits, SHIFT)
        value = tl.where(place < V, 1.0, 0.0)
        if not COUNTS:
            factor = _factor(tl.load(temperature_ptr + slot))
            value = tl.where(place < V, _share(logits, highest, factor, softcap, HAS_CAP), 0.0)
        if HAS_LEAST:
            value = tl.where(key >= tl.load(least_ptr + row), value, 0.0)
        sums = tl.zeros([16], tl.float32)
        for number in tl.static_range(16):
            least = found + (tl.full([], number, tl.int32) << ((STEPS - STEP - 1) * 4))  # wraps as it should
            sums = tl.where(digit == number, tl.sum(tl.where(key >= least, value, 0.0), axis=0), sums)
        tl.store(sums_ptr + (row * CHUNKS + chunk) * 16 + digit, sums)


@triton.jit(do_not_specialize=["V"])
def mass_kernel(
    logits_ptr,  # [B, V]
    peaks_ptr,  # [B, C] fp32
    temperature_ptr,  # [S] fp32
    min_p_ptr,  # [S] fp32
    slots_ptr,  # [B] int32, read only with HAS_SLOTS
    least_ptr,  # [B] int32 key, read only with HAS_LEAST
    mass_ptr,  # [B, C] fp32
    V,
    logits_stride,
    softcap,
    HAS_LEAST: tl.constexpr,
    HAS_SLOTS: tl.constexpr,
    HAS_CAP: tl.constexpr,
    SHIFT: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum up the shares that are drawn from, of one chunk of one row."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    slot = _slot(slots_ptr, row, HAS_SLOTS)
    highest = _whole_peak(peaks_ptr, row, CHUNKS, BLOCK_C)
    factor = _factor(tl.load(temperature_ptr + slot))
    share = _kept_shares(
        logits_ptr + row * logits_stride,
        chunk * BLOCK,
        V,
        highest,
        factor,
        softcap,
        least_ptr,
        tl.load(min_p_ptr + slot),
        row,
        HAS_LEAST,
        HAS_CAP,
        SHIFT,
        BLOCK,
    )
    tl.store(mass_ptr + row * CHUNKS + chunk, tl.sum(share, axis=0))


@triton.jit(do_not_specialize=["V"])
def draw_kernel(
    logits_ptr,  # [B, V]
    peaks_ptr,  # [B, C] fp32
    places_ptr,  # [B, C] int32
    mass_ptr,  # [B, C] fp32, read only with DRAWS, as the next six
    temperature_ptr,  # [S] fp32
    min_p_ptr,  # [S] fp32
    seed_ptr,  # [S] int64
    count_ptr,  # [S] int32
    slots_ptr,  # [B] int32, with HAS_SLOTS too
    least_ptr,  # [B] int32 key, with HAS_LEAST too
    chosen_ptr,  # [B] int64
    V,
    logits_stride,
    softcap,
    DRAWS: tl.constexpr,
    HAS_LEAST: tl.constexpr,
    HAS_SLOTS: tl.constexpr,
    HAS_CAP: tl.constexpr,
    SHIFT: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Choose the token of one row."""
    row = tl.program_id(0).to(tl.int64)
    slot = _slot(slots_ptr, row, HAS_SLOTS)
    every = tl.arange(0, BLOCK_C)
    at = row * CHUNKS + every
    peaks = tl.load(peaks_ptr + at, mask=every < CHUNKS, other=float("-inf"))
    highest = tl.max(peaks, axis=0)
    places = tl.load(places_ptr + at, mask=every < CHUNKS, other=V - 1)
    chosen = tl.min(tl.where(peaks == highest, places, V - 1), axis=0)
    if DRAWS:
        temperature = tl.load(temperature_ptr + slot)
        if temperature > 0.0:
            mass = tl.load(mass_ptr + at, mask=every < CHUNKS, other=0.0)
            zero = tl.zeros([], tl.int32)
            counted = zero + tl.load(count_ptr + slot)
            bits, _r1, _r2, _r3 = tl.philox(tl.load(seed_ptr + slot), counted, zero, zero, zero)
            drawn = (bits.to(tl.uint32, bitcast=True) >> 8).to(tl.float32) * (1.0 / (1 << 24))
            target = drawn * tl.sum(mass, axis=0)
            reached = tl.cumsum(mass, axis=0)
            chunk = tl.min(tl.where((reached > target) & (mass > 0.0), every, CHUNKS - 1), axis=0)
            before = tl.sum(tl.where(every < chunk, mass, 0.0), axis=0)
            share = _kept_shares(
                logits_ptr + row * logits_stride,
                chunk * BLOCK,
                V,
                highest,
                _factor(temperature),
                softcap,
                least_ptr,
                tl.load(min_p_ptr + slot),
                row,
                HAS_LEAST,
                HAS_CAP,
                SHIFT,
                BLOCK,
            )
            place = chunk * BLOCK + tl.arange(0, BLOCK)
            passed = before + tl.cumsum(share, axis=0) > target
            found = tl.min(tl.where(passed & (share > 0.0), place, V), axis=0)
            last = tl.max(tl.where(share > 0.0, place, 0), axis=0)  # rounding may leave the target just out of reach
            chosen = tl.where(found < V, found, last)
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
    choice: SamplingRows,
    count_S: torch.Tensor,
    slots_B: torch.Tensor | None,
    chosen_B: torch.Tensor,
    softcap: float | None,
    *,
    draws: bool,
    bounds: bool,
) -> None:
    """Fill `chosen_B`; `draws` and `bounds` as for `op.choose`."""
    rows, vocabulary = logits_BV.shape
    assert chosen_B.shape == (rows,)
    chunks, device = triton.cdiv(vocabulary, BLOCK), logits_BV.device
    peaks, mass = (torch.empty(rows, chunks, dtype=torch.float32, device=device) for _ in range(2))
    places = torch.empty(rows, chunks, dtype=torch.int32, device=device)
    numbers: dict[str, Any] = {"V": vocabulary, "logits_stride": logits_BV.stride(0)}
    sizes: dict[str, Any] = {"CHUNKS": chunks, "BLOCK": BLOCK, "num_warps": WARPS}
    peaks_kernel[(rows, chunks)](logits_ptr=logits_BV, peaks_ptr=peaks, places_ptr=places, **numbers, **sizes)
    shift = SHIFT[logits_BV.dtype]
    shared: dict[str, Any] = {
        **numbers,
        **sizes,
        "logits_ptr": logits_BV,
        "peaks_ptr": peaks,
        "temperature_ptr": choice.temperature,
        "slots_ptr": slots_B,
        "softcap": softcap or 0.0,
        "HAS_SLOTS": slots_B is not None,
        "HAS_CAP": softcap is not None,
        "SHIFT": shift,
        "BLOCK_C": triton.next_power_of_2(chunks),
    }
    least = None
    if draws and bounds:
        steps = triton.cdiv(32 - shift, 4)
        sums = torch.empty(2, rows, chunks, 16, dtype=torch.float32, device=device)
        totals = torch.empty(rows, dtype=torch.float32, device=device)
        for wanted in (choice.top_k, choice.top_p):
            found = torch.empty(steps + 1, rows, dtype=torch.int32, device=device)
            for step in range(steps + 1):
                search_kernel[(rows, chunks if step < steps else 1)](
                    wanted_ptr=wanted,
                    least_ptr=least,
                    found_ptr=found,
                    totals_ptr=totals,
                    before_ptr=sums[(step + 1) % 2],
                    sums_ptr=sums[step % 2],
                    STEP=step,
                    STEPS=steps,
                    COUNTS=wanted is choice.top_k,
                    HAS_LEAST=least is not None,
                    **shared,
                )
            least = found[-1] if least is None else torch.maximum(least, found[-1])
    rest: dict[str, Any] = {"min_p_ptr": choice.min_p, "least_ptr": least, "HAS_LEAST": least is not None}
    if draws:
        mass_kernel[(rows, chunks)](mass_ptr=mass, **rest, **shared)
    draw_kernel[(rows,)](
        places_ptr=places,
        mass_ptr=mass,
        seed_ptr=choice.seed,
        count_ptr=count_S,
        chosen_ptr=chosen_B,
        DRAWS=draws,
        **rest,
        **shared,
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
