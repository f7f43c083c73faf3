"""The protocol of a format in which frozen weights are multiplied in 8 bits. Shapes as in `stacked_linear`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from burnish_engine.models.decoder.frozen.parts import CodedPart, WeightPart
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.lora_linear.tiles import RankSegment


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

    def gradient_factor(self, scale: torch.Tensor) -> torch.Tensor | None:
        """Return the factor `[N]` fp32 of each output in the gradient that is quantized; None: none is."""
        ...

    def new_input_codes(self, tokens: int, columns: int, device: torch.device) -> EightBitRows | None:
        """Allocate codes of an input `[tokens, columns]`, for the kernel that makes the input to write beside it.

        Returns:
            The codes and scales, uninitialized; None: no such kernel makes them, `operand` does.
        """
        ...

    def operand(self, x_TK: torch.Tensor) -> Any:
        """Quantize an input for `output`; rows may be strided."""
        ...

    def output(
        self,
        operand: Any,
        codes_NK: torch.Tensor,
        scale: torch.Tensor,
        *,
        narrow_TR: torch.Tensor | None,
        adapter_NR: torch.Tensor | None,
        dtype: torch.dtype,
        out: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return X Wᵀ + narrow adapterᵀ, `[T, N]`.

        Args:
            operand: result of `operand`, or filled memory from `new_input_codes`.
            codes_NK: codes of W.
            scale: scales of W.
            narrow_TR: input times the adapters' A; None: no adapter.
            adapter_NR: adapters' sB.
            dtype: type of the result.
            out: tensor to write the result to; None: it is allocated.
        """
        ...

    def new_gradient_codes(self, tokens: int, scale: torch.Tensor) -> EightBitRows | None:
        """Allocate codes of an output's gradient times `gradient_factor`; as `new_input_codes`, with `gradient`."""
        ...

    def gradient(self, dy_TN: torch.Tensor, scale: torch.Tensor) -> Any:
        """Quantize the output's gradient for `input_gradient`; rows may be strided."""
        ...

    def projected_gradient(
        self,
        dy_TN: torch.Tensor,
        scale: torch.Tensor,
        sb_RN: torch.Tensor,
        dxa_TR: torch.Tensor,
        segments: Sequence[RankSegment],
        largest_T: torch.Tensor,
    ) -> Any:
        """Compute dY·sB and quantize the gradient in one pass; called where `gradient_factor` is not None.

        Args:
            dy_TN: output's gradient, rows may be strided.
            scale: scales of W.
            sb_RN: adapters' sB, transposed.
            dxa_TR: memory for dY·sB.
            segments: outputs that each rank reads.
            largest_T: largest magnitude of each row of dY times the factor, fp32.
        """
        ...

    def input_gradient(
        self,
        gradient: Any,
        codes_KN: torch.Tensor,
        scale: torch.Tensor,
        *,
        narrow_TR: torch.Tensor | None,
        adapter_NR: torch.Tensor | None,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        """Return dY W + narrow adapterᵀ, `[T, K]`.

        Args:
            gradient: result of `gradient` or `projected_gradient`, or filled memory from `new_gradient_codes`.
            codes_KN: transposed codes of W.
            scale: scales of W, not transposed.
            narrow_TR: dY·sB; None: no adapter.
            adapter_NR: adapters' Aᵀ, `[K, R]`.
            dtype: type of the result.
        """
        ...
