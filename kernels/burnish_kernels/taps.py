"""Causal depthwise convolution within packed documents, in plain PyTorch: what the convolutions' references share.

What lies before a token's document counts as 0. Sums are taken in at least fp32, the nearest tap first.

Shapes: T rows (tokens), H channels, L taps, the last one for the token itself.
"""

from __future__ import annotations

import torch
from torch.nn import functional


def convolved(
    u_TH: torch.Tensor, weight_HL: torch.Tensor, bias_H: torch.Tensor | None, start_T: torch.Tensor
) -> torch.Tensor:
    """Convolve along the rows, back to the first row of each row's document; rounded to the input's type."""
    taps, rows = weight_HL.shape[1], torch.arange(len(u_TH), device=u_TH.device)
    total_TH = torch.zeros_like(wide(u_TH))
    for distance in range(taps):
        earlier_TH = functional.pad(wide(u_TH), (0, 0, distance, 0))[: len(u_TH)]
        inside_T1 = (rows - distance >= start_T)[:, None]
        total_TH = total_TH + torch.where(inside_T1, earlier_TH * wide(weight_HL[:, taps - 1 - distance]), 0.0)
    if bias_H is not None:
        total_TH = total_TH + wide(bias_H)
    return total_TH.to(u_TH.dtype)


def transposed(dy_TH: torch.Tensor, weight_HL: torch.Tensor, start_T: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the input of `convolved`, rounded to the type of the output's gradient."""
    taps, rows = weight_HL.shape[1], torch.arange(len(dy_TH), device=dy_TH.device)
    total_TH = torch.zeros_like(wide(dy_TH))
    for distance in range(taps):
        reaching_TH = torch.where((rows - distance >= start_T)[:, None], wide(dy_TH), 0.0)
        later_TH = functional.pad(reaching_TH, (0, 0, 0, distance))[distance:]
        total_TH = total_TH + later_TH * wide(weight_HL[:, taps - 1 - distance])
    return total_TH.to(dy_TH.dtype)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in at least fp32."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
