"""RMSNorm in plain PyTorch: the definition that the kernel is held to.

Zhang and Sennrich 2019 (arXiv 1910.07467), with the roundings of transformers' LlamaRMSNorm (normalized value rounded
to the input's dtype before the weight) and Gemma3RMSNorm (1 + weight, one rounding at the end).

Shapes: N rows, H hidden size.
"""

from __future__ import annotations

import torch


def rms_norm(
    x_NH: torch.Tensor,
    weight_H: torch.Tensor,
    *,
    eps: float,
    residual_NH: torch.Tensor | None = None,
    one_plus_weight: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalize each row; see `op.rms_norm` for the arguments and results."""
    sum_NH = x_NH if residual_NH is None else x_NH + residual_NH
    wide = torch.promote_types(x_NH.dtype, torch.float32)
    wide_NH = sum_NH.to(wide)
    unit_NH = wide_NH * torch.rsqrt(wide_NH.pow(2).mean(-1, keepdim=True) + eps)
    if one_plus_weight:
        return (unit_NH * (1.0 + weight_H.to(wide))).to(x_NH.dtype), sum_NH
    return weight_H * unit_NH.to(x_NH.dtype), sum_NH
