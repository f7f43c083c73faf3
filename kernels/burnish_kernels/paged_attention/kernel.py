"""Attention over pages in Triton: the keys of a row are split among programs, whose parts a second kernel joins.

Split-K decoding after Dao et al. 2023 (Flash-Decoding), pages after Kwon et al. 2023 (arXiv 2309.06180). The query
heads of a group are one operand, so that keys and values are read once. The program that owns the newest token's page
also stores its key and value; it takes both from the projection, never from the page.

Exponentials and soft caps as in `attention.kernel`. Launchers assert and never allocate.

Shapes: B rows, N query heads, M key heads, D head size, P pages, L tokens of a page, S splits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.attention.kernel import LOG2_E, NOTHING, dot, safe_tanh
from burnish_kernels.dispatch import interpreted
from burnish_kernels.kernel_overlap import launch_options, let_next_begin, wait_for_earlier

LOG2 = 1.4426950408889634
STAGES = 1
BLOCK_BYTES = 1 << 14
"""Bytes of the keys that a step of the loop reads."""


@triton.jit
def paged_kernel(  # noqa: PLR0915  # one loop and its two ends
    q_ptr,  # [B, N, D]
    new_k_ptr,  # [B, M, D]
    new_v_ptr,
    keys_ptr,  # [P, M, L, D]
    values_ptr,
    table_ptr,  # [B, pages of a row] int32
    lengths_ptr,  # [B] int32
    sinks_ptr,  # [N] fp32, read only with HAS_SINKS
    out_ptr,  # [B, N, D], written only where there is one split
    parts_ptr,  # [S, B, N, D] fp32, written only where there are more
    sums_ptr,  # [S, B, N, 2] fp32
    q_stride,
    k_stride,
    v_stride,
    out_stride,
    table_stride,
    window,
    factor,
    cap,
    cap_factor,
    M: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    PRECISION: tl.constexpr,
    OVERLAPS: tl.constexpr = False,
):
    """Attend with the heads of one group of one row to the keys of one split."""
    let_next_begin(OVERLAPS)
    wait_for_earlier(OVERLAPS)
    row = tl.program_id(0).to(tl.int64)
    kv = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(lengths_ptr + row)
    newest = length - 1
    first_key = 0
    if HAS_WINDOW:
        first_key = tl.maximum(length - window, 0)
    first_block = first_key // BLOCK
    blocks = tl.cdiv(length, BLOCK)
    share = tl.cdiv(blocks - first_block, SPLITS)
    begin = first_block + split * share
    end = tl.minimum(begin + share, blocks)
    head = tl.arange(0, ROWS)
    key = tl.arange(0, BLOCK)
    column = tl.arange(0, WIDTH)
    inside = column < D
    own = (head < GROUP)[:, None] & inside[None, :]
    at_head = ((kv * GROUP + head) * D)[:, None] + column[None, :]
    q = tl.load(q_ptr + row * q_stride + at_head, mask=own, other=0.0)
    new_k = tl.load(new_k_ptr + row * k_stride + kv * D + column, mask=inside, other=0.0)
    new_v = tl.load(new_v_ptr + row * v_stride + kv * D + column, mask=inside, other=0.0)
    most = tl.full([ROWS], NOTHING, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDTH], tl.float32)
    for block in range(begin, end):
        position = block * BLOCK + key
        page = tl.load(table_ptr + row * table_stride + block * BLOCK // PAGE).to(tl.int64)
        at = (page * M + kv) * (PAGE * D) + ((block * BLOCK % PAGE + key) * D)[:, None] + column[None, :]
        visible = position <= newest
        if HAS_WINDOW:
            visible = visible & (position >= first_key)
        wanted = visible[:, None] & inside[None, :]
        is_new = (position == newest)[:, None]
        k = tl.load(keys_ptr + at, mask=wanted, other=0.0)
        v = tl.load(values_ptr + at, mask=wanted, other=0.0)
        k = tl.where(is_new, new_k[None, :], k)
        v = tl.where(is_new, new_v[None, :], v)
        scores = dot(q, tl.trans(k), tl.zeros([ROWS, BLOCK], tl.float32), PRECISION) * factor
        if HAS_CAP:
            scores = cap * safe_tanh(scores, cap_factor)
        scores = tl.where(visible[None, :], scores, NOTHING)
        higher = tl.maximum(most, tl.max(scores, axis=1))
        weights = tl.where(visible[None, :], tl.exp2(scores - higher[:, None]), 0.0)
        shrink = tl.exp2(most - higher)
        total = total * shrink + tl.sum(weights, axis=1)
        mixed = dot(weights.to(v.dtype), v, mixed * shrink[:, None], PRECISION)
        most = higher
    if (begin <= newest // BLOCK) & (newest // BLOCK < end):
        page = tl.load(table_ptr + row * table_stride + newest // PAGE).to(tl.int64)
        at = (page * M + kv) * (PAGE * D) + (newest % PAGE) * D + column
        tl.store(keys_ptr + at, new_k, mask=inside)
        tl.store(values_ptr + at, new_v, mask=inside)
    if SPLITS == 1:
        if HAS_SINKS:
            sink = tl.load(sinks_ptr + kv * GROUP + head, mask=head < GROUP, other=0.0) * LOG2_E
            higher = tl.maximum(most, sink)
            shrink = tl.exp2(most - higher)
            total = total * shrink + tl.exp2(sink - higher)
            mixed = mixed * shrink[:, None]
        found = mixed / tl.where(total > 0.0, total, 1.0)[:, None]
        tl.store(out_ptr + row * out_stride + at_head, found.to(out_ptr.dtype.element_ty), mask=own)
    else:
        at_part = (split * tl.num_programs(0) + row) * (M * GROUP)
        tl.store(parts_ptr + at_part * D + at_head, mixed, mask=own)
        at_sum = (at_part + kv * GROUP + head) * 2
        tl.store(sums_ptr + at_sum, most, mask=head < GROUP)
        tl.store(sums_ptr + at_sum + 1, total, mask=head < GROUP)


@triton.jit
def join_kernel(
    parts_ptr,  # [S, B, N, D] fp32
    sums_ptr,  # [S, B, N, 2] fp32
    sinks_ptr,  # [N] fp32, read only with HAS_SINKS
    out_ptr,  # [B, N, D]
    out_stride,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_S: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    OVERLAPS: tl.constexpr = False,
):
    """Join the splits of one head of one row."""
    let_next_begin(OVERLAPS)
    wait_for_earlier(OVERLAPS)
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    heads = tl.num_programs(1)
    split = tl.arange(0, BLOCK_S)
    column = tl.arange(0, WIDTH)
    there = split < SPLITS
    at = (split.to(tl.int64) * tl.num_programs(0) + row) * heads + head
    most = tl.load(sums_ptr + at * 2, mask=there, other=NOTHING)
    total = tl.load(sums_ptr + at * 2 + 1, mask=there, other=0.0)
    parts = tl.load(
        parts_ptr + at[:, None] * D + column[None, :], mask=there[:, None] & (column < D)[None, :], other=0.0
    )
    higher = tl.max(most, axis=0)
    if HAS_SINKS:
        sink = tl.load(sinks_ptr + head) * LOG2_E
        higher = tl.maximum(higher, sink)
    shrink = tl.exp2(most - higher)
    whole = tl.sum(total * shrink, axis=0)
    if HAS_SINKS:
        whole += tl.exp2(sink - higher)
    found = tl.sum(parts * shrink[:, None], axis=0) / tl.where(whole > 0.0, whole, 1.0)
    at_out = out_ptr + row * out_stride + head * D + column
    tl.store(at_out, found.to(out_ptr.dtype.element_ty), mask=column < D)


def sizes(width: int, group: int, page: int, element_bytes: int) -> dict[str, int]:
    """Return the block sizes of `paged_kernel`."""
    wide = triton.next_power_of_2(width)
    block = max(16, min(page, BLOCK_BYTES // (wide * element_bytes)))
    return {"GROUP": group, "ROWS": max(16, triton.next_power_of_2(group)), "D": width, "WIDTH": wide, "BLOCK": block}


def warps(width: int, dtype: torch.dtype) -> int:
    """Return the warps of a program: fp32 and the widest heads fill the registers of two."""
    if dtype == torch.float32:
        return 8
    return 2 if width <= 256 else 4


def launch(
    *,
    q_BND: torch.Tensor,
    k_BMD: torch.Tensor,
    v_BMD: torch.Tensor,
    keys_PMLD: torch.Tensor,
    values_PMLD: torch.Tensor,
    table_BP: torch.Tensor,
    lengths_B: torch.Tensor,
    sinks_N: torch.Tensor | None,
    out_BND: torch.Tensor,
    parts_SBND: torch.Tensor | None,
    sums_SBN2: torch.Tensor | None,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> None:
    """Store the newest keys and values, fill `out_BND`; there is one split where parts are None."""
    (rows, heads, width), (_, kv_heads, page, _) = q_BND.shape, keys_PMLD.shape
    splits = 1 if parts_SBND is None else len(parts_SBND)
    assert out_BND.shape == q_BND.shape
    rounded = "interpreted" if interpreted() else "tf32"
    paged_kernel[(rows, kv_heads, splits)](
        q_ptr=q_BND,
        new_k_ptr=k_BMD,
        new_v_ptr=v_BMD,
        keys_ptr=keys_PMLD,
        values_ptr=values_PMLD,
        table_ptr=table_BP,
        lengths_ptr=lengths_B,
        sinks_ptr=sinks_N,
        out_ptr=out_BND,
        parts_ptr=parts_SBND,
        sums_ptr=sums_SBN2,
        q_stride=q_BND.stride(0),
        k_stride=k_BMD.stride(0),
        v_stride=v_BMD.stride(0),
        out_stride=out_BND.stride(0),
        table_stride=table_BP.stride(0),
        window=window or 0,
        factor=scale if softcap else scale * LOG2,
        cap=(softcap or 0.0) * LOG2,
        cap_factor=2 * LOG2 / softcap if softcap else 0.0,
        M=kv_heads,
        **sizes(width, heads // kv_heads, page, q_BND.element_size()),
        PAGE=page,
        SPLITS=splits,
        HAS_WINDOW=window is not None,
        HAS_CAP=softcap is not None,
        HAS_SINKS=sinks_N is not None,
        PRECISION="ieee" if q_BND.dtype == torch.float32 else rounded,
        num_warps=warps(width, q_BND.dtype),
        num_stages=STAGES,
        **launch_options(q_BND, rows),
    )
    if parts_SBND is None:
        return
    join_kernel[(rows, heads)](
        parts_ptr=parts_SBND,
        sums_ptr=sums_SBN2,
        sinks_ptr=sinks_N,
        out_ptr=out_BND,
        out_stride=out_BND.stride(0),
        D=width,
        WIDTH=triton.next_power_of_2(width),
        SPLITS=splits,
        BLOCK_S=triton.next_power_of_2(splits),
        HAS_SINKS=sinks_N is not None,
        num_warps=2,
        **launch_options(q_BND, rows),
    )
