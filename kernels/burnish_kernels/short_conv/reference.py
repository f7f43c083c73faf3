"""Gated short convolution in plain PyTorch: the definition of the kernel's result, and the path without a GPU.

LFM2's operator (Liquid AI 2025, arXiv 2511.23404; transformers' `Lfm2ShortConv`): a causal depthwise convolution of
B x with few taps, between two gates. What lies before a token's document counts as 0. Each product is rounded to the
inputs' type as there, and the convolution is summed in at least fp32.

`forward` can be differentiated by autograd, `backward` is the same gradient written out.

Shapes: T rows (tokens), H channels, C = 3H (B, C, x), L taps.
"""

from __future__ import annotations

import torch
from torch.nn import functional


def forward(
    bcx_TC: torch.Tensor, weight_HL: torch.Tensor, bias_H: torch.Tensor | None, start_T: torch.Tensor
) -> torch.Tensor:
    """Compute C (w * (B x) + bias); see `op.forward`."""
    b_TH, c_TH, x_TH = bcx_TC.chunk(3, dim=-1)
    return c_TH * _convolved(b_TH * x_TH, weight_HL, bias_H, start_T)


def backward(
    dy_TH: torch.Tensor,
    bcx_TC: torch.Tensor,
    weight_HL: torch.Tensor,
    bias_H: torch.Tensor | None,
    start_T: torch.Tensor,
    end_T: torch.Tensor,
) -> torch.Tensor:
    """Compute the gradient of B, C and x, side by side; see `op.backward`."""
    b_TH, c_TH, x_TH = bcx_TC.chunk(3, dim=-1)
    taps, rows = weight_HL.shape[1], _rows(dy_TH)
    dconvolved_TH = dy_TH * c_TH
    total_TH = torch.zeros_like(_wide(dy_TH))
    for distance in range(taps):
        later_TH = functional.pad(_wide(dconvolved_TH), (0, 0, 0, distance))[distance:]
        inside_T1 = (rows + distance < end_T)[:, None]
        total_TH = total_TH + torch.where(inside_T1, later_TH * _wide(weight_HL[:, taps - 1 - distance]), 0.0)
    du_TH = total_TH.to(dy_TH.dtype)
    dc_TH = dy_TH * _convolved(b_TH * x_TH, weight_HL, bias_H, start_T)
    return torch.cat((du_TH * x_TH, dc_TH, du_TH * b_TH), dim=-1)


def _convolved(
    u_TH: torch.Tensor, weight_HL: torch.Tensor, bias_H: torch.Tensor | None, start_T: torch.Tensor
) -> torch.Tensor:
    taps, rows = weight_HL.shape[1], _rows(u_TH)
    total_TH = torch.zeros_like(_wide(u_TH))
    for distance in range(taps):
        earlier_TH = functional.pad(_wide(u_TH), (0, 0, distance, 0))[: len(u_TH)]
        inside_T1 = (rows - distance >= start_T)[:, None]
        total_TH = total_TH + torch.where(inside_T1, earlier_TH * _wide(weight_HL[:, taps - 1 - distance]), 0.0)
    if bias_H is not None:
        total_TH = total_TH + _wide(bias_H)
    return total_TH.to(u_TH.dtype)


def _rows(like_TH: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(like_TH), device=like_TH.device)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
