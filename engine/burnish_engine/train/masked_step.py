"""The plain engine's step where matrices sit out steps: the fast engine's flat step, on the parameters themselves.

Parameters and gradients move into flat buffers, of which they are views from then on: nothing is copied in a step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch

from burnish_engine.contract.recipe_train import MaskingSection, TrainSection
from burnish_engine.train.flat_step import control_of, flat_tensors, make_flat_step, mask, restore_flat
from burnish_engine.train.library_step import LibraryStep
from burnish_engine.train.optimizer import Named, rate_of
from burnish_kernels.adamw.layout import own_segments
from burnish_kernels.adamw.op import FlatLayout
from burnish_kernels.magma.op import NEVER

_STATE = {"A_log", "D"}  # of state-space layers
_ROUTERS = {"router", "gate", "router_gate", "shared_expert_gate"}  # what transformers calls a mixture's


class MaskedStep:
    """What `Optimizers` is, for a recipe with masking.

    Args:
        section: Which optimizer, and its settings.
        masking: How matrices sit out.
        parameters: fp32 weights by name. Their data and gradients become views of flat buffers.
        tables: Names of embeddings and head.

    Raises:
        SetupError: The optimizer's library does not run here.
    """

    def __init__(
        self, section: TrainSection, masking: MaskingSection, parameters: Named, tables: Collection[str]
    ) -> None:
        self._section, self._parameters = section, parameters
        self._names = [name for name, _ in parameters]
        values = [value for _, value in parameters]
        shapes = [(value.shape[0], value[0].numel()) if value.ndim >= 2 else (1, value.numel()) for value in values]
        layout = FlatLayout(own_segments(shapes, [value.ndim >= 2 for value in values]), values[0].device)
        apart = {index for index, (name, value) in enumerate(parameters) if value.ndim != 2 or name in tables}
        rates = [rate_of(section, name) for name in self._names]
        own = [tuple(value.shape) for value in values]
        self._flat = make_flat_step(section, layout, None, self._names, rates, apart=apart, shapes=own, masked=True)
        mask(self._flat, masking, section.seed, self._draws(masking, tables))
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
        """See `Optimizers`."""
        if not isinstance(self._flat, LibraryStep):
            yield False
            return
        with self._flat.averaged() as others:
            yield others

    def tensors(self) -> dict[str, torch.Tensor]:
        """Its state by name, on the CPU."""
        return flat_tensors(self._flat, self._names)

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `tensors`.

        Raises:
            KeyError: The tensors belong to other parameters.
        """
        restore_flat(self._flat, self._names, tensors)

    def _draws(self, masking: MaskingSection, tables: Collection[str]) -> list[int]:
        """Each matrix for itself, or all of one module."""
        owners: dict[str, int] = {}
        found = []
        for name, value in self._parameters:
            owner = name.partition(".lora_")[0] if masking.share == "pair" else name
            sits_out = masking.blocks == "all" or (name not in tables and is_layer_matrix(name, value.ndim))
            found.append(owners.setdefault(owner, len(owners)) if sits_out else NEVER)
        return found


def is_layer_matrix(name: str, dimensions: int) -> bool:
    """Whether a parameter of transformers or PEFT is a matrix of attention or feed-forward, or an adapter of one.

    Args:
        name: Of the parameter.
        dimensions: Of its shape; all experts of a layer may be one tensor of three.
    """
    parts = name.split(".")
    if dimensions < 2 or parts[-1].endswith("bias") or parts[-1] in _STATE:  # experts' biases are one tensor
        return False
    return not any(part in _ROUTERS or "conv" in part or "embed" in part for part in parts)
