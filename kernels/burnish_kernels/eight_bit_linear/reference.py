"""Products of 8-bit operands in plain PyTorch: the definition that the kernels are compared with.

Codes are E4M3 of Micikevicius et al. 2022 (arXiv 2209.05433), or INT8 as in LLM.int8() (Dettmers et al. 2022, arXiv
2208.07339), rounded to nearest, halves to even. One scale a row: its largest magnitude over 448, as `torch._scaled_mm`
and published FP8 checkpoints have it, or over 127.

Shapes: T tokens, K columns of the reduction, N outputs, R ranks.
"""

from __future__ import annotations

import math

import torch

from burnish_kernels.dispatch import rounded
from burnish_kernels.eight_bit_linear.rows import CODES, INT8, LARGEST_OF

SMALLEST_SCALE = 2.0**-126
"""Smallest scale of a row: its reciprocal is finite."""


ROTATIONS = (64, 32, 16)
"""Columns of a block that can be rotated; Triton multiplies no smaller matrices."""

MOST_ROTATED = 2**15
"""Most columns of rows that are rotated: those that a program's registers hold."""


def row_scale(largest_T: torch.Tensor, codes: torch.dtype = CODES) -> torch.Tensor:
    """Return the scale of rows whose largest magnitudes are given, fp32: over 448 or 127, and 1 for a row of zeros."""
    return torch.where(largest_T == 0, 1.0, over_largest(largest_T, codes).clamp(min=SMALLEST_SCALE))


def over_largest(magnitudes: torch.Tensor, codes: torch.dtype = CODES) -> torch.Tensor:
    """Return fp32 magnitudes over the largest code, rounded to nearest; torch would multiply by 1 / 448 on a GPU."""
    return magnitudes / torch.full_like(magnitudes, LARGEST_OF[codes])


def encode(x_TK: torch.Tensor, scale_T: torch.Tensor, codes: torch.dtype = CODES) -> torch.Tensor:
    """Return the codes of fp32 values over their row's scale; the product with the reciprocal is what is rounded."""
    ratio_TK = x_TK * (1.0 / scale_T)[:, None]
    if codes == INT8:
        largest = LARGEST_OF[INT8]
        ratio_TK = ratio_TK.nan_to_num(nan=-largest).round().clamp(-largest, largest)
    return ratio_TK.to(codes)


def rotation_of(columns: int) -> int:
    """Return the columns of a block that a matrix is rotated by: 64, or the largest power of two that fits.

    0, for no rotation, where none fits and for more than `MOST_ROTATED` columns.
    """
    if columns > MOST_ROTATED:
        return 0
    return next((block for block in ROTATIONS if columns % block == 0), 0)


def check_rotation(rotation: int, columns: int) -> None:
    """Raise ValueError unless blocks of that many columns divide a matrix of at most `MOST_ROTATED` columns."""
    if rotation not in ROTATIONS or columns % rotation or columns > MOST_ROTATED:
        raise ValueError(
            f"{columns} columns are not rotated by {rotation}; at most {MOST_ROTATED} are, by one of {ROTATIONS}"
        )


def hadamard(size: int, device: torch.device) -> torch.Tensor:
    """Return Sylvester's Hadamard matrix `[size, size]` fp32 of -1 and 1, for a power of two."""
    found = torch.ones(1, 1, device=device)
    while len(found) < size:
        found = torch.cat([torch.cat([found, found], dim=1), torch.cat([found, -found], dim=1)])
    return found


def rotate(x_TK: torch.Tensor, rotation: int) -> torch.Tensor:
    """Return rows in fp32 or fp64 whose blocks of columns are multiplied with the orthogonal Hadamard matrix."""
    signs = hadamard(rotation, x_TK.device).to(x_TK.dtype)
    return (x_TK.reshape(-1, rotation) @ signs * rotation**-0.5).view(x_TK.shape)


def quantize_rows(
    x_TK: torch.Tensor, factor_K: torch.Tensor | None, codes: torch.dtype = CODES, rotation: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes and scales of `x * factor`, whose columns are rotated by blocks before if asked for.

    A row that holds a NaN or an infinity gets an infinite scale, so that its products are not finite.
    """
    wide = x_TK.float() if factor_K is None else x_TK.float() * factor_K
    wide = rotate(wide, rotation) if rotation else wide
    scale = row_scale(wide.abs().nan_to_num(nan=math.inf, posinf=math.inf).amax(dim=1), codes)
    return encode(wide, scale, codes), scale


def eight_bit_linear(
    x_TK: torch.Tensor,
    x_scale_T: torch.Tensor,
    weight_NK: torch.Tensor,
    scale_N: torch.Tensor | None,
    narrow_TR: torch.Tensor | None,
    adapter_NR: torch.Tensor | None,
    dtype: torch.dtype = torch.float32,
    *,
    rotation: int = 0,
    result: torch.dtype = torch.bfloat16,
) -> torch.Tensor:
    """Compute the product `[T, N]` in `dtype`; what is rotated is rounded to the result's type before."""
    y_TN = x_TK.to(dtype) @ weight_NK.to(dtype).t() * x_scale_T.to(dtype)[:, None]
    if scale_N is not None:
        y_TN = y_TN * scale_N.to(dtype)
    if rotation:
        y_TN = rotate(rounded(y_TN.float(), result).to(dtype), rotation)
    if narrow_TR is not None and adapter_NR is not None:
        y_TN = y_TN + narrow_TR.to(dtype) @ adapter_NR.to(dtype).t()
    return y_TN
