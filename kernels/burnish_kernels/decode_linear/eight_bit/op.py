"""A projection with weights in FP8 or INT8 and its adapters on few tokens: validate, allocate, choose.

Triton on CUDA (or in its interpreter), the reference elsewhere. There is no gradient. Shapes: B tokens, N outputs, K
inputs, R padded ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from burnish_kernels.decode_linear.config import NARROW, DecodeConfig, rank_spans
from burnish_kernels.decode_linear.eight_bit import reference
from burnish_kernels.decode_linear.eight_bit.config import MOST_ROWS, choose
from burnish_kernels.decode_linear.op import counters_of
from burnish_kernels.dispatch import multiprocessors, use_kernels
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.lora_linear.stack import Stack

__all__ = ["MOST_ROWS", "forward", "is_possible"]


def is_possible(x_BK: torch.Tensor, parts: Sequence[object], stack: Stack) -> bool:
    """Return whether `forward` does this.

    Args:
        x_BK: input `[B, K]`; nothing of it is read.
        parts: parts of the weight from top to bottom, in whatever form.
        stack: layout of the adapters.
    """
    is_one = len(parts) == 1 and isinstance(parts[0], EightBitRows)
    fits = len(x_BK) <= MOST_ROWS and x_BK.dtype in (torch.float16, torch.bfloat16)
    return is_one and fits and rank_spans(stack, NARROW) is not None


def forward(
    x_BK: torch.Tensor,
    weight: EightBitRows,
    a_RK: torch.Tensor,
    sb_NR: torch.Tensor,
    stack: Stack,
    *,
    bias_N: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    config: DecodeConfig | None = None,
) -> torch.Tensor:
    """Compute x Wᵀ + (x Aᵀ) sBᵀ + bias in one launch.

    Two streams must not do this at the same time: they would share counters.

    Args:
        x_BK: input `[B, K]` in 16 bits, rows may be strided.
        weight: weight W `[N, K]`; its columns are not rotated.
        a_RK: stacked A `[R, K]`, rows may be strided.
        sb_NR: scaled B `[N, R]`, zero outside each adapter's rows and ranks; rows may be strided.
        stack: layout of the adapters.
        bias_N: bias `[N]`, or None.
        out: tensor `[B, N]` to write to, rows may be strided. Allocated if None.
        config: sizes that replace the chosen ones; its outputs divide the first ones of adapters.

    Returns:
        The output `[B, N]`.

    Raises:
        ValueError: Shapes or dtypes do not fit, or `is_possible` says no.
    """
    rows, n, k, r = len(x_BK), stack.N, stack.K, stack.R
    if not is_possible(x_BK, [weight], stack):
        raise ValueError(f"{rows} tokens of {x_BK.dtype} with {stack} are not for this operation")
    weight.check()
    found = [tuple(one.shape) for one in (x_BK, weight.codes, a_RK, sb_NR)]
    if found != [(rows, k), (n, k), (r, k), (n, r)] or (out is not None and out.shape != (rows, n)):
        raise ValueError(f"{found} do not fit {stack}")
    for tensor in (x_BK, a_RK, sb_NR, x_BK if out is None else out):
        if tensor.dtype != x_BK.dtype or (tensor.shape[1] > 1 and tensor.stride(1) != 1):
            raise ValueError(f"columns of {x_BK.dtype} must be side by side, not {tensor.dtype} {tensor.stride()}")
    if not use_kernels(x_BK):
        found_BN = reference.decode_linear(x_BK, weight, a_RK, sb_NR, stack, bias_N)
        return found_BN if out is None else out.copy_(found_BN)
    out_BN = x_BK.new_empty(rows, n) if out is None else out
    if not rows:
        return out_BN
    from burnish_kernels.decode_linear.eight_bit.kernel import launch

    chosen = config or choose(n, k, processors=multiprocessors(x_BK.device))
    spans = rank_spans(stack, chosen.block_n)
    if spans is None:
        chosen = replace(chosen, block_n=NARROW)
        spans = rank_spans(stack, NARROW)
    assert spans is not None
    sums = None
    if chosen.splits > 1:
        sums = torch.empty((chosen.splits, rows, n), dtype=torch.float32, device=x_BK.device)
    launch(
        x_BK,
        weight,
        a_RK,
        sb_NR,
        spans,
        bias_N=bias_N,
        out_BN=out_BN,
        parts_SBN=sums,
        counters=counters_of(x_BK.device),
        config=chosen,
    )
    return out_BN
