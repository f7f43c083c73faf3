"""The plain engine's step with masking: the fast engine's flat step, on the parameters themselves.

Parameters and gradients move into flat buffers and become views of them, so that a step copies nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager

import torch

from burnish_engine.contract.recipe.recipe_train import MaskingSection, TrainSection
from burnish_engine.train.optimizers.flat_step import (
    averaged,
    control_of,
    flat_tensors,
    make_flat_step,
    mask,
    restore_flat,
)
from burnish_engine.train.optimizers.optimizer import Named, rate_of
from burnish_engine.train.optimizers.trained_segments import TrainedSegments
from burnish_kernels.adamw.layout import own_segments
from burnish_kernels.adamw.op import FlatLayout
from burnish_kernels.magma.op import NEVER

_STATE = {"A_log", "D"}  # parameters of state-space layers
_ROUTERS = {"router", "gate", "router_gate", "shared_expert_gate"}  # transformers' names for the router of a mixture


class MaskedStep:
    """Optimizer with the interface of `Optimizers` for a recipe with masking.

    Args:
        section: recipe section with the optimizer's name and settings.
        masking: recipe section that says how matrices skip steps.
        parameters: fp32 weights by name; their data and gradients become views of flat buffers.
        tables: names of embeddings and head.

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
        non_matrix = {index for index, (name, value) in enumerate(parameters) if value.ndim != 2 or name in tables}
        rates = [rate_of(section, name) for name in self._names]
        own = [tuple(value.shape) for value in values]
        segments = TrainedSegments(layout, None, self._names, rates, non_matrix, own)
        self.flat = make_flat_step(section, segments, masked=True)
        mask(self.flat, masking, section.seed, self._draws(masking, tables))
        self._gradients = [
            view.view(value.shape) for view, value in zip(layout.views(self.flat.grad), values, strict=True)
        ]
        for view, value in zip(layout.views(self.flat.param), values, strict=True):
            place = view.view(value.shape)
            place.copy_(value.detach())
            value.data = place
        self.zero_grad()

    def set_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the next steps; gradients arrive clipped."""
        self.flat.set_control(control_of(self._section, learning_rate, max_grad_norm=0.0, growth_interval=0))

    def step(self) -> None:
        """Take a step with the gradients that the parameters have."""
        self.flat.step()

    def zero_grad(self) -> None:
        """Zero the gradients; they stay allocated, and passes add to them."""
        self.flat.grad.zero_()
        for (_, value), gradient in zip(self._parameters, self._gradients, strict=True):
            value.grad = gradient

    def averaged(self) -> AbstractContextManager[bool]:
        """Swap in the weights to evaluate and save; see `Optimizers.averaged`."""
        return averaged(self.flat)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the optimizer's state by name, on the CPU."""
        return flat_tensors(self.flat, self._names)

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore what `tensors` returned.

        Raises:
            KeyError: The tensors belong to other parameters.
        """
        restore_flat(self.flat, self._names, tensors)

    def _draws(self, masking: MaskingSection, tables: Collection[str]) -> list[int]:
        """Number the random draws: one for each matrix, or one for all matrices of a module."""
        owners: dict[str, int] = {}
        found = []
        for name, value in self._parameters:
            owner = name.partition(".lora_")[0] if masking.share == "pair" else name
            sits_out = masking.blocks == "all" or (name not in tables and is_layer_matrix(name, value.ndim))
            found.append(owners.setdefault(owner, len(owners)) if sits_out else NEVER)
        return found


def is_layer_matrix(name: str, dimensions: int) -> bool:
    """Return whether a parameter of transformers or PEFT is a matrix of attention or feed-forward, or adapts one.

    Args:
        name: name of the parameter.
        dimensions: number of dimensions; all experts of a layer may be one tensor of three.
    """
    parts = name.split(".")
    if dimensions < 2 or parts[-1].endswith("bias") or parts[-1] in _STATE:  # experts' biases are one tensor
        return False
    return not any(part in _ROUTERS or "conv" in part or "embed" in part for part in parts)
