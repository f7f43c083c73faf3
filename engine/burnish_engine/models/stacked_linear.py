"""Frozen linear layers that share their input, stacked row under row, with their LoRA adapters in the same matrix.

One buffer `M = [[W, sB], [A, 0]]` of shape `[N + R, K + R]` holds the frozen weight W (N output features, K inputs),
the stacked A (R rows, ranks padded to 16) and the block-diagonal sB (scale multiplied in). Its top rows serve the
forward pass over `[X | XAᵀ]`, its left columns the gradient of X from `[dY | dY·sB]`: one GEMM each, with no second
pass over the output and no second copy of the weight. A and B are trained as fp32 masters elsewhere; what stands here
are their shadows in the compute dtype.

Shapes: T tokens, K inputs, N outputs, R padded rank sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import torch

from burnish_kernels.lora_linear import op as lora_linear
from burnish_kernels.nf4 import op as nf4

_STREAMS_OF_A_TILE = 1 << 16  # random streams: more than the stacks of any model have together

Part: TypeAlias = "torch.Tensor | nf4.Nf4"
"""Some rows of the stack: 16-bit or fp32 weight `[rows, K]`, or the same in NF4."""


class Frozen(Protocol):
    """Where the frozen weight stands."""

    def buffer(self) -> torch.Tensor:
        """The whole matrix M, ready to be multiplied with. Valid until another stack asks that shares its memory."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """Within, the matrix is made ready once. No other stack that shares its memory may be used meanwhile."""
        ...


@dataclass
class Resident:
    """W stays in M in the compute dtype."""

    matrix: torch.Tensor

    def buffer(self) -> torch.Tensor:
        """See `Frozen`."""
        return self.matrix

    def held(self) -> AbstractContextManager[None]:
        """See `Frozen`."""
        return nullcontext()


@dataclass
class Quantized:
    """W is NF4 (some rows may be 16-bit); it is dequantized into scratch memory that it shares with other stacks.

    Attributes:
        parts: The rows of W from top to bottom.
        a_RK, sb_NR: Shadows of the adapters, pasted beside W.
        scratch: `[N + R, K + R]`; what stands in the corner below sB and beside A means nothing, and nothing reads it.
    """

    parts: list[Part]
    a_RK: torch.Tensor
    sb_NR: torch.Tensor
    scratch: torch.Tensor
    _is_held: bool = False
    _is_ready: bool = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """See `Frozen`."""
        self._is_held, self._is_ready = True, False
        try:
            yield
        finally:
            self._is_held = False

    def buffer(self) -> torch.Tensor:
        """See `Frozen`."""
        if self._is_held and self._is_ready:
            return self.scratch
        self._is_ready = True
        n, k = self.sb_NR.shape[0], self.a_RK.shape[1]
        nf4.dequantize_stack(self.parts, self.scratch[:n, :k], self.scratch.dtype)
        if self.a_RK.shape[0]:
            nf4.paste(self.scratch, n, k, self.a_RK, self.sb_NR)
        return self.scratch


@dataclass
class Gradients:
    """Where a stack's adapter gradients are accumulated: fp32 views, one of each kind an adapter."""

    a: list[torch.Tensor] = field(default_factory=list)
    b: list[torch.Tensor] = field(default_factory=list)


