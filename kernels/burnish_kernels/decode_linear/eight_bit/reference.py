"""The PyTorch reference of a projection with weights in 8 bits on few tokens."""

from __future__ import annotations

import torch

from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.lora_linear.stack import Stack


def decode_linear(
    x_BK: torch.Tensor,
    weight: EightBitRows,
    a_RK: torch.Tensor,
    sb_NR: torch.Tensor,
    stack: Stack,
    bias_N: torch.Tensor | None,
) -> torch.Tensor:
    """Compute x Wᵀ + (x Aᵀ) sBᵀ + bias; arguments as for `op.forward`."""
    y_BN = x_BK @ weight.codes.to(x_BK.dtype).t() * weight.scale.to(torch.promote_types(x_BK.dtype, torch.float32))
    if stack.R:
        y_BN = y_BN + (x_BK @ a_RK.t()) @ sb_NR.t()
    return (y_BN if bias_N is None else y_BN + bias_N).to(x_BK.dtype)
