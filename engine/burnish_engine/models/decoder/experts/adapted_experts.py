"""The adapters of a layer's experts, and how PEFT's files hold them (`LoraConfig.target_parameters`).

PEFT adapts a stack of experts as one parameter. Its file holds A as `[E·R, K]`, expert after expert, and B as
`[N, R·E]`, rank after rank: column ρ·E + e is of expert e. Where both stacks of a layer are adapted, the wrapper of the
first map is inside of that of the second, so the first one's names have `base_layer` in them
(`peft.tuners.lora.layer.ParamWrapper`). In memory both are `[E, ...]`, an expert after another.

Shapes: E experts, N outputs and K inputs of an expert, R rank of an expert's adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.families.adapter_targets import has_name
from burnish_engine.models.families.experts import ExpertStack
from burnish_engine.models.saved_adapters.saved_adapter import PREFIX


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


def wrapped_inside(stacks: Sequence[ExpertStack]) -> set[str]:
    """Return the paths of those adapted stacks whose wrappers are inside of another's.

    Args:
        stacks: adapted stacks, the first map of a layer before its second.
    """
    outer = {stack.path.rpartition(".")[0]: stack.path for stack in stacks}
    return {stack.path for stack in stacks} - set(outer.values())


def read_adapted_experts(
    folder: Path,
    names: Any,
    shapes: Mapping[str, tuple[int, ...]],
    stacks: Sequence[ExpertStack],
    scale_of: Callable[[str, int], float],
) -> list[AdaptedExperts]:
    """Find the stacks of experts that a saved adapter reaches, and their ranks.

    Args:
        folder: folder of the adapter, for messages.
        names: `target_parameters` of its config.
        shapes: shape of each tensor in its file.
        stacks: stacks of experts of the model.
        scale_of: function that returns the scale of a parameter, given its path and rank.

    Raises:
        SetupError: The adapter does not fit the model.
    """
    if not isinstance(names, list):
        raise SetupError(f"The adapter in {folder} has target_parameters that are no list.", "Copy it again.")
    reached = [stack for stack in stacks if any(has_name(stack.path, str(name)) for name in names)]
    absent = [name for name in names if not any(has_name(stack.path, str(name)) for stack in reached)]
    if absent:
        raise SetupError(
            f"The adapter in {folder} adapts {absent[0]}; this model has no experts of that name.",
            "Use it with its own base.",
        )
    found, inner = [], wrapped_inside(reached)
    for stack in reached:
        is_inner = stack.path in inner
        first = next(iter(AdaptedExperts(stack, 1, 1.0, is_inner).shapes))
        rank, rest = divmod((shapes.get(first) or (0,))[0], stack.experts)
        adapted = AdaptedExperts(stack, rank, scale_of(stack.path, max(rank, 1)), is_inner)
        stored = {name: shapes.get(name) for name in adapted.stored_shapes}
        if rest or not rank or stored != adapted.stored_shapes:
            raise SetupError(
                f"The adapter in {folder} has tensors of the shapes {list(stored.values())} for {stack.path}, which is "
                f"a stack of {stack.experts} experts of {(stack.rows, stack.columns)}.",
                "Use it with its own base.",
            )
        found.append(adapted)
    return found
