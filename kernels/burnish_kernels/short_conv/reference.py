"""Gated short convolution in plain PyTorch: the definition of the kernel's result, and the path without a GPU.

LFM2's operator (Liquid AI 2025, arXiv 2511.23404; transformers' `Lfm2ShortConv`): a causal depthwise convolution of
B x with few taps, between two gates. What lies before a token's document counts as 0. Each product is rounded to the
inputs' type as there, and the convolution is summed in at least fp32.

`forward` can be differentiated by autograd, `backward` is the same gradient written out.

Shapes: T rows (tokens), H channels, C = 3H (B, C, x), L taps.
"""

from __future__ import annotations

import torch

from burnish_kernels.taps import convolved, transposed


def forward(
    bcx_TC: torch.Tensor, weight_HL: torch.Tensor, bias_H: torch.Tensor | None, start_T: torch.Tensor
) -> torch.Tensor:
    """Compute C (w * (B x) + bias); see `op.forward`."""
    b_TH, c_TH, x_TH = bcx_TC.chunk(3, dim=-1)
    return c_TH * convolved(b_TH * x_TH, weight_HL, bias_H, start_T)


def backward(
    dy_TH: torch.Tensor,
    bcx_TC: torch.Tensor,
    weight_HL: torch.Tensor,
    bias_H: torch.Tensor | None,
    start_T: torch.Tensor,
) -> torch.Tensor:
    """Compute the gradient of B, C and x, side by side; see `op.backward`."""
    b_TH, c_TH, x_TH = bcx_TC.chunk(3, dim=-1)
    du_TH = transposed(dy_TH * c_TH, weight_HL, start_T)
    dc_TH = dy_TH * convolved(b_TH * x_TH, weight_HL, bias_H, start_T)
    return torch.cat((du_TH * x_TH, dc_TH, du_TH * b_TH), dim=-1)
