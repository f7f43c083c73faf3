"""Take the fast engine's step with an optimizer of a library, on views of the flat buffers.

There are two ways. `UpdateStep`: the library leaves its update in a buffer of zeros, and our kernel adds that to the
weights. `DirectStep`: the library changes the weights. These are the classes for each optimizer:

| optimizer | without masks | with masks |
|---|---|---|
| Lion, Muon | `momentum_step` | the same |
| Adafactor | `DirectStep` | `adafactor_step` |
| 8-bit AdamW | `eight_bit_step.EightBitStep` | `eight_bit_step.MaskedEightBitStep` |
| schedule-free AdamW | `DirectStep` | `schedule_free` |

Masking needs a momentum, which Adafactor and schedule-free training lack: a running mean of the gradient is kept for
the masks alone. `flat_muon` takes the steps of Muon for matrices alone.

A step here is never captured, and reads once whether it is to be taken, which waits for the device: in a step that is
not taken (a gradient that is not finite, an overflow in fp16) nothing advances, neither counters nor the library's
state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from typing_extensions import override

from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.train.optimizers.optimizer import Named, TrainedTensor, build_optimizer
from burnish_engine.train.optimizers.optimizer_state import optimizer_tensors, restore_optimizer
from burnish_engine.train.optimizers.trained_segments import SegmentGroup, TrainedSegments
from burnish_kernels.adamw.op import GRADIENT_FACTOR, TAKEN, FlatOptimizer, StepSettings, apply_update_

KEPT = "kept"
"""Name of the gradient's running mean in a checkpoint, where an optimizer has no momentum for the masks."""
KEPT_DECAY = 0.9
"""Decay of that mean: AdamW's usual beta1."""


class LibraryStep(FlatOptimizer):
    """Base of the flat optimizers whose update comes from a library.

    Args:
        section: recipe section with the optimizer's name and settings.
        segments: tensors to train.

    Raises:
        ValueError: The compute buffer or the loss scale does not fit.
        SetupError: The optimizer's library does not run here.
    """

    capturable = False

    def __init__(self, section: TrainSection, segments: TrainedSegments) -> None:
        super().__init__(segments.layout, segments.compute_buffer, loss_scale=segments.loss_scale)
        self._rate = section.learning_rate
        self._target = self._make_target()
        self._pieces = self._divide(segments)
        self._named: Named = []
        trained = []
        for piece in self._pieces:
            value = torch.nn.Parameter(piece.view(self._target))
            value.grad = piece.view(self.grad)
            self._named.append((piece.name, value))
            trained.append(self._trained(piece, value, segments))
        self._library = build_optimizer(section, trained)
        self._saved = self._library  # those whose state is not a flat buffer of ours
        self._flat_state: dict[str, torch.Tensor] = {}  # the momentum, if it is a flat buffer of ours

    def _make_target(self) -> torch.Tensor:
        """Return the flat buffer that the library takes for the weights."""
        raise NotImplementedError

    def _divide(self, segments: TrainedSegments) -> list[SegmentGroup]:
        """Divide the segments into the tensors that the library gets."""
        return segments.one_each()

    def _trained(self, piece: SegmentGroup, value: torch.nn.Parameter, segments: TrainedSegments) -> TrainedTensor:
        """Describe a piece of `_target` to the library."""
        raise NotImplementedError

    def _advance(self) -> None:
        """Advance the momentum."""
        raise NotImplementedError

    def _move(self, step_scale: torch.Tensor | None) -> None:
        """Move the weights, write the compute copies and zero the gradient."""
        raise NotImplementedError

    @property
    @override
    def momentum(self) -> torch.Tensor:
        if not self._flat_state:
            raise ValueError("its momentum is the library's, where there is nothing to mask")
        (momentum,) = self._flat_state.values()
        return momentum

    @property
    @override
    def flat_state(self) -> dict[str, torch.Tensor]:
        return self._flat_state

    @override
    def set_control(self, control: StepSettings) -> None:
        super().set_control(control)
        self._rate = control.learning_rate

    @torch.no_grad()
    def step(self) -> None:
        """Take a step; wait for the device once, to read whether the step is to be taken."""
        self.decide()
        if not self.status[TAKEN].item():
            self.grad.zero_()
            return
        self.grad.mul_(self._factors[GRADIENT_FACTOR])
        self._library.set_rate(self._rate)
        self._move(self.step_scale_around(self._advance))

    def library_tensors(self) -> dict[str, torch.Tensor]:
        """Copy the library's state beside `flat_state` to the CPU, by name."""
        return optimizer_tensors(self._saved, self._named, copy=True)

    def restore_library(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore what `library_tensors` returned, and write the compute copies.

        Args:
            tensors: tensors of `library_tensors`, perhaps among others.

        Raises:
            KeyError: The tensors belong to another adapter.
        """
        begun = any(f"{name}/step" in tensors for name, _ in self._named)
        restore_optimizer(self._saved, self._named, tensors if begun else {})
        self.write_compute_copies()

    @contextmanager
    def averaged(self) -> Iterator[bool]:
        """Swap in the weights to evaluate and save, with their compute copies; see `Optimizers.averaged`."""
        others = False
        try:
            with self._library.averaged() as others:
                if others:
                    self.write_compute_copies()
                yield others
        finally:
            if others:
                self.write_compute_copies()


class DirectStep(LibraryStep):
    """Step in which the library changes the weights, with weight decay and the learning rate of each segment.

    Schedule-free training needs the weights. Adafactor and 8-bit AdamW do not, but `UpdateStep`'s buffer would take
    more memory than their moments save; so they do without it where nothing is masked. (bitsandbytes on a GPU applies
    weight decay after the step: a difference of the step times learning rate times decay.)
    """

    @override
    def _make_target(self) -> torch.Tensor:
        return self.param

    @override
    def _trained(self, piece: SegmentGroup, value: torch.nn.Parameter, segments: TrainedSegments) -> TrainedTensor:
        decay, rate = self.layout.segments[piece.first].decay, segments.rates[piece.first]
        return TrainedTensor(value, decay, rate)

    @override
    def _advance(self) -> None:
        """Leave the momentum to the library."""

    @override
    def _move(self, step_scale: torch.Tensor | None) -> None:
        self._library.step()
        self._finish()

    def _finish(self) -> None:
        """Zero the gradient and write the compute copies."""
        self.grad.zero_()
        self.write_compute_copies()


class UpdateStep(LibraryStep):
    """Step in which the library leaves its update in a buffer of zeros, which it takes for the weights.

    Most updates depend on gradients alone, beside weight decay. Our kernel adds the update to the weights, with weight
    decay (of the weights before the step, as in torch's AdamW), scaled by masking and LoRA+, and writes the compute
    copies. Nothing is copied or rounded twice, and masking composes with each of these optimizers.
    """

    def __init__(self, section: TrainSection, segments: TrainedSegments) -> None:
        super().__init__(section, segments)
        self._ones = torch.ones_like(self._step_scale)
        self.rates = segments.rates_on_device

    @override
    def _make_target(self) -> torch.Tensor:
        return self.new_flat()

    @override
    def _trained(self, piece: SegmentGroup, value: torch.nn.Parameter, segments: TrainedSegments) -> TrainedTensor:
        return TrainedTensor(value, decay=False, table=piece.first in segments.non_matrix)

    @override
    def _advance(self) -> None:
        self._library.step()

    @override
    def _move(self, step_scale: torch.Tensor | None) -> None:
        where = (self._factors, self.compute_buffer, self._ones if step_scale is None else step_scale)
        apply_update_(self.layout, self.param, self.grad, self._target, *where)
