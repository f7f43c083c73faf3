"""The protocol of a format in which frozen weights are multiplied in 8 bits. Shapes as in `stacked_linear`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from burnish_engine.models.decoder.frozen.parts import CodedPart, WeightPart


@dataclass(frozen=True)
class CodedProduct:
    """Codes that a quantized operand is multiplied with, and the adapters' product, which is added.

    Attributes:
        codes: codes of W, `[N, K]` for the output, transposed for the input's gradient.
        scale: scales of W, never transposed.
        dtype: type of the result.
        narrow_TR: operand times the adapters' first matrix: XAᵀ, or dY·sB; None: no adapter.
        adapter: adapters' other matrix: sB `[N, R]`, or Aᵀ `[K, R]`; None: no adapter.
        out: tensor to write the result to; None: it is allocated.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    dtype: torch.dtype
    narrow_TR: torch.Tensor | None = None
    adapter: torch.Tensor | None = None
    out: torch.Tensor | None = None


class CodeFormat(Protocol):
    """Codes of 8 bits with scales: how a weight is rounded to them, and the products with it.

    Codes have the shape of the weight or its transpose; scales are those of the weight `[N, K]` in both directions.

    Attributes:
        dtype: type of a code, of one byte.
    """

    dtype: torch.dtype

    def empty(self, rows: int, columns: int, device: torch.device | str) -> CodedPart:
        """Allocate codes `[rows, columns]` and scales, uninitialized."""
        ...

    def quantize(self, weight_NK: torch.Tensor) -> CodedPart:
        """Return a weight of any float type as codes and scales."""
        ...

    def scales(self, parts: Sequence[WeightPart], device: torch.device) -> torch.Tensor:
        """Return the scales with which parts in NF4 or 16 bits, one under another, are unpacked to codes."""
        ...

    def unpack(self, parts: Sequence[WeightPart], scale: torch.Tensor, out: torch.Tensor, *, transposed: bool) -> None:
        """Write the codes of parts in NF4 or 16 bits.

        Args:
            parts: rows of the weight from top to bottom.
            scale: scales from `scales`.
            out: memory for codes `[N, K]`, or `[K, N]` if transposed.
            transposed: whether the transposed codes are wanted.
        """
        ...

    def operand(self, x_TK: torch.Tensor) -> Any:
        """Quantize an input for `output`; rows may be strided."""
        ...

    def output(self, operand: Any, product: CodedProduct) -> torch.Tensor:
        """Return X Wᵀ + narrow adapterᵀ, `[T, N]`, of a quantized X."""
        ...

    def gradient(self, dy_TN: torch.Tensor, scale: torch.Tensor) -> Any:
        """Quantize the output's gradient for `input_gradient`; rows may be strided."""
        ...

    def input_gradient(self, gradient: Any, product: CodedProduct) -> torch.Tensor:
        """Return dY W + narrow adapterᵀ, `[T, K]`, of a quantized dY."""
        ...
