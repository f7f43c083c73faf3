"""A stable counting sort in Triton: count each expert in each chunk, scan the counts, put every position in its place.

No atomics: a position's place is its expert's first row, plus that expert's positions in earlier chunks, plus those
before it in its own chunk. Three launches of fixed grids. Launchers assert and never allocate.

Shapes: P positions, E experts, B chunks, M tiles.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.moe_sort.order import ExpertOrder

CHUNK, EXPERTS, SPAN, WARPS = 128, 64, 1024, 4
"""Positions of a chunk, experts of a block, chunks scanned together, warps of a program."""


@triton.jit(do_not_specialize=["P", "chunks"])
def count_kernel(ids_ptr, counts_ptr, P, E, chunks, CHUNK: tl.constexpr, EXPERTS: tl.constexpr):
    """Count a block of experts in one chunk of positions; counts are `[E, B]`."""
    position = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    expert = tl.program_id(1) * EXPERTS + tl.arange(0, EXPERTS)
    ids = tl.load(ids_ptr + position, mask=position < P, other=-1)
    count = tl.sum((ids[None, :] == expert[:, None]).to(tl.int32), axis=1)
    tl.store(counts_ptr + expert * chunks + tl.program_id(0), count, mask=expert < E)


@triton.jit(do_not_specialize=["chunks"])
def scan_kernel(counts_ptr, totals_ptr, chunks, SPAN: tl.constexpr):
    """Replace one expert's counts by the sums of those before, and write their total."""
    counts_ptr += tl.program_id(0) * chunks
    total = 0
    for first in range(0, chunks, SPAN):
        chunk = first + tl.arange(0, SPAN)
        count = tl.load(counts_ptr + chunk, mask=chunk < chunks, other=0)
        tl.store(counts_ptr + chunk, total + tl.cumsum(count, axis=0) - count, mask=chunk < chunks)
        total += tl.sum(count, axis=0)
    tl.store(totals_ptr + tl.program_id(0), total)


@triton.jit(do_not_specialize=["P", "chunks", "tiles"])
def place_kernel(
    ids_ptr,  # [P]
    before_ptr,  # [E, B], positions of an expert in earlier chunks
    totals_ptr,  # [E]
    order_ptr,  # [P]
    inverse_ptr,  # [P]
    offsets_ptr,  # [E + 1]
    tiles_ptr,  # [M, 2]
    tile_starts_ptr,  # [E + 1]
    P,
    E,
    chunks,
    tiles,
    tile_rows,
    CHUNK: tl.constexpr,
    EXPERTS: tl.constexpr,
):
    """Place one chunk of positions; programs behind the last chunk write as many tiles, and the first of them starts.

    Every program adds up the experts' totals for itself: there are few, and no launch has to wait for another.
    """
    lane = tl.arange(0, CHUNK)
    block = tl.arange(0, EXPERTS)
    start = 0
    if tl.program_id(0) < chunks:
        position = tl.program_id(0) * CHUNK + lane
        ids = tl.load(ids_ptr + position, mask=position < P, other=-1)
        place = tl.sum(((ids[:, None] == ids[None, :]) & (lane[:, None] > lane[None, :])).to(tl.int32), axis=1)
        for first in range(0, E, EXPERTS):
            expert = first + block
            total = tl.load(totals_ptr + expert, mask=expert < E, other=0)
            before = tl.load(before_ptr + expert * chunks + tl.program_id(0), mask=expert < E, other=0)
            base = start + tl.cumsum(total, axis=0) - total + before
            place += tl.sum(tl.where(ids[:, None] == expert[None, :], base[None, :], 0), axis=1)
            start += tl.sum(total, axis=0)
        tl.store(order_ptr + place, position, mask=position < P)
        tl.store(inverse_ptr + position, place, mask=position < P)
    else:
        group = tl.program_id(0) - chunks
        tile = group * CHUNK + lane
        tile_start = 0
        found = tl.full([CHUNK], -1, tl.int32)
        row = tl.zeros([CHUNK], tl.int32)
        for first in range(0, E, EXPERTS):
            expert = first + block
            total = tl.load(totals_ptr + expert, mask=expert < E, other=0)
            height = (total + tile_rows - 1) // tile_rows
            rows_before = start + tl.cumsum(total, axis=0) - total
            tiles_before = tile_start + tl.cumsum(height, axis=0) - height
            inner = tile[:, None] - tiles_before[None, :]
            hit = (inner >= 0) & (inner < height[None, :])
            found += tl.sum(tl.where(hit, expert[None, :] + 1, 0), axis=1)
            row += tl.sum(tl.where(hit, rows_before[None, :] + inner * tile_rows, 0), axis=1)
            if group == 0:
                tl.store(offsets_ptr + expert, rows_before, mask=expert < E)
                tl.store(tile_starts_ptr + expert, tiles_before, mask=expert < E)
            start += tl.sum(total, axis=0)
            tile_start += tl.sum(height, axis=0)
        tl.store(tiles_ptr + tile * 2, found, mask=tile < tiles)
        tl.store(tiles_ptr + tile * 2 + 1, row, mask=tile < tiles)
        if group == 0:
            tl.store(offsets_ptr + E, start)
            tl.store(tile_starts_ptr + E, tile_start)


def launch_sort(ids_P: torch.Tensor, counts_EB: torch.Tensor, totals_E: torch.Tensor, out: ExpertOrder) -> None:
    """Fill `out`; `counts_EB` and `totals_E` are workspaces."""
    experts, chunks = counts_EB.shape
    assert ids_P.shape == (out.positions,)
    assert chunks == triton.cdiv(out.positions, CHUNK)
    if chunks:
        grid = (chunks, triton.cdiv(experts, EXPERTS))
        count_kernel[grid](
            ids_ptr=ids_P,
            counts_ptr=counts_EB,
            P=out.positions,
            E=experts,
            chunks=chunks,
            CHUNK=CHUNK,
            EXPERTS=EXPERTS,
            num_warps=WARPS,
        )
    scan_kernel[(experts,)](counts_ptr=counts_EB, totals_ptr=totals_E, chunks=chunks, SPAN=SPAN, num_warps=WARPS)
    tiles = out.tiles.shape[0]
    place_kernel[(chunks + max(1, triton.cdiv(tiles, CHUNK)),)](
        ids_ptr=ids_P,
        before_ptr=counts_EB,
        totals_ptr=totals_E,
        order_ptr=out.order,
        inverse_ptr=out.inverse,
        offsets_ptr=out.offsets,
        tiles_ptr=out.tiles,
        tile_starts_ptr=out.tile_starts,
        P=out.positions,
        E=experts,
        chunks=chunks,
        tiles=tiles,
        tile_rows=out.tile_rows,
        CHUNK=CHUNK,
        EXPERTS=EXPERTS,
        num_warps=WARPS,
    )
