"""DoRA's magnitudes: the length of every output row of an adapted weight is trained apart from its direction.

A row o of the output is `(m_o / n_o) (W x + s B A x)_o`, where n_o is the length of row o of `W + s B A`, taken as a
constant when differentiating (Liu et al. 2024, arXiv 2402.09353, section 4.3, as in PEFT). So the product stays what it
is for LoRA, and rows of its output and of its gradient are scaled. The lengths are computed while the weight is at hand
for the product: a streamed or dequantized weight need not be fetched for them.

Shapes: T tokens, K inputs, N outputs, R padded rank sum of a stack.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from burnish_engine.models.decoder.layer_tensors import ROWS_AT_ONCE
from burnish_kernels.lora_linear import op as lora_linear

_NUMBERS_AT_ONCE = 1 << 22  # numbers of a weight whose rows are measured together, in fp32
_SMALLEST_SQUARE = 1e-24  # square of a length at least, so that rows of zeros do not give NaN


class Magnitudes:
    """The magnitudes of one stack's adapters.

    Args:
        stack: sizes and adapters of the stack.
        like: tensor of the compute dtype on the device.

    Attributes:
        scale_N: factor of each output row, `m / n`; 1 where there is no adapter.
        is_stale: whether the factors must be computed again before they are used.
        masters: fp32 magnitudes of each adapter's rows, in the order of the stack's adapters.
        gradients: fp32 views that accumulate their gradients.
    """

    def __init__(self, stack: lora_linear.Stack, like: torch.Tensor) -> None:
        self._stack, self._wide = stack, torch.promote_types(like.dtype, torch.float32)
        self.frozen_N = torch.empty(stack.N, dtype=self._wide, device=like.device)
        self.scale_N = torch.ones(stack.N, dtype=self._wide, device=like.device)
        self.is_stale = True
        self.masters: list[torch.Tensor] = []
        self.gradients: list[torch.Tensor] = []

    @torch.no_grad()
    def measure(self, matrix: torch.Tensor) -> None:
        """Measure the rows of the frozen weight, which never change.

        Args:
            matrix: matrix M of the stack (see `stacked_linear`).
        """
        step = max(_NUMBERS_AT_ONCE // self._stack.K, 1)
        for first in range(0, self._stack.N, step):
            rows = slice(first, min(first + step, self._stack.N))
            torch.linalg.vector_norm(matrix[rows, : self._stack.K], dim=1, dtype=self._wide, out=self.frozen_N[rows])

    def start(self) -> None:
        """Set the magnitudes of a new adapter to the lengths of the frozen rows, so that it changes nothing."""
        for adapter, _, master in self._adapters():
            master.copy_(self.frozen_N[adapter.span])

    def neutralize(self) -> None:
        """Set all factors to 1, until `is_stale` is set."""
        self.scale_N.fill_(1.0)
        self.is_stale = False

    @torch.no_grad()
    def follow(self, matrix: torch.Tensor) -> None:
        """Compute the factors where they are stale; argument as for `measure`.

        The square of a row's length is `|w|^2 + 2 <w, sb A> + |sb A|^2`: one product of W with the narrow A, and the
        products of A's rows with each other. sB is 0 where a row has another adapter, or none.
        """
        if not self.is_stale:
            return
        self.is_stale = False
        n, k = self._stack.N, self._stack.K
        a_RK, sb_NR = matrix[n:, :k], matrix[:n, k:].to(self._wide)
        inner_NR = (matrix[:n, :k] @ a_RK.t()).to(self._wide)
        wide_RK = a_RK.to(self._wide)
        inner_NR.mul_(2.0).addmm_(sb_NR, wide_RK @ wide_RK.t())
        square_N = self.frozen_N.square() + inner_NR.mul_(sb_NR).sum(dim=1)
        length_N = square_N.clamp_min_(_SMALLEST_SQUARE).sqrt_()
        for adapter, _, master in self._adapters():
            torch.div(master, length_N[adapter.span], out=self.scale_N[adapter.span])

    def scale_(self, y_TN: torch.Tensor) -> None:
        """Multiply outputs, or their gradients, by the factors."""
        y_TN *= self.scale_N

    def accumulate(self, dy_TN: torch.Tensor, y_TN: torch.Tensor) -> None:
        """Add the magnitudes' gradients.

        Args:
            dy_TN: gradient of the output.
            y_TN: output, without a bias.
        """
        for adapter, _, master, gradient, rows in self._pieces():
            del adapter
            self._add(gradient, master, dy_TN[:, rows], y_TN[:, rows])

    def accumulate_again(
        self, dy_TN: torch.Tensor, x_TK: torch.Tensor, xa_TR: torch.Tensor, matrix: torch.Tensor
    ) -> None:
        """Add the magnitudes' gradients, computing the product again piece by piece.

        Args:
            dy_TN: gradient of the output times the factors.
            x_TK: input of the stack.
            xa_TR: XAᵀ of the forward pass.
            matrix: matrix M of the stack.
        """
        k = self._stack.K
        for adapter, first, master, gradient, rows in self._pieces():
            own = slice(first, first + adapter.padded)
            y_TS = x_TK @ matrix[rows, :k].t()
            y_TS.addmm_(xa_TR[:, own], matrix[rows, k:][:, own].t())
            self._add(gradient, master, dy_TN[:, rows], y_TS)

    def _add(self, gradient: torch.Tensor, master: torch.Tensor, dy_TS: torch.Tensor, y_TS: torch.Tensor) -> None:
        # The output is the magnitude times what its gradient is multiplied by. A magnitude of 0 makes all of it 0.
        found_S = (dy_TS.to(self._wide) * y_TS).sum(dim=0)
        gradient += found_S / torch.where(master == 0, torch.inf, master)

    def _adapters(self) -> Iterator[tuple[lora_linear.StackedAdapter, int, torch.Tensor]]:
        return zip(self._stack.adapters, self._stack.firsts, self.masters, strict=True)

    def _pieces(
        self,
    ) -> Iterator[tuple[lora_linear.StackedAdapter, int, torch.Tensor, torch.Tensor, slice]]:
        """Yield each adapter with some of its rows: magnitudes, their gradient, and their place in the stack."""
        for (adapter, first, master), gradient in zip(self._adapters(), self.gradients, strict=True):
            for start in range(0, adapter.rows, ROWS_AT_ONCE):
                own = slice(start, min(start + ROWS_AT_ONCE, adapter.rows))
                rows = slice(adapter.first_row + own.start, adapter.first_row + own.stop)
                yield adapter, first, master[own], gradient[own], rows
