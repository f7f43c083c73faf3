"""4-bit weights (NF4) in the linear layers of a transformers model, with the same bytes as on the fast engine.

A weight is dequantized for each product and again for its gradient; what is saved meanwhile is 4 bits a weight.

Shapes: T tokens, K inputs, N outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from typing_extensions import override

from burnish_kernels.nf4 import op as nf4

_PREFIX = "nf4_"


class Nf4Linear(torch.nn.Linear):
    """A frozen linear layer whose weight is kept in NF4. PEFT takes it for any other linear layer.

    Args:
        linear: layer to take weight and bias from.
        device: device that the weight goes to and is quantized on.
    """

    def __init__(self, linear: torch.nn.Linear, device: torch.device) -> None:
        torch.nn.Module.__init__(self)
        self.in_features, self.out_features, self._dtype = linear.in_features, linear.out_features, linear.weight.dtype
        quantized = nf4.quantize(linear.weight.detach().to(device))
        for name, tensor in quantized.tensors().items():
            self.register_parameter(f"{_PREFIX}{name}", torch.nn.Parameter(tensor, requires_grad=False))
        self.bias = linear.bias

    @property
    def stored(self) -> torch.nn.Parameter:
        """The packed numbers of the weight."""
        packed: torch.nn.Parameter = self.nf4_packed
        return packed

    @property
    @override
    def weight(self) -> torch.Tensor:
        """The weight `[N, K]` that the 4 bits stand for, computed at each access."""
        parts = {
            name.removeprefix(_PREFIX): value for name, value in self._parameters.items() if name.startswith(_PREFIX)
        }
        kept: dict[str, Any] = {name: value.detach() for name, value in parts.items() if value is not None}
        return nf4.dequantize(nf4.Nf4(shape=(self.out_features, self.in_features), **kept), dtype=self._dtype)

    @override
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = _Product.apply(input, self)
        return y if self.bias is None else y + self.bias


class _Product(torch.autograd.Function):
    """X Wᵀ and the gradient of X; the weight is frozen."""

    @staticmethod
    def forward(context: Any, x_TK: torch.Tensor, layer: Nf4Linear) -> torch.Tensor:
        context.layer = layer
        return torch.nn.functional.linear(x_TK, layer.weight)

    @staticmethod
    def backward(context: Any, dy_TN: torch.Tensor) -> tuple[torch.Tensor, None]:
        return dy_TN @ context.layer.weight, None


def stored_weight(linear: torch.nn.Module) -> Any:
    """Return the parameter that holds a linear layer's weight."""
    return linear.stored if isinstance(linear, Nf4Linear) else linear.weight
