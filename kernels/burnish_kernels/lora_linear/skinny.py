"""Products with one small side: `project` (tall times narrow) and `outer_accumulate` (reduction over the tokens).

Both work on segments, so that the adapters of a stack share a launch. Memory bandwidth bounds them while the ranks are
small: the kernels read the large operand once. From `CUBLAS_RANK` on they are ordinary matrix products.

Shapes: T tokens, C columns of the large operand, R ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.lora_linear.tiles import MAX_SEGMENTS, RankSegment, merged, outer_plan, project_splits

Method = Literal["auto", "triton", "cublas"]

CUBLAS_RANK = 128  # products for a value of the large operand at which compute, not memory, becomes the bound


def project(
    x_TC: torch.Tensor,
    a_RC: torch.Tensor,
    out_TR: torch.Tensor,
    segments: Sequence[RankSegment] | None = None,
    *,
    method: Method = "auto",
) -> None:
    """Write out[:, ranks] = x[:, columns] @ a[ranks, columns]ᵀ for each segment.

    Args:
        x_TC: large operand `[T, C]`, rows may be strided.
        a_RC: narrow operand `[R, C]`, any strides.
        out_TR: output `[T, R]`, rows may be strided.
        segments: segments in the order of their ranks, which lie side by side. Ranks outside all segments stay as they
            are. None: one segment of all.
        method: implementation; "auto" chooses by the ranks.

    Raises:
        ValueError: Shapes or segments do not fit.
    """
    (tokens, width), ranks = x_TC.shape, a_RC.shape[0]
    if a_RC.shape != (ranks, width) or out_TR.shape != (tokens, ranks):
        raise ValueError(f"{tuple(x_TC.shape)} by {tuple(a_RC.shape)} transposed is not {tuple(out_TR.shape)}")
    if segments is None:
        segments = [RankSegment(0, width, 0, ranks)]
    _validate(segments, width, ranks, x_TC, out_TR)
    if not (tokens and segments):
        return
    if not use_kernels(x_TC) or _by_cublas(method, segments):
        for first, columns, first_rank, count in segments:
            own, wide = slice(first_rank, first_rank + count), slice(first, first + columns)
            torch.mm(x_TC[:, wide], a_RC[own, wide].t(), out=out_TR[:, own])
        return
    from burnish_kernels.lora_linear.launch_kernels import launch_project

    for begin in range(0, len(segments), MAX_SEGMENTS):
        group = segments[begin : begin + MAX_SEGMENTS]
        low, high = group[0].first_rank, group[-1].first_rank + group[-1].ranks
        group = [segment._replace(first_rank=segment.first_rank - low) for segment in group]
        splits = project_splits(tokens, group, x_TC.dtype)
        shape = (splits, tokens, high - low)
        parts = torch.empty(shape, dtype=torch.float32, device=x_TC.device) if splits > 1 else None
        launch_project(x_TC=x_TC, a_RC=a_RC[low:high], out_TR=out_TR[:, low:high], segments=group, parts_STR=parts)


def outer_accumulate(
    p_TR: torch.Tensor,
    q_TC: torch.Tensor,
    out: Sequence[torch.Tensor],
    scales: Sequence[float],
    segments: Sequence[RankSegment] | None = None,
    *,
    method: Method = "auto",
) -> None:
    """Add scale · p[:, ranks]ᵀ q[:, columns] to each segment's out, summed over the tokens in a fixed order.

    Args:
        p_TR: narrow operand `[T, R]`, rows may be strided.
        q_TC: large operand `[T, C]`, rows may be strided.
        out: output `[r <= ranks, columns]` fp32 of each segment, any strides.
        scales: scale of each segment.
        segments: same as in `project`; the ranks past an out's rows are padding and left out. None: one segment of all.
        method: implementation; "auto" chooses by the ranks.

    Raises:
        ValueError: Shapes or segments do not fit.
    """
    (tokens, width), ranks = q_TC.shape, p_TR.shape[1]
    if segments is None:
        segments = [RankSegment(0, width, 0, ranks)]
    _validate(segments, width, ranks, p_TR, q_TC)
    if p_TR.shape[0] != tokens or not len(out) == len(scales) == len(segments):
        raise ValueError(f"{tuple(p_TR.shape)} and {tuple(q_TC.shape)} with {len(out)} results, {len(scales)} scales")
    for sums, segment in zip(out, segments, strict=True):
        if sums.shape[0] > segment.ranks or sums.shape[1] != segment.columns:
            raise ValueError(f"a result of {tuple(sums.shape)} is not that of {segment}")
    if not (tokens and segments):
        return
    if not use_kernels(p_TR) or _by_cublas(method, segments):
        _outer_plain(p_TR, q_TC, out, scales, segments)
        return
    from burnish_kernels.lora_linear.launch_kernels import launch_outer

    for begin in range(0, len(segments), MAX_SEGMENTS):
        group = slice(begin, begin + MAX_SEGMENTS)
        plan = outer_plan(tokens, segments[group], p_TR.dtype)
        parts = torch.empty((plan.splits, plan.rows, width), dtype=torch.float32, device=p_TR.device)
        launch_outer(
            p_TR=p_TR,
            q_TC=q_TC,
            segments=segments[group],
            plan=plan,
            parts=parts,
            out=out[group],
            scales=scales[group],
        )


def _outer_plain(
    p_TR: torch.Tensor,
    q_TC: torch.Tensor,
    out: Sequence[torch.Tensor],
    scales: Sequence[float],
    segments: Sequence[RankSegment],
) -> None:
    """Compute segments of the same columns in one matrix product, then split it."""
    work = merged(segments)
    products = [_product(p_TR, q_TC, one, out[0].dtype) for one in work]
    if len(work) < len(segments):
        products = list(products[0].split([segment.ranks for segment in segments]))
    for sums, scale, product in zip(out, scales, products, strict=True):
        sums.add_(product[: sums.shape[0]], alpha=scale)


def _product(p_TR: torch.Tensor, q_TC: torch.Tensor, segment: RankSegment, dtype: torch.dtype) -> torch.Tensor:
    p_Tr = p_TR[:, segment.first_rank : segment.first_rank + segment.ranks]
    q_Tc = q_TC[:, segment.first : segment.first + segment.columns]
    if p_TR.is_cuda and p_TR.dtype != dtype:
        product: torch.Tensor = torch.mm(p_Tr.t(), q_Tc, out_dtype=dtype)
        return product
    return torch.mm(p_Tr.t().to(dtype), q_Tc.to(dtype))


def _by_cublas(method: Method, segments: Sequence[RankSegment]) -> bool:
    return method == "cublas" or (
        method == "auto" and max(segment.ranks for segment in merged(segments)) >= CUBLAS_RANK
    )


def _validate(segments: Sequence[RankSegment], width: int, ranks: int, *operands: torch.Tensor) -> None:
    ends = [segment.first_rank + segment.ranks for segment in segments]
    if any(segment.first + segment.columns > width for segment in segments) or max(ends, default=0) > ranks:
        raise ValueError(f"segments {list(segments)} leave the {width} columns or {ranks} ranks")
    if [segment.first_rank for segment in segments[1:]] != ends[:-1]:
        raise ValueError(f"the ranks of segments {list(segments)} do not lie side by side")
    if any(operand.stride(1) != 1 for operand in operands):
        raise ValueError(f"columns must be side by side, not strided {[operand.stride() for operand in operands]}")
