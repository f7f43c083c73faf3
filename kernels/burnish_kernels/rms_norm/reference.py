"""RMSNorm in plain PyTorch: the definition that the kernel is compared with, and the path without a GPU.

Zhang and Sennrich 2019 (arXiv 1910.07467), with the roundings of transformers' LlamaRMSNorm (normalized value rounded
to the input's dtype before the weight) and Gemma3RMSNorm (1 + weight, one rounding at the end). The residual sum is
rounded to the input's dtype before it is normalized, as two separate modules would do.

`forward` can be differentiated by autograd, `backward` is the same gradient written out.

Shapes: T rows (tokens), H hidden size.
"""

from __future__ import annotations

import torch


def forward(
    x_TH: torch.Tensor,
    weight_H: torch.Tensor,
    *,
    eps: float,
    residual_TH: torch.Tensor | None = None,
    one_plus_weight: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalize each row; see `op.forward` for the arguments and results."""
    sum_TH = x_TH if residual_TH is None else x_TH + residual_TH
    wide_TH = sum_TH.to(torch.promote_types(x_TH.dtype, torch.float32))
    inverse_T = torch.rsqrt(wide_TH.square().mean(-1) + eps)
    return scale(sum_TH, weight_H, inverse_T, one_plus_weight=one_plus_weight), sum_TH, inverse_T


def scale(
    sum_TH: torch.Tensor, weight_H: torch.Tensor, inverse_T: torch.Tensor, *, one_plus_weight: bool
) -> torch.Tensor:
    """Return the rows normalized and scaled, given the inverse root mean square of each row."""
    unit_TH = sum_TH * inverse_T[:, None]
    if one_plus_weight:
        return (unit_TH * (1.0 + weight_H.to(unit_TH.dtype))).to(sum_TH.dtype)
    return weight_H * unit_TH.to(sum_TH.dtype)


def backward(
    dy_TH: torch.Tensor,
    sum_TH: torch.Tensor,
    weight_H: torch.Tensor,
    inverse_T: torch.Tensor,
    *,
    dsum_TH: torch.Tensor | None = None,
    one_plus_weight: bool = False,
) -> torch.Tensor:
    """Compute the gradient of the sum; see `op.backward`."""
    wide = inverse_T.dtype
    weight_H = weight_H.to(wide) + 1.0 if one_plus_weight else weight_H.to(wide)
    unit_TH = sum_TH * inverse_T[:, None]
    scaled_TH = dy_TH * weight_H
    dx_TH = (scaled_TH - unit_TH * (scaled_TH * unit_TH).mean(-1, keepdim=True)) * inverse_T[:, None]
    if dsum_TH is not None:
        dx_TH += dsum_TH
    return dx_TH.to(sum_TH.dtype)
