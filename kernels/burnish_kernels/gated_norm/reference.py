"""Gated RMSNorm in plain PyTorch: the definition of the kernel's result, and the path without a GPU.

The norm behind a gated delta net (transformers' `Qwen3_5RMSNormGated`): each head is normalized in fp32, rounded,
scaled, rounded, and multiplied by silu(z) in fp32.

`forward` can be differentiated by autograd, `backward` is the same gradient written out.

Shapes: T rows (tokens), V heads of E, J = V E.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from burnish_kernels.taps import wide


def forward(o_TJ: torch.Tensor, z_TJ: torch.Tensor, weight_E: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Compute weight * norm(o) * silu(z) for each head; see `op.forward`."""
    o_TVE = wide(o_TJ).unflatten(1, (-1, len(weight_E)))
    inverse_TV1 = torch.rsqrt(o_TVE.square().mean(dim=-1, keepdim=True) + eps)
    scaled_TJ = (weight_E * (o_TVE * inverse_TV1).to(o_TJ.dtype)).flatten(1)
    return (scaled_TJ * functional.silu(wide(z_TJ))).to(o_TJ.dtype)


def backward(
    dy_TJ: torch.Tensor, o_TJ: torch.Tensor, z_TJ: torch.Tensor, weight_E: torch.Tensor, *, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gradients of o and of z; see `op.backward`."""
    heads = (-1, len(weight_E))
    o_TVE, z_TVE, dy_TVE = (wide(one).unflatten(1, heads) for one in (o_TJ, z_TJ, dy_TJ))
    inverse_TV1 = torch.rsqrt(o_TVE.square().mean(dim=-1, keepdim=True) + eps)
    normed_TVE, gate_TVE = o_TVE * inverse_TV1, torch.sigmoid(z_TVE)
    scaled_TVE = wide(weight_E * normed_TVE.to(o_TJ.dtype))
    dz_TVE = dy_TVE * scaled_TVE * gate_TVE * (1.0 + z_TVE * (1.0 - gate_TVE))
    dnormed_TVE = dy_TVE * z_TVE * gate_TVE * wide(weight_E)
    mean_TV1 = (dnormed_TVE * normed_TVE).mean(dim=-1, keepdim=True)
    do_TVE = inverse_TV1 * (dnormed_TVE - normed_TVE * mean_TV1)
    return do_TVE.flatten(1).to(o_TJ.dtype), dz_TVE.flatten(1).to(o_TJ.dtype)
