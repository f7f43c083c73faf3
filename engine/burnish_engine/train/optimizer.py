"""The optimizers of the plain engine, and their state as plain tensors (never a pickle).

AdamW is torch's; the 8-bit ones are bitsandbytes' (Dettmers et al. 2022): moments in blocks of 256 with one scale each,
tensors below 4096 numbers in fp32. Paged ones keep the moments of large tensors in host memory that the GPU reads and
writes page by page.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from typing import Any

import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.recipe import TrainSection

Named = list[tuple[str, torch.nn.Parameter]]
_STEP = "step"
_MOMENTS = {"adamw": ("exp_avg", "exp_avg_sq")}
_MOMENTS_8_BIT = ("state1", "state2", "absmax1", "absmax2")
_CODES = ("dynamic", "udynamic")
"""The values that 8-bit moments stand for, signed and unsigned; kept with them, as another release may have others."""


def make_optimizer(section: TrainSection, parameters: Named, *, whole: bool = False) -> torch.optim.Optimizer:
    """The optimizer that the recipe asks for. No weight decay on vectors (norms, biases, DoRA magnitudes).

    Args:
        section: Which one, and its settings.
        parameters: fp32 weights by name.
        whole: They are a whole model: its temporary copies would take as much memory as a moment.

    Raises:
        SetupError: bitsandbytes is needed and does not run here.
    """
    matrices = [value for _, value in parameters if value.ndim >= 2]
    vectors = [value for _, value in parameters if value.ndim < 2]
    groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": section.weight_decay}]
    if vectors:
        groups.append({"params": vectors, "weight_decay": 0.0})
    options: dict[str, Any] = {
        "lr": section.learning_rate,
        "betas": (section.beta1, section.beta2),
        "eps": section.epsilon,
    }
    if section.optimizer == "adamw":
        how = {"fused": True} if whole else {"foreach": True}
        return torch.optim.AdamW(groups, **options, **how)
    device = parameters[0][1].device
    optimizers = _bitsandbytes(section.optimizer, device)
    paged = section.optimizer == "paged_adamw8bit" and device.type == "cuda"
    return (optimizers.PagedAdamW8bit if paged else optimizers.AdamW8bit)(groups, **options)


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, parameters: Named, *, copy: bool = False
) -> dict[str, torch.Tensor]:
    """The optimizer's state as named tensors on the CPU; empty before the first step.

    Args:
        optimizer: As `make_optimizer` made it.
        parameters: What it changes.
        copy: Tensors of their own, also where the state is on the CPU already.
    """
    _settle(parameters)
    found: dict[str, torch.Tensor] = {}
    for name, value in parameters:
        state = optimizer.state.get(value) or {}
        if state:
            found[f"{name}/{_STEP}"] = torch.as_tensor(state[_STEP], dtype=torch.float32).detach().cpu().clone()
        for key in _moments(optimizer):
            if key in state:
                found[f"{name}/{key}"] = state[key].detach().to("cpu", copy=copy).contiguous()
    if found and _in_8_bits(optimizer):
        found |= {code: _codes(optimizer)[code].detach().cpu().clone() for code in _CODES if code in _codes(optimizer)}
    # A weight that no row has reached yet, such as an idle expert's, has no moments.
    return found | {
        f"{name}/{_STEP}": torch.zeros(()) for name, _ in parameters if found and f"{name}/{_STEP}" not in found
    }


@torch.no_grad()
def restore_optimizer(optimizer: torch.optim.Optimizer, parameters: Named, tensors: dict[str, torch.Tensor]) -> None:
    """Put saved state back. The inverse of `optimizer_tensors`.

    Raises:
        KeyError: The tensors belong to other parameters.
    """
    _settle(parameters)
    places = {
        id(value): (index, place)
        for index, group in enumerate(optimizer.param_groups)
        for place, value in enumerate(group["params"])
    }
    if _in_8_bits(optimizer) and tensors:
        _codes(optimizer).update({code: tensors[code].clone() for code in _CODES if code in tensors})
    for name, value in parameters:
        if not tensors or not tensors[f"{name}/{_STEP}"]:
            optimizer.state.pop(value, None)
            continue
        steps = tensors[f"{name}/{_STEP}"]
        if _in_8_bits(optimizer):
            if not optimizer.state.get(value):
                group, place = places[id(value)]
                optimizer.init_state(optimizer.param_groups[group], value, group, place)
            state = optimizer.state[value]
            state[_STEP] = int(steps)
            for key in _moments(optimizer):
                if key in state:
                    state[key].copy_(tensors[f"{name}/{key}"])
            continue
        fused = optimizer.defaults.get("fused")
        optimizer.state[value] = {
            _STEP: steps.clone().to(value.device if fused else "cpu"),
            **{key: tensors[f"{name}/{key}"].to(value.device, copy=True) for key in _moments(optimizer)},
        }


def _in_8_bits(optimizer: torch.optim.Optimizer) -> bool:
    return hasattr(optimizer, "name2qmap")


def _codes(optimizer: Any) -> dict[str, torch.Tensor]:
    return optimizer.name2qmap


def _moments(optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
    return _MOMENTS_8_BIT if _in_8_bits(optimizer) else _MOMENTS["adamw"]


def _settle(parameters: Named) -> None:
    """Wait for the GPU: pages that it works on must not be read, which Windows punishes with a crash."""
    if parameters and parameters[0][1].device.type == "cuda":
        torch.cuda.synchronize(parameters[0][1].device)


def _bitsandbytes(name: str, device: torch.device) -> Any:
    """Bitsandbytes' optimizers.

    Raises:
        SetupError: It cannot be loaded, or has no library for this device.
    """
    remedy = 'Set train.optimizer = "adamw", or set Burnish up again.'
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it names parts that only its own products would use
    try:
        optimizers = importlib.import_module("bitsandbytes.optim")
        library = importlib.import_module("bitsandbytes.cextension").lib
    except (ImportError, OSError, RuntimeError) as error:
        raise SetupError(f"bitsandbytes, which {name!r} needs, could not be loaded: {error}.", remedy) from error
    if device.type == "cuda" and not library.compiled_with_cuda:
        raise SetupError(f"bitsandbytes, which {name!r} needs, has no library for this CUDA version.", remedy)
    return optimizers
