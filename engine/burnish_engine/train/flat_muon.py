"""Muon on flat buffers, without a word from the host, so that a CUDA graph holds the whole step.

The same as `muon.BatchedMuon` within `library_step.LibraryStep`, to the bit, for adapters of matrices alone: the host
would take longer over its several hundred launches than the GPU.
"""

from __future__ import annotations

import torch

from burnish_engine.train.muon import batches, orthogonalized, size_of_step
from burnish_kernels.adamw.op import GRADIENT_FACTOR, TAKEN, FlatLayout, FlatOptimizer, displace_

_COEFFICIENTS, _ITERATIONS, _EPSILON = (3.4445, -4.775, 2.0315), 5, 1e-7  # Jordan 2024, and torch.optim.Muon's defaults
_RATE = 0  # of `Control.values()`


class FlatMuon(FlatOptimizer):
    """Muon of each segment as a matrix.

    Args:
        layout: Of the flat buffers.
        arena: See `FlatOptimizer`.
        momentum_decay: Of its momentum.
        loss_scale: To begin with.

    Raises:
        ValueError: The arena or the loss scale does not fit.
    """

    def __init__(
        self,
        layout: FlatLayout,
        arena: torch.Tensor | None,
        momentum_decay: float,
        *,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(layout, arena, loss_scale=loss_scale)
        self._decay = momentum_decay
        self._momentum, self._target = self.new_flat(), self.new_flat()
        self._ones = torch.ones_like(self._lengths)
        shapes = [(segment.rows, segment.columns) for segment in layout.segments]
        self._batches = list(batches(shapes))
        sizes = [size_of_step(shapes[batch[0]]) for batch in self._batches]
        self._sizes = torch.tensor(sizes, dtype=torch.float64).to(self.param.device)

    @property
    def momentum(self) -> torch.Tensor:
        """See `FlatOptimizer`."""
        return self._momentum

    @property
    def flat_state(self) -> dict[str, torch.Tensor]:
        """See `FlatOptimizer`."""
        return {"momentum_buffer": self._momentum}

    @torch.no_grad()
    def step(self) -> None:
        """See `FlatOptimizer`. Where it is not taken, a gradient of 0 does nothing."""
        self.decide()
        taken = self.status[TAKEN]
        self.grad.mul_(self._factors[GRADIENT_FACTOR]).masked_fill_(taken == 0, 0.0)
        self.advanced = self.modifier is not None and self.modifier.momentum_after
        lengths = None if self.advanced else self.lengths()
        self._momentum.lerp_(self.grad, taken * (1 - self._decay))
        torch.lerp(self.grad, self._momentum, self._decay, out=self._target)  # Nesterov's
        self._move()
        if self.advanced:
            lengths = self.lengths()
        where = (self._factors, self.arena, self._ones if lengths is None else lengths)
        displace_(self.layout, self.param, self.grad, self._target, *where)

    def _move(self) -> None:
        """Make of the directions in `_target` how far everything goes."""
        views = self.layout.views(self._target)
        rates = (self.control[_RATE] * self._sizes).float().neg()
        for batch, rate in zip(self._batches, rates.unbind(), strict=True):
            stack_NRC = torch.stack([views[index] for index in batch]).bfloat16()
            moved_NRC = orthogonalized(stack_NRC, _COEFFICIENTS, _ITERATIONS, _EPSILON).float().mul_(rate)
            torch._foreach_copy_([views[index] for index in batch], list(moved_NRC.unbind()))
