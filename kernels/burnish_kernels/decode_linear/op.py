"""A frozen projection with its adapters on few tokens: validate, allocate, choose.

Triton on CUDA (or in its interpreter), the reference elsewhere. There is no gradient. Shapes: B tokens, N outputs, K
inputs, R padded ranks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch

from burnish_kernels.decode_linear import reference
from burnish_kernels.decode_linear.config import MOST_ROWS, NARROW, DecodeConfig, choose, rank_spans
from burnish_kernels.dispatch import multiprocessors, use_kernels
from burnish_kernels.lora_linear.op import times_transposed
from burnish_kernels.lora_linear.stack import Stack

__all__ = ["MOST_ROWS", "DecodeConfig", "forward", "is_possible"]

_COUNTERS = 1 << 14  # tiles of a launch


def is_possible(rows: int, stack: Stack) -> bool:
    """Return whether `forward` does this: few tokens and narrow adapters."""
    return rows <= MOST_ROWS and rank_spans(stack, NARROW) is not None


def forward(
    x_BK: torch.Tensor,
    matrix: torch.Tensor,
    stack: Stack,
    *,
    bias_N: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    config: DecodeConfig | None = None,
) -> torch.Tensor:
    """Compute x Wᵀ + (x Aᵀ) sBᵀ + bias, mostly in one launch.

    Two streams must not do this at the same time: they would share counters.

    Args:
        x_BK: input `[B, K]`, rows may be strided.
        matrix: matrix `[N + R, K + R]`, `[[W, sB], [A, 0]]`, rows may be strided.
        stack: layout of the adapters in the matrix.
        bias_N: bias `[N]`, or None.
        out: tensor `[B, N]` to write to, rows may be strided. Allocated if None.
        config: sizes that replace the chosen ones.

    Returns:
        The output `[B, N]`; its rows may be strided.

    Raises:
        ValueError: Shapes or dtypes do not fit, or `is_possible` says no.
    """
    rows, n, k = len(x_BK), stack.N, stack.K
    if not is_possible(rows, stack):
        raise ValueError(f"{rows} tokens with {stack} are not for this operation")
    if x_BK.shape[1] != k or matrix.shape != stack.buffer_shape or (out is not None and out.shape != (rows, n)):
        raise ValueError(f"{tuple(x_BK.shape)} and {tuple(matrix.shape)} do not fit {stack}")
    for tensor in (x_BK, matrix, x_BK if out is None else out):
        if tensor.dtype != x_BK.dtype or tensor.stride(1) != 1:
            raise ValueError(f"columns of {x_BK.dtype} must be side by side, not {tensor.dtype} {tensor.stride()}")
    if not use_kernels(x_BK):
        found = reference.decode_linear(x_BK, matrix, stack, bias_N)
        return found if out is None else out.copy_(found)
    chosen = config or choose(rows, n, k, wide=x_BK.element_size() > 2, processors=multiprocessors(x_BK.device))
    if chosen is None:
        return _by_cublas(x_BK, matrix, stack, bias_N, out)
    out_BN = x_BK.new_empty(rows, n) if out is None else out
    from burnish_kernels.decode_linear.kernel import launch, launch_vector

    spans = rank_spans(stack, chosen.block_n)
    if spans is None:
        chosen = replace(chosen, block_n=NARROW)
        spans = rank_spans(stack, NARROW) or ()
    if chosen.vector and rows:
        narrow_R = torch.empty(stack.R, dtype=torch.float32, device=x_BK.device) if spans else None
        launch_vector(x_BK, matrix, spans, bias_N=bias_N, out_BN=out_BN, narrow_R=narrow_R, config=chosen)
        return out_BN
    sums = None
    if chosen.splits > 1:
        sums = torch.empty((chosen.splits, rows, stack.N), dtype=torch.float32, device=x_BK.device)
    if rows:
        launch(
            x_BK,
            matrix,
            spans,
            bias_N=bias_N,
            out_BN=out_BN,
            parts_SBN=sums,
            counters=counters_of(x_BK.device),
            config=chosen,
        )
    return out_BN


def _by_cublas(
    x_BK: torch.Tensor, matrix: torch.Tensor, stack: Stack, bias_N: torch.Tensor | None, out: torch.Tensor | None
) -> torch.Tensor:
    """Multiply with W and A at once where the result may be a part of a wider one, then with sB."""
    n, k = stack.N, stack.K
    sb_RN = matrix[:n, k:].t()
    if out is None and bias_N is None:
        wide = x_BK @ matrix[:, :k].t()
        return wide[:, :n].addmm_(wide[:, n:], sb_RN) if stack.R else wide
    out_BN = times_transposed(x_BK, matrix[:n, :k], bias_N, x_BK.new_empty(len(x_BK), n) if out is None else out)
    return out_BN.addmm_(x_BK @ matrix[n:, :k].t(), sb_RN) if stack.R else out_BN


@cache
def counters_of(device: torch.device) -> torch.Tensor:
    """Return a device's counters of ended programs, one for each tile of a launch."""
    return torch.zeros(_COUNTERS, dtype=torch.int32, device=device)
