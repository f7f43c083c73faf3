"""QK norm and rotary embedding in plain PyTorch: the kernel's definition, and the path without a GPU.

Rotation: Su et al. 2021 (arXiv 2104.09864), pairs (2i, 2i + 1) as in the paper and GLM, or (i, i + R/2) as in GPT-NeoX
and Llama ("rotate half"). Norm: RMSNorm over each head with the roundings of `rms_norm.reference`, the normalized value
rounded to the input's dtype. The rotation itself is computed in at least fp32 and rounded once, where transformers
rounds cos, sin and both products.

`forward` can be differentiated by autograd, `backward` is the same gradient written out.

Shapes: T tokens, X heads (queries' or keys'), D head size, P positions, R rotary size (at most D).
"""

from __future__ import annotations

import torch


def forward(
    x_TXD: torch.Tensor,
    table_PR: torch.Tensor | None,
    index_T: torch.Tensor | None,
    *,
    weight_D: torch.Tensor | None = None,
    eps: float = 1e-6,
    one_plus_weight: bool = False,
    interleaved: bool = False,
) -> torch.Tensor:
    """Normalize and rotate queries or keys; see `op.forward`."""
    wide_TXD = x_TXD.to(torch.promote_types(x_TXD.dtype, torch.float32))
    if weight_D is not None:
        unit_TXD = wide_TXD * torch.rsqrt(wide_TXD.square().mean(-1, keepdim=True) + eps)
        if one_plus_weight:
            normed_TXD = (unit_TXD * (1.0 + weight_D.to(wide_TXD.dtype))).to(x_TXD.dtype)
        else:
            normed_TXD = weight_D * unit_TXD.to(x_TXD.dtype)
        wide_TXD = normed_TXD.to(wide_TXD.dtype)
    return rotate(wide_TXD, table_PR, index_T, 1.0, interleaved=interleaved).to(x_TXD.dtype)


def backward(
    dy_TXD: torch.Tensor,
    x_TXD: torch.Tensor | None,
    table_PR: torch.Tensor | None,
    index_T: torch.Tensor | None,
    *,
    weight_D: torch.Tensor | None = None,
    eps: float = 1e-6,
    one_plus_weight: bool = False,
    interleaved: bool = False,
) -> torch.Tensor:
    """Compute the gradient of queries or keys before the norm; see `op.backward`."""
    wide_TXD = dy_TXD.to(torch.promote_types(dy_TXD.dtype, torch.float32))
    dx_TXD = rotate(wide_TXD, table_PR, index_T, -1.0, interleaved=interleaved)
    if weight_D is not None:
        assert x_TXD is not None
        x_TXD = x_TXD.to(wide_TXD.dtype)
        inverse_TX1 = torch.rsqrt(x_TXD.square().mean(-1, keepdim=True) + eps)
        unit_TXD = x_TXD * inverse_TX1
        weight_D = weight_D.to(wide_TXD.dtype)
        dx_TXD = dx_TXD * (weight_D + 1.0 if one_plus_weight else weight_D)
        dx_TXD = inverse_TX1 * (dx_TXD - unit_TXD * (dx_TXD * unit_TXD).mean(-1, keepdim=True))
    return dx_TXD.to(dy_TXD.dtype)


def rotate(
    x_TXD: torch.Tensor,
    table_PR: torch.Tensor | None,
    index_T: torch.Tensor | None,
    direction: float,
    *,
    interleaved: bool = False,
) -> torch.Tensor:
    """Rotate each pair by its token's angle; direction -1 rotates back."""
    if table_PR is None or index_T is None:
        return x_TXD
    rotary = table_PR.shape[1]
    cos_T1R, sin_T1R = table_PR.index_select(0, index_T).to(x_TXD.dtype)[:, None, :].chunk(2, dim=-1)
    if direction < 0:
        sin_T1R = -sin_T1R
    rotated, rest = x_TXD[..., :rotary], x_TXD[..., rotary:]
    first, second = (rotated[..., ::2], rotated[..., 1::2]) if interleaved else rotated.chunk(2, dim=-1)
    turned = (first * cos_T1R - second * sin_T1R, second * cos_T1R + first * sin_T1R)
    if interleaved:
        return torch.cat((torch.stack(turned, dim=-1).flatten(-2), rest), dim=-1)
    return torch.cat((*turned, rest), dim=-1)
