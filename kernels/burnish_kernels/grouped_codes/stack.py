"""A stack of experts' weights in 8 bits as it lies in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from burnish_kernels.eight_bit_linear.rows import CODES


@dataclass(frozen=True)
class CodedExperts:
    """Weights of experts, each of which is its codes times its scale.

    Attributes:
        codes: E4M3 numbers `[E, N, K]`, contiguous.
        scale: scale of each expert `[E]` fp32.
    """

    codes: torch.Tensor
    scale: torch.Tensor

    @property
    def experts(self) -> int:
        """Number of experts, E."""
        return self.codes.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows N and columns K of one expert."""
        return self.codes.shape[1], self.codes.shape[2]

    def check(self) -> None:
        """Raise ValueError unless shapes and types fit one another."""
        codes, scale = self.codes, self.scale
        if codes.ndim != 3 or codes.dtype != CODES or not codes.is_contiguous() or codes[0].numel() >= 1 << 31:
            raise ValueError(f"codes must be [E, N, K] {CODES}, not {tuple(codes.shape)} {codes.dtype}")
        if scale.shape != codes.shape[:1] or scale.dtype != torch.float32:
            raise ValueError(f"scales must be [{len(codes)}] fp32, not {tuple(scale.shape)} {scale.dtype}")


def empty_codes(experts: int, shape: tuple[int, int], device: torch.device | str) -> CodedExperts:
    """Allocate an uninitialized stack of experts with rows and columns."""
    return CodedExperts(
        torch.empty(experts, *shape, dtype=CODES, device=device),
        torch.empty(experts, dtype=torch.float32, device=device),
    )
