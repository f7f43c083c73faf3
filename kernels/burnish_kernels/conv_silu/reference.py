"""Short convolution with SiLU in plain PyTorch: the definition of the kernel's result, and the path without a GPU.

The convolution in front of a gated delta net (Yang et al. 2024, arXiv 2412.06464; transformers'
`Qwen3_5GatedDeltaNet`): causal and depthwise, with few taps. Its result is rounded to the input's type, then activated.

`forward` can be differentiated by autograd, `backward` is the same gradient written out.

Shapes: T rows (tokens), B rows (replies), H channels, L taps, P = L - 1 earlier tokens.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from burnish_kernels.taps import convolved, transposed, wide


def forward(x_TH: torch.Tensor, weight_HL: torch.Tensor, start_T: torch.Tensor) -> torch.Tensor:
    """Compute silu(w * x); see `op.forward`."""
    return functional.silu(convolved(x_TH, weight_HL, None, start_T))


def backward(dy_TH: torch.Tensor, x_TH: torch.Tensor, weight_HL: torch.Tensor, start_T: torch.Tensor) -> torch.Tensor:
    """Compute the gradient of x; see `op.backward`."""
    c_TH = wide(convolved(x_TH, weight_HL, None, start_T))
    gate_TH = torch.sigmoid(c_TH)
    dc_TH = wide(dy_TH) * gate_TH * (1.0 + c_TH * (1.0 - gate_TH))
    return transposed(dc_TH.to(dy_TH.dtype), weight_HL, start_T)


def step(x_BH: torch.Tensor, earlier_BPH: torch.Tensor, weight_HL: torch.Tensor) -> torch.Tensor:
    """Convolve each row's newest token and move it into `earlier_BPH`; see `op.step`."""
    reached_BLH = torch.cat((earlier_BPH, x_BH[:, None]), dim=1)
    convolved_BH = (wide(reached_BLH) * wide(weight_HL).t()).sum(dim=1).to(x_BH.dtype)
    earlier_BPH.copy_(reached_BLH[:, 1:])
    return functional.silu(convolved_BH)
