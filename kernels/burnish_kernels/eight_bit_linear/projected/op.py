"""`lora_linear.project` that also quantizes the rows that it reads: one pass over memory instead of two.

`swiglu.adapted.op.backward_adapted` finds the largest magnitude of each row while it writes the gradient.

Shapes: T tokens, C columns of the rows, R ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from burnish_kernels.eight_bit_linear.op import EightBitRows, quantize_rows, writes_codes
from burnish_kernels.lora_linear.skinny import project
from burnish_kernels.lora_linear.tiles import MAX_SEGMENTS, RankSegment, project_splits, project_tile

__all__ = ["project_codes"]


def project_codes(
    x_TC: torch.Tensor,
    a_RC: torch.Tensor,
    out_TR: torch.Tensor,
    segments: Sequence[RankSegment] | None = None,
    *,
    codes_out: EightBitRows,
    largest_T: torch.Tensor,
    factor_C: torch.Tensor | None = None,
) -> None:
    """Write out[:, ranks] = x[:, columns] @ a[ranks, columns]ᵀ for each segment, and quantize x times the factors.

    Args:
        x_TC: large operand `[T, C]`, rows may be strided.
        a_RC: narrow operand `[R, C]`, any strides.
        out_TR: output `[T, R]`, rows may be strided.
        segments: same as in `lora_linear.project`.
        codes_out: codes and scales to write, those that `quantize_rows` makes.
        largest_T: largest magnitude `[T]` fp32 of each row of x times the factors.
        factor_C: factor of each column `[C]` fp32 in the codes; None: none.

    Raises:
        ValueError: Shapes, types or segments do not fit.
    """
    tokens, width = x_TC.shape
    if largest_T.shape != (tokens,) or largest_T.dtype != torch.float32 or not largest_T.is_contiguous():
        raise ValueError(f"largest must be [{tokens}] fp32, not {tuple(largest_T.shape)} {largest_T.dtype}")
    fused = writes_codes(codes_out, x_TC, factor_C)
    if segments is None:
        segments = [RankSegment(0, width, 0, a_RC.shape[0])]
    if not (fused and tokens and _in_one_pass(segments, width, tokens, x_TC.dtype)):
        project(x_TC, a_RC, out_TR, segments)
        quantize_rows(x_TC, factor_K=factor_C, out=codes_out)
        return
    if a_RC.shape != (out_TR.shape[1], width) or len(out_TR) != tokens or x_TC.stride(1) != 1 or out_TR.stride(1) != 1:
        raise ValueError(f"{tuple(x_TC.shape)} by {tuple(a_RC.shape)} transposed is not {tuple(out_TR.shape)}")
    if any(segment.first_rank + segment.ranks > len(a_RC) for segment in segments):
        raise ValueError(f"segments {list(segments)} leave the {len(a_RC)} ranks")
    from burnish_kernels.eight_bit_linear.projected.kernel import launch_project_codes

    launch_project_codes(
        x_TC=x_TC,
        a_RC=a_RC,
        out_TR=out_TR,
        segments=segments,
        largest_T=largest_T,
        factor_C=factor_C,
        codes=codes_out,
    )


def _in_one_pass(segments: Sequence[RankSegment], width: int, tokens: int, dtype: torch.dtype) -> bool:
    """Return whether the segments divide all columns, and a program for each fills the device and does all ranks."""
    if not 0 < len(segments) <= MAX_SEGMENTS or project_splits(tokens, segments, dtype) > 1:
        return False
    ranks = max(segment.ranks for segment in segments)
    ends = [0, *(segment.first + segment.columns for segment in segments)]
    divided = [segment.first for segment in segments] == ends[:-1] and ends[-1] == width
    return divided and ranks <= project_tile(dtype, ranks).R
