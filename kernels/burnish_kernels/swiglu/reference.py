"""Gated activation in plain PyTorch: the definition that the kernel is compared with, and the path without a GPU.

Shazeer 2020 (arXiv 2002.05202): SwiGLU with "silu", GeGLU with "gelu_tanh" (Gemma) or "gelu" (the exact one, by erf).
Computed in at least fp32 and rounded once, where transformers rounds act(gate) as well.

`forward` can be differentiated by autograd, `backward` is the same gradient written out.

Shapes: T rows (tokens), I intermediate size, J = 2I (gate, then up).
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional

GELU_CUBIC = 0.044715  # Hendrycks and Gimpel 2016 (arXiv 1606.08415), section 2


def forward(gate_up_TJ: torch.Tensor, *, activation: str) -> torch.Tensor:
    """Compute the activated gate times up; see `op.forward`."""
    gate_TI, up_TI = _wide(gate_up_TJ).chunk(2, dim=-1)
    if activation == "silu":
        act_TI = functional.silu(gate_TI)
    else:
        act_TI = functional.gelu(gate_TI, approximate="tanh" if activation == "gelu_tanh" else "none")
    return (act_TI * up_TI).to(gate_up_TJ.dtype)


def backward(dact_TI: torch.Tensor, gate_up_TJ: torch.Tensor, *, activation: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gradients of gate and of up; see `op.backward`."""
    gate_TI, up_TI = _wide(gate_up_TJ).chunk(2, dim=-1)
    wide_TI = _wide(dact_TI)
    act_TI, slope_TI = _act_and_slope(gate_TI, activation)
    dgate_TI, dup_TI = wide_TI * up_TI * slope_TI, wide_TI * act_TI
    return dgate_TI.to(gate_up_TJ.dtype), dup_TI.to(gate_up_TJ.dtype)


def _act_and_slope(x_TI: torch.Tensor, activation: str) -> tuple[torch.Tensor, torch.Tensor]:
    if activation == "gelu":
        share_TI = 0.5 * (1.0 + torch.erf(x_TI * math.sqrt(0.5)))
        density_TI = torch.exp(-0.5 * x_TI.square()) / math.sqrt(2 * math.pi)
        return x_TI * share_TI, share_TI + x_TI * density_TI
    if activation == "silu":
        gate_TI = torch.sigmoid(x_TI)
        return x_TI * gate_TI, gate_TI * (1.0 + x_TI * (1.0 - gate_TI))
    # (1 + tanh(u)) / 2 is sigmoid(2u).
    factor = 2.0 * math.sqrt(2.0 / math.pi)
    square_TI = x_TI.square()
    gate_TI = torch.sigmoid(factor * x_TI * (1.0 + GELU_CUBIC * square_TI))
    inner_TI = factor * (1.0 + 3.0 * GELU_CUBIC * square_TI)
    return x_TI * gate_TI, gate_TI * (1.0 + x_TI * (1.0 - gate_TI) * inner_TI)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
