"""Launch the kernels of LoRA's skinny products and of dropout; launchers assert and never allocate.

`tiles` computes the workspaces they need. Shapes as in `kernel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import zip_longest
from typing import Any

import torch
import triton

from burnish_kernels.dispatch import interpreted
from burnish_kernels.lora_linear import kernel
from burnish_kernels.lora_linear.kernel import DROP_C, DROP_T, SUM_C, SUM_R, SUM_S
from burnish_kernels.lora_linear.tiles import BLOCK_T, MAX_SEGMENTS, OuterPlan, RankSegment, outer_tile, project_tile


def launch_project(
    *,
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
    kernel.project_kernel[(triton.cdiv(tokens, BLOCK_T), splits, len(segments) * rank_blocks)](
        x_ptr=x_TC,
        a_ptr=a_RC,
        out_ptr=out_TR if parts_STR is None else parts_STR,
        T=tokens,
        x_stride=x_TC.stride(0),
        a_row=a_RC.stride(0),
        a_column=a_RC.stride(1),
        out_stride=out_TR.stride(0) if parts_STR is None else total,
        **segment_arguments(segments),
        rank_blocks=rank_blocks,
        split_columns=triton.cdiv(triton.cdiv(columns, tile.C), splits) * tile.C,
        part_size=tokens * total,
        BLOCK_T=BLOCK_T,
        BLOCK_C=tile.C,
        BLOCK_R=tile.R,
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    if parts_STR is not None:
        assert parts_STR.shape == (splits, tokens, total)
        kernel.join_projections_kernel[(triton.cdiv(tokens, SUM_C), triton.cdiv(total, SUM_R))](
            parts_ptr=parts_STR,
            out_ptr=out_TR,
            T=tokens,
            R=total,
            splits=splits,
            part_size=tokens * total,
            out_stride=out_TR.stride(0),
            SUM_T=SUM_C,
            SUM_R=SUM_R,
            SUM_S=SUM_S,
            num_warps=4,
        )


def launch_outer(
    *,
    p_TR: torch.Tensor,
    q_TC: torch.Tensor,
    segments: Sequence[RankSegment],
    plan: OuterPlan,
    parts: torch.Tensor,
    out: Sequence[torch.Tensor],
    scales: Sequence[float],
) -> None:
    """Add to each segment's `out` through the workspace `parts` of `[splits, rows, C]`."""
    assert 1 <= len(segments) == len(out) <= MAX_SEGMENTS
    assert p_TR.stride(1) == q_TC.stride(1) == 1
    assert parts.shape == (plan.splits, plan.rows, q_TC.shape[1])
    tokens, width = q_TC.shape
    tile = outer_tile(p_TR.dtype, plan.rows)
    blocks = sum(triton.cdiv(segment.columns, tile.C) for segment in plan.segments)
    kernel.outer_kernel[(blocks, plan.splits, triton.cdiv(plan.rows, tile.R))](
        p_ptr=p_TR,
        q_ptr=q_TC,
        parts_ptr=parts,
        T=tokens,
        p_stride=p_TR.stride(0),
        q_stride=q_TC.stride(0),
        **segment_arguments(plan.segments),
        part_rows=plan.rows,
        C=width,
        split_tokens=triton.cdiv(triton.cdiv(tokens, BLOCK_T), plan.splits) * BLOCK_T,
        BLOCK_T=BLOCK_T,
        BLOCK_C=tile.C,
        BLOCK_R=tile.R,
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    first_columns = [segment.first for segment in segments]
    launch_join_outers(parts, out, scales, first_columns=first_columns, first_rows=plan.rows_before(segments))


def launch_join_outers(
    parts: torch.Tensor,
    out: Sequence[torch.Tensor],
    scales: Sequence[float],
    *,
    first_columns: Sequence[int],
    first_rows: Sequence[int],
) -> None:
    """Add to each `out` of `[r, c]` fp32, any strides: scale times the sum over `parts` of its block.

    `parts` is a workspace `[splits, rows, C]`; the block of each `out` begins at its first row and column.
    """
    splits, rows, width = parts.shape
    assert 1 <= len(out) == len(scales) == len(first_columns) == len(first_rows) <= MAX_SEGMENTS
    assert all(sums.dtype == torch.float32 for sums in out)
    ranks, columns = [sums.shape[0] for sums in out], [sums.shape[1] for sums in out]
    kernel.join_outers_kernel[(triton.cdiv(max(columns), SUM_C), triton.cdiv(max(ranks), SUM_R), len(out))](
        parts_ptr=parts,
        **_numbered("out", out, out[0]),
        **_numbered("row_stride", [sums.stride(0) for sums in out]),
        **_numbered("column_stride", [sums.stride(1) for sums in out]),
        **_numbered("scale", scales, 0.0),
        **_numbered("first", first_columns),
        **_numbered("columns", columns),
        **_numbered("part", first_rows),
        **_numbered("ranks", ranks),
        C=width,
        part_size=rows * width,
        splits=splits,
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
    kernel.dropout_kernel[(triton.cdiv(tokens, DROP_T), triton.cdiv(columns, DROP_C))](
        x_ptr=x_TK,
        seed_ptr=seed,
        out_ptr=out_TK,
        T=tokens,
        K=columns,
        x_stride=x_TK.stride(0),
        out_stride=out_TK.stride(0),
        stream_id=stream,
        threshold=threshold,
        scale=scale,
        ADD=add,
        DROP_T=DROP_T,
        DROP_C=DROP_C,
        num_warps=4,
    )


def segment_arguments(segments: Sequence[RankSegment]) -> dict[str, int]:
    """Return the kernels' arguments that say where each segment lies."""
    firsts, columns, first_ranks, ranks = zip(*segments, strict=True)
    return {
        **_numbered("first", firsts),
        **_numbered("columns", columns),
        **_numbered("rank", first_ranks),
        **_numbered("ranks", ranks),
    }


def _numbered(name: str, values: Sequence[Any], filling: Any = 0) -> dict[str, Any]:
    """Return an argument for each possible segment, such as `first_0` to `first_2`; `filling` past the values."""
    return dict(zip_longest(_names(name), values, fillvalue=filling))


@cache
def _names(name: str) -> tuple[str, ...]:
    """Return the name with each segment's number; made once, because launches are frequent."""
    return tuple(f"{name}_{index}" for index in range(MAX_SEGMENTS))
