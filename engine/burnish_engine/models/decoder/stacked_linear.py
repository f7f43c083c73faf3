"""Frozen linear layers that share their input, stacked row under row, with their LoRA adapters in the same matrix.

One buffer `M = [[W, sB], [A, 0]]` of shape `[N + R, K + R]` holds the frozen weight W (N output features, K inputs),
the stacked A (R rows, ranks padded to 16) and the block-diagonal sB (scale multiplied in). Its top rows serve the
forward pass over `[X | XAᵀ]`, its left columns the gradient of X from `[dY | dY·sB]`: one GEMM each, with no second
pass over the output and no second copy of the weight. The fp32 master weights of A and B are elsewhere; the buffer
holds their copies in the compute dtype.

Shapes: T tokens, K inputs, N outputs, R padded rank sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from burnish_engine.models.decoder.frozen.matrix_weights import MatrixWeight
from burnish_engine.models.decoder.frozen.weight import FrozenWeight
from burnish_engine.models.decoder.magnitudes import Magnitudes
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.lora_linear import op as lora_linear

_STREAMS_PER_CHUNK = 1 << 16  # random streams: more than the stacks of any model have together


@dataclass
class AdapterGradients:
    """Fp32 views that accumulate the gradients of a stack's adapters, one for each A and each B."""

    a: list[torch.Tensor] = field(default_factory=list)
    b: list[torch.Tensor] = field(default_factory=list)


@dataclass(eq=False)
class AdaptedRows:
    """The rows of the next pass that adapters take part in, which all stacks of a decoder share.

    So replies with and without the adapter grow in the same steps, which read the frozen weights once.

    Attributes:
        keep_T1: 1 for a row with the adapter and 0 for one without, of the compute dtype.
    """

    keep_T1: torch.Tensor

    def keep(self, narrow_TR: torch.Tensor) -> None:
        """Clear XAᵀ of rows without the adapter."""
        narrow_TR *= self.keep_T1

    def scale(self, y_TN: torch.Tensor, scale_N: torch.Tensor) -> None:
        """Multiply the outputs of rows with the adapter by DoRA's factors."""
        y_TN.copy_(torch.where(self.keep_T1 > 0, y_TN * scale_N, y_TN))


