"""Launch the kernels of LoRA's skinny products and of dropout; launchers assert and never allocate.

`tiles` computes the workspaces they need. Shapes as in `kernel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton

from burnish_kernels.dispatch import interpreted
from burnish_kernels.lora_linear import kernel
from burnish_kernels.lora_linear.kernel import DROP_C, DROP_T, SUM_C, SUM_R, SUM_S
from burnish_kernels.lora_linear.tiles import BLOCK_T, MAX_SEGMENTS, OuterPlan, RankSegment, outer_tile, project_tile


def launch_project(
    x_TC: torch.Tensor,
    a_RC: torch.Tensor,
    out_TR: torch.Tensor,
    segments: Sequence[RankSegment],
    parts_STR: torch.Tensor | None,
) -> None:
    """Fill `out_TR`, whose columns the segments divide; `parts_STR` is the workspace if the columns are split."""
    assert 1 <= len(segments) <= MAX_SEGMENTS
    assert sum(segment.ranks for segment in segments) == out_TR.shape[1] == a_RC.shape[0]
    assert x_TC.stride(1) == out_TR.stride(1) == 1
    tokens, total = out_TR.shape
    ranks = max(segment.ranks for segment in segments)
    columns = max(segment.columns for segment in segments)
    tile = project_tile(x_TC.dtype, ranks)
    splits = 1 if parts_STR is None else parts_STR.shape[0]
    rank_blocks = triton.cdiv(ranks, tile.R)
    kernel._project[(triton.cdiv(tokens, BLOCK_T), splits, len(segments) * rank_blocks)](
        x_TC,
        a_RC,
        out_TR if parts_STR is None else parts_STR,
        tokens,
        x_TC.stride(0),
        *a_RC.stride(),
        out_TR.stride(0) if parts_STR is None else total,
        *_by_field(segments),
        rank_blocks,
        triton.cdiv(triton.cdiv(columns, tile.C), splits) * tile.C,
        tokens * total,
        BLOCK_T=BLOCK_T,
        BLOCK_C=tile.C,
        BLOCK_R=tile.R,
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    if parts_STR is not None:
        assert parts_STR.shape == (splits, tokens, total)
        kernel._join_projections[(triton.cdiv(tokens, SUM_C), triton.cdiv(total, SUM_R))](
            parts_STR,
            out_TR,
            tokens,
            total,
            splits,
            tokens * total,
            out_TR.stride(0),
            SUM_T=SUM_C,
            SUM_R=SUM_R,
            SUM_S=SUM_S,
            num_warps=4,
        )


def launch_outer(
    p_TR: torch.Tensor,
    q_TC: torch.Tensor,
    segments: Sequence[RankSegment],
    plan: OuterPlan,
    parts: torch.Tensor,
    out: Sequence[torch.Tensor],
    scales: Sequence[float],
) -> None:
    """Add to each segment's `out` through the workspace `parts` of `[splits, rows, C]`."""
    assert 1 <= len(segments) == len(out) == len(scales) <= MAX_SEGMENTS
    assert p_TR.stride(1) == q_TC.stride(1) == 1
    assert parts.shape == (plan.splits, plan.rows, q_TC.shape[1])
    assert all(sums.dtype == torch.float32 for sums in out)
    tokens, width = q_TC.shape
    tile = outer_tile(p_TR.dtype, plan.rows)
    blocks = sum(triton.cdiv(segment.columns, tile.C) for segment in plan.segments)
    kernel._outer[(blocks, plan.splits, triton.cdiv(plan.rows, tile.R))](
        p_TR,
        q_TC,
        parts,
        tokens,
        p_TR.stride(0),
        q_TC.stride(0),
        *_by_field(plan.segments),
        plan.rows,
        width,
        triton.cdiv(triton.cdiv(tokens, BLOCK_T), plan.splits) * BLOCK_T,
        BLOCK_T=BLOCK_T,
        BLOCK_C=tile.C,
        BLOCK_R=tile.R,
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    columns = max(segment.columns for segment in segments)
    ranks = max(sums.shape[0] for sums in out)
    kernel._join_outers[(triton.cdiv(columns, SUM_C), triton.cdiv(ranks, SUM_R), len(segments))](
        parts,
        *_filled(out, out[0]),
        *_filled([sums.stride(0) for sums in out], 0),
        *_filled([sums.stride(1) for sums in out], 0),
        *_filled(scales, 0.0),
        *_filled([segment.first for segment in segments], 0),
        *_filled([segment.columns for segment in segments], 0),
        *_filled(plan.rows_before(segments), 0),
        *_filled([sums.shape[0] for sums in out], 0),
        width,
        plan.rows * width,
        plan.splits,
        SUM_R=SUM_R,
        SUM_C=SUM_C,
        SUM_S=SUM_S,
        num_warps=4,
    )


def launch_dropout(
    x_TK: torch.Tensor, seed: torch.Tensor, stream: int, threshold: int, scale: float, out_TK: torch.Tensor, add: bool
) -> None:
    """Fill `out_TK` or add to it: elements that draw 31 bits below `threshold` drop out, others are scaled."""
    tokens, columns = x_TK.shape
    assert out_TK.shape == x_TK.shape
    assert x_TK.stride(1) == out_TK.stride(1) == 1
    if not x_TK.numel():
        return
    kernel._dropout[(triton.cdiv(tokens, DROP_T), triton.cdiv(columns, DROP_C))](
        x_TK,
        seed,
        out_TK,
        tokens,
        columns,
        x_TK.stride(0),
        out_TK.stride(0),
        stream,
        threshold,
        scale,
        ADD=add,
        DROP_T=DROP_T,
        DROP_C=DROP_C,
        num_warps=4,
    )


def _by_field(segments: Sequence[RankSegment]) -> list[int]:
    """Return the first columns of all segments, then columns, first ranks and ranks."""
    return [value for field in zip(*segments, strict=True) for value in _filled(field, 0)]


def _filled(values: Sequence[Any], filling: Any) -> list[Any]:
    """Pad values to the largest possible number of segments."""
    return [*values, *[filling] * (MAX_SEGMENTS - len(values))]
