"""The PyTorch reference of a projection on few tokens."""

from __future__ import annotations

import torch

from burnish_kernels.lora_linear.stack import Stack


def decode_linear(
    x_BK: torch.Tensor,
    weight_NK: torch.Tensor,
    stack: Stack,
    a_RK: torch.Tensor,
    sb_NR: torch.Tensor,
    bias_N: torch.Tensor | None,
) -> torch.Tensor:
    """Compute x Wᵀ + (x Aᵀ) sBᵀ + bias; arguments as for `op.forward`."""
    y_BN = x_BK @ weight_NK.t()
    if stack.R:
        y_BN = y_BN + (x_BK @ a_RK.t()) @ sb_NR.t()
    return y_BN if bias_N is None else y_BN + bias_N
