"""A matrix in 8 bits as it lies in memory: E4M3 or INT8 codes with one scale a row."""

from __future__ import annotations

from dataclasses import dataclass

import torch

CODES = torch.float8_e4m3fn
"""Type of the codes: four bits of exponent, three of mantissa, no infinity."""

INT8 = torch.int8
"""Type of codes that are whole numbers from -127 to 127."""

LARGEST = 448.0
"""Largest number of E4M3."""

LARGEST_OF = {CODES: LARGEST, INT8: 127.0}
"""Code of a row's largest magnitude, by the codes' type."""


@dataclass(frozen=True)
class EightBitRows:
    """A matrix `[R, C]` whose row r is codes[r] times scale[r].

    Attributes:
        codes: E4M3 numbers or INT8 `[R, C]`, a row's side by side; rows may be strided.
        scale: scale of each row `[R]` fp32.
    """

    codes: torch.Tensor
    scale: torch.Tensor

    def at(self, rows: slice) -> EightBitRows:
        """Return some rows, in the same memory."""
        return EightBitRows(self.codes[rows], self.scale[rows])

    def check(self) -> None:
        """Raise ValueError unless shapes, types and devices fit one another."""
        codes, scale = self.codes, self.scale
        if codes.ndim != 2 or codes.dtype not in LARGEST_OF or (codes.shape[1] > 1 and codes.stride(1) != 1):
            raise ValueError(f"codes must be rows of one of {list(LARGEST_OF)}, not {tuple(codes.shape)} {codes.dtype}")
        if scale.shape != codes.shape[:1] or scale.dtype != torch.float32 or not scale.is_contiguous():
            raise ValueError(f"scales must be [{len(codes)}] fp32, not {tuple(scale.shape)} {scale.dtype}")
        if scale.device != codes.device:
            raise ValueError(f"the scales are on {scale.device}, the codes on {codes.device}")
