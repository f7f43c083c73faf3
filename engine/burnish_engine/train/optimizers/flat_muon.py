"""Muon on flat buffers without reading from the device, so that a CUDA graph holds the whole step.

It equals `muon.BatchedMuon` within `momentum_step.MuonStep` to the bit, for adapters of matrices alone. That one
needs several hundred launches, for which the host takes longer than the GPU.
"""

from __future__ import annotations

import torch
from typing_extensions import override

from burnish_engine.train.optimizers.muon import orthogonalized, same_shape_batches, update_scale
from burnish_kernels.adamw.op import GRADIENT_FACTOR, TAKEN, FlatLayout, FlatOptimizer, apply_update_

_COEFFICIENTS, _ITERATIONS, _EPSILON = (3.4445, -4.775, 2.0315), 5, 1e-7  # Jordan 2024, and torch.optim.Muon's defaults
_RATE = 0  # index of the learning rate in `StepSettings.values()`


class FlatMuon(FlatOptimizer):
    """Muon optimizer that treats each segment as a matrix.

    Args:
        layout: layout of the flat buffers.
        compute_buffer: buffer of the compute copies, see `FlatOptimizer`.
        momentum_decay: decay of the momentum.
        loss_scale: initial loss scale.

    Raises:
        ValueError: The compute buffer or the loss scale does not fit.
    """

    def __init__(
        self,
        layout: FlatLayout,
        compute_buffer: torch.Tensor | None,
        momentum_decay: float,
        *,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(layout, compute_buffer, loss_scale=loss_scale)
        self._decay = momentum_decay
        self._momentum, self._target = self.new_flat(), self.new_flat()
        self._ones = torch.ones_like(self._step_scale)
        shapes = [(segment.rows, segment.columns) for segment in layout.segments]
        self._batches = list(same_shape_batches(shapes))
        sizes = [update_scale(shapes[batch[0]]) for batch in self._batches]
        self._sizes = torch.tensor(sizes, dtype=torch.float64).to(self.param.device)

    @property
    @override
    def momentum(self) -> torch.Tensor:
        return self._momentum

    @property
    @override
    def flat_state(self) -> dict[str, torch.Tensor]:
        return {"momentum_buffer": self._momentum}

    @torch.no_grad()
    def step(self) -> None:
        """Take a step; one that is not taken runs with a gradient of 0, which changes nothing."""
        self.decide()
        taken = self.status[TAKEN]
        self.grad.mul_(self._factors[GRADIENT_FACTOR]).masked_fill_(taken == 0, 0.0)
        step_scale = self.step_scale_around(lambda: self._advance(taken))
        where = (self._factors, self.compute_buffer, self._ones if step_scale is None else step_scale)
        apply_update_(self.layout, self.param, self.grad, self._target, *where)

    def _advance(self, taken: torch.Tensor) -> None:
        """Advance the momentum, and write the update to `_target`."""
        self._momentum.lerp_(self.grad, taken * (1 - self._decay))
        torch.lerp(self.grad, self._momentum, self._decay, out=self._target)  # Nesterov's
        views = self.layout.views(self._target)
        rates = (self.control[_RATE] * self._sizes).float().neg()
        for batch, rate in zip(self._batches, rates.unbind(), strict=True):
            stack_NRC = torch.stack([views[index] for index in batch]).bfloat16()
            moved_NRC = orthogonalized(stack_NRC, _COEFFICIENTS, _ITERATIONS, _EPSILON).float().mul_(rate)
            torch._foreach_copy_([views[index] for index in batch], list(moved_NRC.unbind()))
