"""The plain engine's step where matrices sit out steps: the fast engine's flat step, on the parameters themselves.

Parameters and gradients move into flat buffers, of which they are views from then on: nothing is copied in a step. Only
matrices between hidden states are masked; vectors, embeddings and the head always move, as in the paper.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch

from burnish_engine.contract.recipe_train import MaskingSection, TrainSection
from burnish_engine.train.flat_step import control_of, flat_tensors, make_flat_step, mask, restore_flat
from burnish_engine.train.optimizer import Named, rate_of
from burnish_kernels.adamw.layout import own_segments
from burnish_kernels.adamw.op import FlatLayout
from burnish_kernels.magma.op import NEVER


class MaskedStep:
    """What `Optimizers` is, for a recipe with masking.

    Args:
        section: Which optimizer, and its settings.
        masking: How matrices sit out.
        parameters: fp32 weights by name. Their data and gradients become views of flat buffers.
        tables: Names of embeddings and head.

    Raises:
        UsageError: The optimizer cannot be masked.
        SetupError: Its library does not run here.
    """

    def __init__(
        self, section: TrainSection, masking: MaskingSection, parameters: Named, tables: Collection[str]
    ) -> None:
        self._section, self._parameters = section, parameters
        self._names = [name for name, _ in parameters]
        values = [value for _, value in parameters]
        shapes = [(value.shape[0], value[0].numel()) if value.ndim >= 2 else (1, value.numel()) for value in values]
        layout = FlatLayout(own_segments(shapes, [value.ndim >= 2 for value in values]), values[0].device)
        apart = {index for index, (name, value) in enumerate(parameters) if value.ndim < 2 or name in tables}
        rates = [rate_of(section, name) for name in self._names]
        self._flat = make_flat_step(section, layout, None, self._names, rates, apart=apart, masked=True)
        mask(self._flat, masking, section.seed, self._draws(masking, apart))
        self._gradients = [
            view.view(value.shape) for view, value in zip(layout.views(self._flat.grad), values, strict=True)
        ]
        for view, value in zip(layout.views(self._flat.param), values, strict=True):
            place = view.view(value.shape)
            place.copy_(value.detach())
            value.data = place
        self.zero_grad()

    def set_rate(self, learning_rate: float) -> None:
        """See `Optimizers`. Gradients come clipped."""
        self._flat.set_control(control_of(self._section, learning_rate, max_grad_norm=0.0, growth_interval=0))

    def step(self) -> None:
        """See `Optimizers`."""
        self._flat.step()

    def zero_grad(self) -> None:
        """See `Optimizers`. The gradients are zeros that passes add to."""
        self._flat.grad.zero_()
        for (_, value), gradient in zip(self._parameters, self._gradients, strict=True):
            value.grad = gradient

    @contextmanager
    def averaged(self) -> Iterator[bool]:
        """See `Optimizers`. No optimizer that averages can be masked."""
        yield False

    def tensors(self) -> dict[str, torch.Tensor]:
        """Its state by name, on the CPU."""
        return flat_tensors(self._flat, self._names)

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `tensors`.

        Raises:
            KeyError: The tensors belong to other parameters.
        """
        restore_flat(self._flat, self._names, tensors)

    def _draws(self, masking: MaskingSection, apart: Collection[int]) -> list[int]:
        """Each matrix for itself, or all of one module."""
        owners: dict[str, int] = {}
        found = []
        for index, name in enumerate(self._names):
            owner = name.partition(".lora_")[0] if masking.share == "pair" else name
            found.append(NEVER if index in apart else owners.setdefault(owner, len(owners)))
        return found
