"""The protocol of a stack's frozen weight. Shapes as in `stacked_linear`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.lora_linear import op as lora_linear


class FrozenWeight(Protocol):
    """The storage of a stack's frozen weight W beside the compute copies of its adapters, and the products with them.

    Where memory is unpacked into that other stacks share, it is theirs again after each product.
    """

    @property
    def gradient_factor_N(self) -> torch.Tensor | None:
        """Factor of each output, fp32, in the gradient that is quantized for `input_gradient`; None: none is."""
        ...

    def new_input_codes(self, tokens: int) -> EightBitRows | None:
        """Allocate codes of an input, for the kernel that makes the input to write beside it.

        Returns:
            The codes `[T, K]` and scales, uninitialized; None: `forward` reads the input itself, or quantizes it.
        """
        ...

    def new_gradient_codes(self, tokens: int) -> EightBitRows | None:
        """Allocate codes of the output's gradient times `gradient_factor_N`, `[T, N]`; as `new_input_codes`."""
        ...

    def prepared(self) -> AbstractContextManager[None]:
        """Unpack at most once inside the block. No other stack that shares its memory may be used meanwhile."""
        ...

    def forward(
        self,
        x_TE: torch.Tensor,
        stack: lora_linear.Stack,
        *,
        bias_N: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        drop: lora_linear.Dropout | None = None,
        fill: Callable[[torch.Tensor], object] | None = None,
        codes: EightBitRows | None = None,
    ) -> torch.Tensor:
        """Compute X Wᵀ, the bias and the adapters' output, `[T, N]`.

        Args:
            x_TE: input `[T, K + R]`, the first K columns filled; XAᵀ is written into the others.
            stack: sizes and adapters.
            bias_N: bias added to the output, or None.
            out: tensor to write the result to.
            drop: dropout on the adapters' input.
            fill: function that fills all of the input, given A `[R, K]`; None: X is there, and XAᵀ is computed here.
            codes: codes of X, from `new_input_codes`, where they are written; None: they are not.
        """
        ...

    def decode(
        self, x_TE: torch.Tensor, stack: lora_linear.Stack, *, bias_N: torch.Tensor | None, out: torch.Tensor | None
    ) -> torch.Tensor | None:
        """Compute the output for the newest tokens of some replies, reading W once; nothing is differentiated.

        Args:
            x_TE: input as for `forward`; its last R columns stay as they are.
            stack: sizes and adapters.
            bias_N: bias added to the output, or None.
            out: tensor to write the result to.

        Returns:
            The output `[T, N]`; None where `forward` does this.
        """
        ...

    def input_gradient(
        self,
        dy_TE: torch.Tensor,
        stack: lora_linear.Stack,
        *,
        wanted: bool,
        drop: lora_linear.Dropout | None = None,
        largest_T: torch.Tensor | None = None,
        codes: EightBitRows | None = None,
    ) -> torch.Tensor | None:
        """Compute the gradient of the input, `[T, K]`; None where it is not wanted.

        Args:
            dy_TE: gradient `[T, N + R]` of the output, the first N columns filled; dY·sB is written into the others.
            stack: sizes and adapters.
            wanted: whether the gradient is needed; dY·sB is computed all the same.
            drop: same as in `forward`.
            largest_T: largest magnitude of each row of dY times `gradient_factor_N`, fp32, where it is known.
            codes: codes of dY, from `new_gradient_codes`, where they are written; None: they are not.
        """
        ...

    def bare(self, outputs: int, inputs: int) -> FrozenWeight:
        """Return the same weight without its adapters, in the same memory.

        Args:
            outputs: number of outputs N.
            inputs: number of inputs K.
        """
        ...

    def tensors(self, outputs: int, inputs: int) -> dict[str, torch.Tensor]:
        """Return what is stored of W, by name; arguments as for `bare`."""
        ...
