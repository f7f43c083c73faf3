"""MXFP8 in plain PyTorch: the definition that the kernels are compared with, and the path without such a GPU.

A block's power of two is the smallest that brings its largest magnitude to at most 448, so that nothing saturates
(Mishra et al. 2025, arXiv 2506.08027, section 3.1; the rounding "RCEIL" of torchao). It is 1 for a block of zeros.

Shapes: T tokens, K columns of the reduction, N outputs, R ranks.
"""

from __future__ import annotations

import torch

from burnish_kernels.eight_bit_linear.reference import over_largest
from burnish_kernels.eight_bit_linear.rows import CODES
from burnish_kernels.moe_unpack.reference import mxfp4_values
from burnish_kernels.mxfp8_linear.blocks import BLOCK

ONE, SMALLEST, NAN = 127, 1, 255
"""Exponent bytes of 1, of the smallest power of two whose reciprocal and itself are normal fp32, and of NaN."""

FP4_TOP = 6
"""Binary places between a block of E2M1 and one of E4M3 whose largest number 6 is written as 384."""


def block_scale(largest: torch.Tensor) -> torch.Tensor:
    """Return the exponent byte of blocks whose largest magnitudes are given, fp32."""
    bits = over_largest(largest).view(torch.int32)
    up = (bits >> 23) + ((bits & 0x7FFFFF) != 0)
    up = torch.where(largest.isfinite(), up.clamp(min=SMALLEST), NAN)
    return torch.where(largest == 0, ONE, up).to(torch.uint8)


def power(scale: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return 2^(scale - 127); NaN for 255."""
    value = torch.ldexp(torch.ones_like(scale, dtype=dtype), scale.int() - ONE)
    return torch.where(scale == NAN, torch.nan, value)


def quantize_rows(x_TK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes `[T, K]` and exponents `[T, K / 32]` of rows."""
    blocks = x_TK.float().unflatten(1, (-1, BLOCK))
    scale = block_scale(blocks.abs().amax(dim=2))
    return _encode(blocks, scale[:, :, None]).flatten(1), scale


def quantize_weight(weight_NK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes `[N, K]` and exponents `[N / 32, K / 32]` of a weight."""
    scale = weight_scale(weight_NK)
    return _encode(_tiles(weight_NK), scale[:, None, :, None]).reshape(weight_NK.shape), scale


def weight_scale(weight_NK: torch.Tensor) -> torch.Tensor:
    """Return the exponents `[N / 32, K / 32]` of a weight."""
    return block_scale(_tiles(weight_NK).abs().amax(dim=(1, 3)))


def expand_mxfp4(blocks: torch.Tensor, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes `[N, K]` and exponents `[N / 32, K / 32]` of an MXFP4 weight; see `op.expand_mxfp4`."""
    rows, columns = scales.shape
    tops = scales.view(-1, BLOCK, columns).amax(dim=1)
    scale = (tops.int() - FP4_TOP).clamp(min=0).to(torch.uint8)
    values = mxfp4_values(blocks, torch.full_like(scales, ONE)).view(rows, columns, BLOCK)
    places = scales.int() - scale.int().repeat_interleave(BLOCK, dim=0)
    return torch.ldexp(values, places[:, :, None]).to(CODES).flatten(1), scale


def decode_weight(codes_NK: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return the values `[N, K]` of a weight."""
    factors = power(scale, dtype).repeat_interleave(BLOCK, dim=0).repeat_interleave(BLOCK, dim=1)
    return codes_NK.to(dtype) * factors


def decode_rows(codes_TK: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return the values `[T, K]` of rows."""
    return codes_TK.to(dtype) * power(scale, dtype).repeat_interleave(BLOCK, dim=1)


def mxfp8_linear(
    x: tuple[torch.Tensor, torch.Tensor],
    weight: tuple[torch.Tensor, torch.Tensor],
    narrow_TR: torch.Tensor | None,
    adapter_NR: torch.Tensor | None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Compute the product `[T, N]` in `dtype` of codes with their exponents; see `op.mxfp8_linear`."""
    y_TN = decode_rows(*x, dtype) @ decode_weight(*weight, dtype).t()
    if narrow_TR is not None and adapter_NR is not None:
        y_TN = y_TN + narrow_TR.to(dtype) @ adapter_NR.to(dtype).t()
    return y_TN


def _tiles(weight_NK: torch.Tensor) -> torch.Tensor:
    """Return a weight as fp32 `[N / 32, 32, K / 32, 32]`."""
    return weight_NK.float().unflatten(1, (-1, BLOCK)).unflatten(0, (-1, BLOCK))


def _encode(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return codes of values over their powers of two; of a block that is not finite all are NaN."""
    return (values * power(2 * ONE - scale.int().clamp(max=2 * ONE))).where(scale != NAN, torch.nan).to(CODES)
