"""Products of 8-bit operands in plain PyTorch: the definition that the kernels are compared with.

E4M3 of Micikevicius et al. 2022 (arXiv 2209.05433), rounded to nearest, halves to even. One scale a row, its largest
magnitude over 448, as `torch._scaled_mm` and published FP8 checkpoints have it.

Shapes: T tokens, K columns of the reduction, N outputs, R ranks.
"""

from __future__ import annotations

import torch

from burnish_kernels.fp8_linear.rows import CODES, LARGEST

SMALLEST_SCALE = 2.0**-126
"""Smallest scale of a row: its reciprocal is finite."""


def row_scale(largest_T: torch.Tensor) -> torch.Tensor:
    """Return the scale of rows whose largest magnitudes are given, fp32: over 448, and 1 for a row of zeros."""
    largest = largest_T.new_tensor(LARGEST)  # torch multiplies by the reciprocal of a number on a GPU
    return torch.where(largest_T == 0, 1.0, (largest_T / largest).clamp(min=SMALLEST_SCALE))


def encode(x_TK: torch.Tensor, scale_T: torch.Tensor) -> torch.Tensor:
    """Return the codes of fp32 values over their row's scale; the product with the reciprocal is what is rounded."""
    return (x_TK * (1.0 / scale_T)[:, None]).to(CODES)


def quantize_rows(x_TK: torch.Tensor, factor_K: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes and scales of `x * factor`.

    A row that holds a NaN or an infinity gets a scale or codes that are not finite, and so do its products.
    """
    wide = x_TK.float() if factor_K is None else x_TK.float() * factor_K
    scale = row_scale(wide.abs().amax(dim=1))
    return encode(wide, scale), scale


def fp8_linear(
    x_TK: torch.Tensor,
    x_scale_T: torch.Tensor,
    weight_NK: torch.Tensor,
    scale_N: torch.Tensor | None,
    narrow_TR: torch.Tensor | None,
    adapter_NR: torch.Tensor | None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Compute the product `[T, N]` in `dtype`; see `op.fp8_linear`."""
    y_TN = x_TK.to(dtype) @ weight_NK.to(dtype).t() * x_scale_T.to(dtype)[:, None]
    if scale_N is not None:
        y_TN = y_TN * scale_N.to(dtype)
    if narrow_TR is not None and adapter_NR is not None:
        y_TN = y_TN + narrow_TR.to(dtype) @ adapter_NR.to(dtype).t()
    return y_TN
