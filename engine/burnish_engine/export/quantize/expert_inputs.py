"""Sum the squares of what goes into each expert of a mixture while rows run through a transformers model.

transformers keeps all experts of a layer in one module with two stacks of matrices (integrations/moe.py,
`use_experts_implementation`). Its inputs say which tokens are routed where; what goes into the second matrix is
computed here with the module's own weights and activation. With PEFT's adapter around it, these weights hold the update
while the module runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from burnish_engine.models.saved_adapters.saved_adapter import PREFIX

_WRAPPED = ".base_layer"


class ExpertInputs:
    """Sums of squares and counts of tokens, by the GGUF name of each stack.

    Args:
        model: transformers model, with or without PEFT's adapter.
        name_map: function from the name of a stack in transformers' model to its GGUF name, the gates' of "gate_up".

    Attributes:
        hooks: each module of experts and the function to call before its forward pass.
        sums: sum of squares of each expert's input columns [experts, in], fp64.
    """

    def __init__(self, model: Any, name_map: Callable[[str], str | None]) -> None:
        self.sums: dict[str, torch.Tensor] = {}
        self._counts: dict[str, torch.Tensor] = {}
        self.hooks: list[tuple[torch.nn.Module, Callable[..., None]]] = []
        for path, module in model.named_modules():
            if not (hasattr(type(module), "_apply_gate") and hasattr(module, "is_transposed")):
                continue
            place = path.removeprefix(PREFIX).replace(_WRAPPED, "")
            gates, downs = name_map(f"{place}.gate_up_proj"), name_map(f"{place}.down_proj")
            if gates is not None and downs is not None:
                self.hooks.append((module, partial(self._add, gates, downs)))

    def means(self) -> dict[str, npt.NDArray[np.float32]]:
        """Return the mean square of each expert's input columns [experts, in]; 1 for experts that saw no token."""
        found = {}
        for name, sums in self.sums.items():
            seen = self._counts[name][:, None].double()
            found[name] = torch.where(seen > 0, sums / seen.clamp(min=1), 1.0).float().cpu().numpy()
        return found

    def routed(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return the number of tokens that each expert saw [experts]."""
        return {name: counts.cpu().numpy() for name, counts in self._counts.items()}

    def _add(self, gates: str, downs: str, module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        x, chosen = inputs[0].detach(), inputs[1]
        x, chosen = x.reshape(-1, x.shape[-1]), chosen.reshape(-1, chosen.shape[-1])
        gate_up, down = module.gate_up_proj.detach(), module.down_proj.detach()
        width = down.shape[1 if module.is_transposed else 2]
        sums = [x.new_zeros((len(down), columns), dtype=torch.float64) for columns in (x.shape[1], width)]
        counts = torch.zeros(len(down), dtype=torch.int64, device=x.device)
        for expert in chosen.unique().tolist():
            rows = x[(chosen == expert).any(dim=-1)]
            matrix = gate_up[expert] if module.is_transposed else gate_up[expert].T
            hidden = rows @ matrix
            if module.has_bias:
                hidden = hidden + module.gate_up_proj_bias[expert].detach()
            for total, entering in zip(sums, (rows, module._apply_gate(hidden)), strict=True):
                total[expert] = entering.double().square().sum(0)
            counts[expert] = len(rows)
        for name, total in ((gates, sums[0]), (_ups(gates), sums[0]), (downs, sums[1])):
            self.sums[name] = self.sums[name] + total if name in self.sums else total
            self._counts[name] = self._counts[name] + counts if name in self._counts else counts


def _ups(gates: str) -> str:
    return gates.replace("ffn_gate_exps", "ffn_up_exps")
