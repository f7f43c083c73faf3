"""Matrices in MXFP8 as they lie in memory: E4M3 codes, and a power of two for each block of 32.

OCP Microscaling Formats specification 1.0, sections 5.1 to 5.3: a block's values are its codes times 2^(s - 127), where
s is one byte, and 255 is NaN. Activations have blocks of 1 x 32 along the columns that are summed over. Frozen weights
have blocks of 32 x 32, so that one payload, transposed with its scales, serves both directions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from burnish_kernels.eight_bit_linear.rows import CODES

BLOCK = 32
"""Values along a row, and in weights also along a column, that share a power of two."""


@dataclass(frozen=True)
class MxRows:
    """Rows whose value c of row r is codes[r, c] times 2^(scale[r, c // 32] - 127).

    Attributes:
        codes: E4M3 numbers `[T, K]`, a row's side by side; rows may be strided.
        scale: exponents `[T, K / 32]` uint8, contiguous.
    """

    codes: torch.Tensor
    scale: torch.Tensor

    def check(self) -> None:
        """Raise ValueError unless shapes, types and devices fit one another."""
        _check(self.codes, self.scale, rows_of_scales=self.codes.shape[0])


@dataclass(frozen=True)
class MxWeight:
    """A weight whose value k of row n is codes[n, k] times 2^(scale[n // 32, k // 32] - 127).

    Attributes:
        codes: E4M3 numbers `[N, K]`, a row's side by side; rows may be strided.
        scale: exponents `[N / 32, K / 32]` uint8, any strides.
    """

    codes: torch.Tensor
    scale: torch.Tensor

    def check(self) -> None:
        """Raise ValueError unless shapes, types and devices fit one another."""
        if self.codes.ndim == 2 and self.codes.shape[0] % BLOCK:
            raise ValueError(f"a weight has a multiple of {BLOCK} rows, not {len(self.codes)}")
        _check(self.codes, self.scale, rows_of_scales=self.codes.shape[0] // BLOCK, contiguous=False)


def _check(codes: torch.Tensor, scale: torch.Tensor, rows_of_scales: int, *, contiguous: bool = True) -> None:
    if codes.ndim != 2 or codes.dtype != CODES or (codes.shape[1] > 1 and codes.stride(1) != 1):
        raise ValueError(f"codes must be rows of {CODES}, not {tuple(codes.shape)} {codes.dtype}")
    if codes.shape[1] % BLOCK:
        raise ValueError(f"rows have a multiple of {BLOCK} columns, not {codes.shape[1]}")
    shape = (rows_of_scales, codes.shape[1] // BLOCK)
    if scale.shape != shape or scale.dtype != torch.uint8 or (contiguous and not scale.is_contiguous()):
        raise ValueError(f"scales must be {shape} uint8, not {tuple(scale.shape)} {scale.dtype}")
    if scale.device != codes.device:
        raise ValueError(f"the scales are on {scale.device}, the codes on {codes.device}")
