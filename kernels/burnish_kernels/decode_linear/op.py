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
from burnish_kernels.dispatch import use_kernels
from burnish_kernels.lora_linear.op import times_transposed
from burnish_kernels.lora_linear.stack import Stack

__all__ = ["MOST_ROWS", "DecodeConfig", "forward", "is_possible"]

_COUNTERS = 1 << 14  # tiles of a launch


def is_possible(rows: int, stack: Stack) -> bool:
    """Return whether `forward` does this: few tokens and narrow adapters."""
    return rows <= MOST_ROWS and rank_spans(stack, NARROW) is not None


def forward(
    x_BK: torch.Tensor,
    weight_NK: torch.Tensor,
    stack: Stack,
    *,
    a_RK: torch.Tensor,
    sb_NR: torch.Tensor,
    bias_N: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    config: DecodeConfig | None = None,
) -> torch.Tensor:
    """Compute x Wᵀ + (x Aᵀ) sBᵀ + bias, mostly in one launch.

    Two streams must not do this at the same time: they would share counters.

    Args:
        x_BK: input `[B, K]`, rows may be strided.
        weight_NK: weight W `[N, K]` in x's type, rows may be strided.
        stack: layout of the adapters.
        a_RK: A of all adapters `[R, K]`, rows may be strided.
        sb_NR: scaled B of all adapters `[N, R]`, rows may be strided.
        bias_N: bias `[N]`, or None.
        out: tensor `[B, N]` to write to, rows may be strided. Allocated if None.
        config: sizes that replace the chosen ones.

    Returns:
        The output `[B, N]`.

    Raises:
        ValueError: Shapes or dtypes do not fit, or `is_possible` says no.
    """
    rows = len(x_BK)
    out_BN = x_BK.new_empty(rows, stack.N) if out is None else out
    if not is_possible(rows, stack):
        raise ValueError(f"{rows} tokens with {stack} are not for this operation")
    if x_BK.shape[1] != stack.K or weight_NK.shape != (stack.N, stack.K) or out_BN.shape != (rows, stack.N):
        raise ValueError(f"{tuple(x_BK.shape)} and {tuple(weight_NK.shape)} do not fit {stack}")
    if a_RK.shape != (stack.R, stack.K) or sb_NR.shape != (stack.N, stack.R):
        raise ValueError(f"adapters must be {(stack.R, stack.K)} and {(stack.N, stack.R)}")
    for tensor in (x_BK, weight_NK, out_BN):
        if tensor.dtype != x_BK.dtype or tensor.stride(1) != 1:
            raise ValueError(f"columns of {x_BK.dtype} must be side by side, not {tensor.dtype} {tensor.stride()}")
    if not use_kernels(x_BK):
        return out_BN.copy_(reference.decode_linear(x_BK, weight_NK, stack, a_RK, sb_NR, bias_N))
    chosen = config or choose(rows, stack.N, stack.K, processors=_processors(x_BK.device))
    if chosen is None:
        times_transposed(x_BK, weight_NK, bias_N, out_BN)
        return out_BN.addmm_(x_BK @ a_RK.t(), sb_NR.t()) if stack.R else out_BN
    from burnish_kernels.decode_linear.kernel import launch

    spans = rank_spans(stack, chosen.block_n)
    if spans is None:
        chosen = replace(chosen, block_n=NARROW)
        spans = rank_spans(stack, NARROW) or ()
    sums = None
    if chosen.splits > 1:
        sums = torch.empty((chosen.splits, rows, stack.N), dtype=torch.float32, device=x_BK.device)
    if rows:
        launch(
            x_BK,
            weight_NK,
            spans,
            a_RK=a_RK,
            sb_NR=sb_NR,
            bias_N=bias_N,
            out_BN=out_BN,
            parts_SBN=sums,
            counters=_counters(x_BK.device),
            config=chosen,
        )
    return out_BN


@cache
def _counters(device: torch.device) -> torch.Tensor:
    return torch.zeros(_COUNTERS, dtype=torch.int32, device=device)


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4