class StackedLinear:
    """One stack.

    Args:
        stack: Shape and adapters.
        frozen: The weight.
        bias_N: Added to the output, or None.
    """

    def __init__(self, stack: lora_linear.Stack, frozen: Frozen, bias_N: torch.Tensor | None = None) -> None:
        self.stack, self.frozen, self.bias_N = stack, frozen, bias_N
        self.gradients = Gradients()
        self.drop: lora_linear.Dropout | None = None

    @property
    def inputs(self) -> int:
        """K."""
        return self.stack.K

    @property
    def outputs(self) -> int:
        """N."""
        return self.stack.N

    @property
    def rank(self) -> int:
        """R, the padded rank sum."""
        return self.stack.R

    def new_input(self, tokens: int, like: torch.Tensor) -> torch.Tensor:
        """An uninitialized `[T, K + R]`; the caller fills its first K columns."""
        return like.new_empty(tokens, self.inputs + self.rank)

    def new_gradient(self, tokens: int, like: torch.Tensor) -> torch.Tensor:
        """An uninitialized `[T, N + R]` for the gradient of the output; the caller fills its first N columns."""
        return like.new_empty(tokens, self.outputs + self.rank)

    def adapted_input(self, x_TE: torch.Tensor) -> torch.Tensor:
        """The part `[T, R]` of an input that holds XAᵀ."""
        return x_TE[:, self.inputs :]

    def forward(self, x_TE: torch.Tensor, out: torch.Tensor | None = None, *, tile: int = 0) -> torch.Tensor:
        """The stack's output `[T, N]`.

        Args:
            x_TE: From `new_input`, its first K columns filled; XAᵀ is written into the others.
            out: Where to write.
            tile: Number of this piece of the pass, where it is done in pieces: each has dropout of its own.
        """
        drop = self._drop_of(tile)
        return lora_linear.forward(x_TE, self.frozen.buffer(), self.stack, bias_N=self.bias_N, out=out, drop=drop)

    def input_gradient(
        self, dy_TE: torch.Tensor, *, wanted: bool = True, out: torch.Tensor | None = None, tile: int = 0
    ) -> torch.Tensor | None:
        """The gradient of the input, `[T, K]`; None where it is not wanted.

        Args:
            dy_TE: From `new_gradient`, its first N columns filled; dY·sB is written into the others.
            wanted: False where nothing below is trained; dY·sB is computed all the same.
            out: Where to write.
            tile: As in `forward`.
        """
        if not wanted and not self.rank:
            return None
        matrix, drop = self.frozen.buffer(), self._drop_of(tile)
        return lora_linear.input_gradient(dy_TE, matrix, self.stack, dx_out=out, needs_dx=wanted, drop=drop)

    def accumulate(
        self, dy_TE: torch.Tensor, x_TK: torch.Tensor | None, xa_TR: torch.Tensor | None, *, tile: int = 0
    ) -> None:
        """Add this pass's adapter gradients to `gradients`.

        Args:
            dy_TE: As `input_gradient` left it.
            x_TK: The input; None where A's gradients were accumulated on the way (never with dropout).
            xa_TR: XAᵀ of the forward pass; None where B's were.
            tile: As in `forward`.
        """
        if not self.rank:
            return
        found, adapters, firsts = self.gradients, self.stack.adapters, self.stack.firsts
        dy_TN, dxa_TR = dy_TE[:, : self.outputs], dy_TE[:, self.outputs :]
        if x_TK is not None and xa_TR is not None:
            drop = self._drop_of(tile)
            lora_linear.accumulate(dy_TE, x_TK, xa_TR, self.stack, grad_a=found.a, grad_b=found.b, drop=drop)
        elif x_TK is not None:
            placed = zip(adapters, firsts, strict=True)
            segments = [lora_linear.Segment(0, self.inputs, first, adapter.padded) for adapter, first in placed]
            lora_linear.outer_accumulate(dxa_TR, x_TK, found.a, [1.0] * len(adapters), segments)
        elif xa_TR is not None:
            placed = zip(adapters, firsts, strict=True)
            segments = [
                lora_linear.Segment(adapter.first_row, adapter.rows, first, adapter.padded) for adapter, first in placed
            ]
            scales = [adapter.scale for adapter in adapters]
            lora_linear.outer_accumulate(xa_TR, dy_TN, [b.t() for b in found.b], scales, segments)

    def _drop_of(self, tile: int) -> lora_linear.Dropout | None:
        if self.drop is None or not tile:
            return self.drop
        return replace(self.drop, stream=self.drop.stream + tile * _STREAMS_OF_A_TILE)
