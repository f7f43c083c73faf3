"""A projection with NF4 weights and its adapters on few tokens: validate, allocate, choose.

Triton on CUDA (or in its interpreter), the reference elsewhere. There is no gradient. Shapes: B tokens, N outputs, K
inputs, R padded ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

from burnish_kernels.attention.op import capability
from burnish_kernels.decode_linear.config import NARROW, DecodeConfig, rank_spans
from burnish_kernels.decode_linear.nf4 import reference
from burnish_kernels.decode_linear.nf4.config import choose
from burnish_kernels.decode_linear.op import counters_of
from burnish_kernels.dispatch import multiprocessors, use_kernels
from burnish_kernels.lora_linear.stack import Stack
from burnish_kernels.nf4.reference import BLOCK
from burnish_kernels.nf4.state import Nf4

__all__ = ["MOST_PARTS", "config_of", "forward", "is_possible"]

MOST_PARTS = 4
"""Most parts of a weight: each adds five arguments to the launch."""


def is_possible(x_BK: torch.Tensor, parts: Sequence[object], stack: Stack) -> bool:
    """Return whether `forward` does this.

    Args:
        x_BK: input `[B, K]`; nothing of it is read.
        parts: parts of the weight from top to bottom, in whatever form.
        stack: layout of the adapters.
    """
    weights = [part for part in parts if isinstance(part, Nf4)]
    if not 1 <= len(weights) == len(parts) <= MOST_PARTS or x_BK.dtype not in (torch.float16, torch.bfloat16):
        return False
    alike = len({part.double for part in weights}) == 1
    small = max(part.packed.numel() for part in weights) < 1 << 31
    aligned = stack.K % BLOCK == 0 and not any(top % NARROW for top in _tops(weights))
    if not (alike and small and aligned) or rank_spans(stack, NARROW) is None:
        return False
    return config_of(x_BK, weights, stack) is not None


def forward(
    x_BK: torch.Tensor,
    parts: Sequence[Nf4],
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
        parts: weight W `[N, K]`, as parts one under another.
        a_RK: stacked A `[R, K]`, rows may be strided.
        sb_NR: scaled B `[N, R]`, zero outside each adapter's rows and ranks; rows may be strided.
        stack: layout of the adapters.
        bias_N: bias `[N]`, or None.
        out: tensor `[B, N]` to write to, rows may be strided. Allocated if None.
        config: sizes that replace the chosen ones; its outputs divide the first ones of parts and adapters,
            and its inputs K.

    Returns:
        The output `[B, N]`.

    Raises:
        ValueError: Shapes or dtypes do not fit, or `is_possible` says no.
    """
    rows, n, k, r = len(x_BK), stack.N, stack.K, stack.R
    if not is_possible(x_BK, parts, stack):
        raise ValueError(f"{rows} tokens of {x_BK.dtype} with {len(parts)} parts and {stack} are not for this")
    shapes = (x_BK.shape[1], a_RK.shape, sb_NR.shape) == (k, (r, k), (n, r))
    if not shapes or _rows(parts, k) != n or (out is not None and out.shape != (rows, n)):
        found = [tuple(one.shape) for one in (x_BK, *parts, a_RK, sb_NR)]
        raise ValueError(f"{found} do not fit {stack}")
    for tensor in (x_BK, a_RK, sb_NR, x_BK if out is None else out):
        if tensor.dtype != x_BK.dtype or (tensor.shape[1] > 1 and tensor.stride(1) != 1):
            raise ValueError(f"columns of {x_BK.dtype} must be side by side, not {tensor.dtype} {tensor.stride()}")
    if not use_kernels(x_BK):
        found_BN = reference.decode_linear(x_BK, parts, a_RK, sb_NR, stack, bias_N)
        return found_BN if out is None else out.copy_(found_BN)
    out_BN = x_BK.new_empty(rows, n) if out is None else out
    if rows:
        _launch(x_BK, parts, a_RK, sb_NR, stack, bias_N, out_BN, config)
    return out_BN


def _launch(
    x_BK: torch.Tensor,
    parts: Sequence[Nf4],
    a_RK: torch.Tensor,
    sb_NR: torch.Tensor,
    stack: Stack,
    bias_N: torch.Tensor | None,
    out_BN: torch.Tensor,
    config: DecodeConfig | None,
) -> None:
    from burnish_kernels.decode_linear.nf4.kernel import launch

    chosen = config or config_of(x_BK, parts, stack)
    assert chosen is not None
    spans = rank_spans(stack, chosen.block_n)
    assert spans is not None
    sums = None
    if chosen.splits > 1:
        sums = torch.empty((chosen.splits, len(x_BK), stack.N), dtype=torch.float32, device=x_BK.device)
    launch(
        x_BK,
        parts,
        a_RK,
        sb_NR,
        spans,
        _tops(parts),
        bias_N=bias_N,
        out_BN=out_BN,
        parts_SBN=sums,
        counters=counters_of(x_BK.device),
        config=chosen,
    )


def config_of(x_BK: torch.Tensor, parts: Sequence[Nf4], stack: Stack) -> DecodeConfig | None:
    """Return the sizes that `forward` chooses; None where it is not for so many tokens."""
    ends = [edge for one in stack.adapters for edge in (one.first_row, one.first_row + one.rows)]
    inner = tuple(edge for edge in (*_tops(parts), *ends) if edge < stack.N)
    device = x_BK.device
    return choose(
        len(x_BK),
        inner,
        stack.N,
        stack.K,
        capability=capability(device),
        processors=multiprocessors(device),
    )


def _tops(parts: Sequence[Nf4]) -> tuple[int, ...]:
    """Return the first output of each part."""
    return tuple(accumulate((part.shape[0] for part in parts[:-1]), initial=0))


def _rows(parts: Sequence[Nf4], columns: int) -> int:
    """Return the number of outputs of all parts; -1 where one has other inputs."""
    return -1 if any(part.shape[1] != columns for part in parts) else sum(part.shape[0] for part in parts)
