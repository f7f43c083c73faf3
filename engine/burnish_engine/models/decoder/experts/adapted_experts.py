"""The adapters of a layer's experts, and how PEFT's files hold them (`LoraConfig.target_parameters`).

PEFT adapts a stack of experts as one parameter. Its file holds A as `[E·R, K]`, expert after expert, and B as
`[N, R·E]`, rank after rank: column ρ·E + e is of expert e. Where both stacks of a layer are adapted, the wrapper of the
first map is inside of that of the second, so the first one's names have `base_layer` in them
(`peft.tuners.lora.layer.ParamWrapper`). In memory both are `[E, ...]`, an expert after another.

Shapes: E experts, N outputs and K inputs of an expert, R rank of an expert's adapter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from burnish_engine.models.families.experts import ExpertStack

PREFIX = "base_model.model."
"""Beginning of every name in PEFT's files."""


@dataclass(frozen=True)
class AdaptedExperts:
    """One stack of experts with adapters.

    Attributes:
        stack: stack of the decoder.
        rank: rank of each expert's adapter.
        scale: factor of B·A·x.
        is_inner: whether the other stack of the layer is adapted too and this one's wrapper is inside of it.
    """

    stack: ExpertStack
    rank: int
    scale: float
    is_inner: bool = False

    @property
    def path(self) -> str:
        """Name of the adapted parameter."""
        return self.stack.path

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of A and B in memory, by their names in PEFT's file."""
        a, b = self._names
        own = self.stack
        return {a: (own.experts, self.rank, own.columns), b: (own.experts, own.rows, self.rank)}

    @property
    def stored_shapes(self) -> dict[str, tuple[int, int]]:
        """The shape of A and B in PEFT's file, by their names there."""
        a, b = self._names
        own = self.stack
        return {a: (own.experts * self.rank, own.columns), b: (own.rows, self.rank * own.experts)}

    def to_file(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor as PEFT's file has it.

        Args:
            name: name in the file.
            tensor: tensor in the shape of `shapes`.
        """
        own = self.stack
        if name == self._names[0]:
            return tensor.reshape(own.experts * self.rank, own.columns)
        return tensor.permute(1, 2, 0).reshape(own.rows, self.rank * own.experts)

    def from_file(self, name: str, stored: torch.Tensor) -> torch.Tensor:
        """Return a tensor of PEFT's file in the shape of `shapes`; arguments as for `to_file`."""
        own = self.stack
        if name == self._names[0]:
            return stored.reshape(own.experts, self.rank, own.columns)
        return stored.reshape(own.rows, self.rank, own.experts).permute(2, 0, 1)

    @property
    def _names(self) -> tuple[str, str]:
        place = f"{PREFIX}{self.path.rpartition('.')[0]}{'.base_layer' if self.is_inner else ''}"
        return f"{place}.lora_A.weight", f"{place}.lora_B.weight"


def inner_paths(stacks: Sequence[ExpertStack]) -> set[str]:
    """Return the paths of those adapted stacks whose wrappers are inside of another's.

    Args:
        stacks: adapted stacks, the first map of a layer before its second.
    """
    outer = {stack.path.rpartition(".")[0]: stack.path for stack in stacks}
    return {stack.path for stack in stacks} - set(outer.values())
