"""The PyTorch reference of a projection with NF4 weights on few tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from burnish_kernels.lora_linear.stack import Stack
from burnish_kernels.nf4.reference import dequantize, dequantize_scales
from burnish_kernels.nf4.state import Nf4


def weight(parts: Sequence[Nf4]) -> torch.Tensor:
    """Return the values of parts one under another, `[N, K]` fp32."""
    return torch.cat([_values(part) for part in parts])


def _values(part: Nf4) -> torch.Tensor:
    scale = part.absmax
    if part.absmax_q is not None:
        assert part.nested_absmax is not None
        assert part.code256 is not None
        assert part.offset is not None
        scale = dequantize_scales(part.absmax_q, part.nested_absmax, part.code256, part.offset)
    assert scale is not None
    return dequantize(part.packed, scale, part.shape[0] * part.shape[1], torch.float32).view(part.shape)


def decode_linear(
    x_BK: torch.Tensor,
    parts: Sequence[Nf4],
    a_RK: torch.Tensor,
    sb_NR: torch.Tensor,
    stack: Stack,
    bias_N: torch.Tensor | None,
) -> torch.Tensor:
    """Compute x Wᵀ + (x Aᵀ) sBᵀ + bias; arguments as for `op.forward`."""
    y_BN = x_BK @ weight(parts).to(x_BK.dtype).t()
    if stack.R:
        y_BN = y_BN + (x_BK @ a_RK.t()) @ sb_NR.t()
    return y_BN if bias_N is None else y_BN + bias_N