class StackedLinear:
    """One stack of linear layers that share their input.

    Args:
        stack: sizes and adapters.
        frozen: frozen weight.
        bias_N: bias added to the output, or None.
        magnitudes: DoRA's magnitudes, or None; never with dropout.
        decodes: whether outputs are only used to make replies, so that nothing need be kept for a backward pass.
        rows: rows that the adapters take part in; None: all.

    Attributes:
        gradients: gradients of the adapters.
        drop: dropout of the adapters' input, or None.
    """

    def __init__(
        self,
        stack: lora_linear.Stack,
        frozen: FrozenWeight,
        bias_N: torch.Tensor | None = None,
        magnitudes: Magnitudes | None = None,
        *,
        decodes: bool = False,
        rows: AdaptedRows | None = None,
    ) -> None:
        self.stack, self.frozen, self.bias_N, self.magnitudes = stack, frozen, bias_N, magnitudes
        self.gradients, self._decodes, self._rows = AdapterGradients(), decodes, rows
        self.drop: lora_linear.Dropout | None = None

    @property
    def inputs(self) -> int:
        """Number of input features K."""
        return self.stack.K

    @property
    def outputs(self) -> int:
        """Number of output features N."""
        return self.stack.N

    @property
    def rank(self) -> int:
        """Padded rank sum R."""
        return self.stack.R

    @property
    def is_dora(self) -> bool:
        """Whether magnitudes scale the outputs."""
        return self.magnitudes is not None

    def new_input(self, tokens: int, like: torch.Tensor) -> torch.Tensor:
        """Allocate an uninitialized `[T, K + R]`; the caller fills its first K columns."""
        return like.new_empty(tokens, self.inputs + self.rank)

    def new_gradient(self, tokens: int, like: torch.Tensor) -> torch.Tensor:
        """Allocate an uninitialized `[T, N + R]` for the output's gradient; the caller fills its first N columns."""
        return like.new_empty(tokens, self.outputs + self.rank)

    def new_input_codes(self, tokens: int) -> EightBitRows | None:
        """Allocate 8-bit codes `[T, K]` for what makes the input to write, for `forward`; None: it needs none."""
        return self.frozen.new_input_codes(tokens)

    def new_gradient_codes(self, tokens: int) -> EightBitRows | None:
        """Allocate 8-bit codes `[T, N]` of the output's gradient times `frozen.gradient_factor_N`; None: as above."""
        return self.frozen.new_gradient_codes(tokens)

    def adapted_input(self, x_TE: torch.Tensor) -> torch.Tensor:
        """Return the part `[T, R]` of an input that holds XAᵀ."""
        return x_TE[:, self.inputs :]

    def forward(
        self,
        x_TE: torch.Tensor,
        out: torch.Tensor | None = None,
        *,
        chunk: int = 0,
        codes: EightBitRows | None = None,
    ) -> torch.Tensor:
        """Compute the stack's output `[T, N]`.

        Args:
            x_TE: tensor from `new_input`, its first K columns filled; XAᵀ is written into the others.
            out: tensor to write the result to.
            chunk: number of this chunk of tokens, where the micro-batch is chunked: each has its own dropout.
            codes: codes from `new_input_codes` that were written; None: they were not.
        """
        if self._rows is not None and self.rank:
            return self._forward_some(x_TE, out, self._rows)
        if self._decodes and self.magnitudes is None:
            y_TN = self.frozen.decode(x_TE, self.stack, bias_N=self.bias_N, out=out)
            if y_TN is not None:
                return y_TN
        drop = self._drop_of(chunk)
        if self.magnitudes is None:
            return self.frozen.forward(x_TE, self.stack, bias_N=self.bias_N, out=out, drop=drop, codes=codes)
        matrix = self.matrix()
        y_TN = lora_linear.forward(x_TE, matrix, self.stack, out=out, drop=drop)
        self.magnitudes.follow(matrix)
        self.magnitudes.scale_(y_TN)
        if self.bias_N is not None:
            y_TN += self.bias_N
        return y_TN

    def _forward_some(self, x_TE: torch.Tensor, out: torch.Tensor | None, rows: AdaptedRows) -> torch.Tensor:
        """Compute the output where adapters take part in some rows only."""
        out = x_TE.new_empty(len(x_TE), self.outputs) if out is None else out
        self.forward_filled(x_TE, lambda a_RK: lora_linear.project_input(x_TE, a_RK, self.stack), out)
        if self.magnitudes is not None:
            self.magnitudes.follow(self.matrix())
            rows.scale(out, self.magnitudes.scale_N)
            if self.bias_N is not None:
                out += self.bias_N
        return out

    def forward_filled(self, x_TE: torch.Tensor, fill: Callable[[torch.Tensor], object], out: torch.Tensor) -> None:
        """Compute the output of an input that a caller makes together with its XAᵀ; without dropout or DoRA's factors.

        Args:
            x_TE: tensor from `new_input`, to be filled.
            fill: function that fills it, given A `[R, K]`.
            out: tensor `[T, N]` for the output.
        """
        rows, filled = self._rows, fill
        if rows is not None and self.rank:

            def filled(a_RK: torch.Tensor) -> None:
                fill(a_RK)
                rows.keep(self.adapted_input(x_TE))

        bias_N = None if self.is_dora else self.bias_N
        self.frozen.forward(x_TE, self.stack, bias_N=bias_N, out=out, fill=filled)

    def matrix(self) -> torch.Tensor:
        """Return M, which DoRA's lengths of rows are measured on; never where products have 8 bits."""
        assert isinstance(self.frozen, MatrixWeight)
        return self.frozen.buffer()

    def new_largest(self, dy_TE: torch.Tensor) -> torch.Tensor | None:
        """Allocate `[T]` fp32 for each row's largest magnitude in the gradient that is quantized; None: none is."""
        if self.frozen.gradient_factor_N is None:
            return None
        return dy_TE.new_empty(len(dy_TE), dtype=torch.float32)

    def input_gradient(
        self,
        dy_TE: torch.Tensor,
        *,
        wanted: bool = True,
        chunk: int = 0,
        largest_T: torch.Tensor | None = None,
        codes: EightBitRows | None = None,
    ) -> torch.Tensor | None:
        """Compute the gradient of the input, `[T, K]`; None where it is not wanted.

        Args:
            dy_TE: tensor from `new_gradient`, its first N columns filled; dY·sB is written into the others, and
                magnitudes scale the first.
            wanted: whether the gradient is needed (False where nothing below is trained); dY·sB is computed all the
                same.
            chunk: same as in `forward`.
            largest_T: tensor from `new_largest` that was filled; None: it was not.
            codes: codes from `new_gradient_codes` that were written; None: they were not.
        """
        if not wanted and not self.rank:
            return None
        if self.magnitudes is not None:
            self.magnitudes.scale_(dy_TE[:, : self.outputs])
        drop = self._drop_of(chunk)
        return self.frozen.input_gradient(dy_TE, self.stack, wanted=wanted, drop=drop, largest_T=largest_T, codes=codes)

    def accumulate(
        self,
        dy_TE: torch.Tensor,
        x_TK: torch.Tensor | None,
        xa_TR: torch.Tensor | None,
        *,
        chunk: int = 0,
        magnitudes: bool = True,
    ) -> None:
        """Add the adapter gradients of this micro-batch to `gradients`.

        Args:
            dy_TE: gradient as `input_gradient` left it.
            x_TK: input of the stack; None where A's gradients are accumulated already (never with dropout).
            xa_TR: XAᵀ of the forward pass; None where B's gradients are accumulated already.
            chunk: same as in `forward`.
            magnitudes: whether the magnitudes' gradients are still to be accumulated.
        """
        if not self.rank:
            return
        if self.magnitudes is not None and magnitudes:
            assert x_TK is not None
            assert xa_TR is not None
            self.magnitudes.accumulate_again(dy_TE[:, : self.outputs], x_TK, xa_TR, self.matrix())
        found, adapters, firsts = self.gradients, self.stack.adapters, self.stack.firsts
        dy_TN, dxa_TR = dy_TE[:, : self.outputs], dy_TE[:, self.outputs :]
        if x_TK is not None and xa_TR is not None:
            drop = self._drop_of(chunk)
            lora_linear.accumulate(dy_TE, x_TK, xa_TR, self.stack, grad_a=found.a, grad_b=found.b, drop=drop)
        elif x_TK is not None:
            placed = zip(adapters, firsts, strict=True)
            segments = [lora_linear.RankSegment(0, self.inputs, first, adapter.padded) for adapter, first in placed]
            lora_linear.outer_accumulate(dxa_TR, x_TK, found.a, [1.0] * len(adapters), segments)
        elif xa_TR is not None:
            placed = zip(adapters, firsts, strict=True)
            segments = [
                lora_linear.RankSegment(adapter.first_row, adapter.rows, first, adapter.padded)
                for adapter, first in placed
            ]
            scales = [adapter.scale for adapter in adapters]
            lora_linear.outer_accumulate(xa_TR, dy_TN, [b.t() for b in found.b], scales, segments)

    def _drop_of(self, chunk: int) -> lora_linear.Dropout | None:
        if self.drop is None or not chunk:
            return self.drop
        return replace(self.drop, stream=self.drop.stream + chunk * _STREAMS_PER_CHUNK)
