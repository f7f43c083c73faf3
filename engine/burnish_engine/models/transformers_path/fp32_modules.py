"""Lets whole modules and biases be trained in fp32 inside a 16-bit model, as PEFT's low-rank matrices are.

PEFT trains `modules_to_save` and biases in the type of the base model: in bf16 the small updates of training would be
lost, and in fp32 the types of input and weight would differ.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional

from burnish_engine.models.transformers_path.peft_import import import_peft


def compute_in_fp32(model: Any) -> None:
    """Make modules with trained fp32 weights take and return the type of their frozen originals.

    Args:
        model: PEFT model whose trained parameters are in fp32 already.
    """
    import_peft()
    from peft.utils.other import ModulesToSaveWrapper

    for module in list(model.modules()):
        if isinstance(module, ModulesToSaveWrapper):
            original = next(module.original_module.parameters()).dtype
            for copy in module.modules_to_save.values():
                if original != torch.float32:
                    _between_types(copy, original)
        elif isinstance(module, torch.nn.Linear) and _trains_wider_bias(module):
            module.forward = partial(_with_own_bias, module)


def _trains_wider_bias(module: torch.nn.Linear) -> bool:
    bias = module.bias
    return bias is not None and bias.requires_grad and bias.dtype != module.weight.dtype


def _between_types(module: Any, outside: torch.dtype) -> None:
    """Cast a module's floating-point inputs to fp32, and its output back."""

    def enter(_module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return tuple(map(_in_fp32, given)), {name: _in_fp32(value) for name, value in named.items()}

    module.register_forward_pre_hook(enter, with_kwargs=True)
    module.register_forward_hook(lambda _module, _given, result: _cast(result, outside))


def _in_fp32(value: Any) -> Any:
    return _cast(value, torch.float32)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """Cast a floating-point tensor, or those of a tuple; anything else stays as it is."""
    if isinstance(value, tuple):
        return tuple(_cast(one, dtype) for one in value)
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _with_own_bias(module: torch.nn.Linear, input_: torch.Tensor) -> torch.Tensor:
    return functional.linear(input_, module.weight, module.bias.to(module.weight.dtype))
