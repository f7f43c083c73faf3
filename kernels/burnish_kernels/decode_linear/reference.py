"""The PyTorch reference of a projection on few tokens."""

from __future__ import annotations

import torch

from burnish_kernels.lora_linear.stack import Stack


def decode_linear(x_BK: torch.Tensor, matrix: torch.Tensor, stack: Stack, bias_N: torch.Tensor | None) -> torch.Tensor:
    """Compute x Wᵀ + (x Aᵀ) sBᵀ + bias; arguments as for `op.forward`."""
    n, k = stack.N, stack.K
    y_BN = x_BK @ matrix[:n, :k].t()
    if stack.R:
        y_BN = y_BN + (x_BK @ matrix[n:, :k].t()) @ matrix[:n, k:].t()
    return y_BN if bias_N is None else y_BN + bias_N
