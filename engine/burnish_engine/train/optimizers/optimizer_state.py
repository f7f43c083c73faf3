"""Save and restore the state of library optimizers as plain named tensors (never a pickle), to the bit.

`NAME/step` is the number of steps of a tensor, 1 for optimizers that do not count, 0 for a tensor without state. In
schedule-free training, `NAME/y` holds the weights that gradients are taken at (the result beside it is their average),
and `group/N/...` the numbers of a parameter group.
"""

from __future__ import annotations

from typing import Any

import torch

from burnish_engine.train.optimizers.optimizer import Named, Optimizers, is_averaging

_STEP, _Y = "step", "y"
_KEYS = {
    "AdamW": ("exp_avg", "exp_avg_sq"),
    "BatchedMuon": ("momentum_buffer",),
    "Lion": ("exp_avg",),
    "Adafactor": ("row_var", "col_var", "variance"),
    "AdamWScheduleFree": ("exp_avg_sq", "z"),
}
_KEYS_8_BIT = ("state1", "state2", "absmax1", "absmax2")
_COUNTED = ("AdamW", "Adafactor")
"""Optimizers that keep a tensor `step`; 8-bit ones keep a number."""
_CODES = ("dynamic", "udynamic")
"""Code books of 8-bit moments, signed and unsigned; saved with them, as another release may have other values."""
_GROUP = {"k": 0, "weight_sum": 0.0, "lr_max": -1.0, "scheduled_lr": 0.0}
"""Numbers of a schedule-free group, with their values before the first step."""
_BLOCK_8_BIT = 256


def optimizer_tensors(optimizers: Optimizers, parameters: Named, *, copy: bool = False) -> dict[str, torch.Tensor]:
    """Return the state as named tensors on the CPU; empty before the first step.

    Args:
        optimizers: optimizers from `make_optimizer`.
        parameters: parameters that they change.
        copy: whether to copy state that is on the CPU already.
    """
    _synchronize(parameters)
    found: dict[str, torch.Tensor] = {}
    for part in optimizers.parts:
        mine = _parameters_of(part, parameters)
        if not any(_state_of(part, value) for _, value in mine):
            continue
        for name, value in mine:
            # A weight that no row has reached yet, such as an idle expert's, has no moments.
            state = _state_of(part, value)
            step = state.get(_STEP, 1 if state else 0)
            found[f"{name}/{_STEP}"] = torch.as_tensor(step, dtype=torch.float32).detach().cpu().clone()
            for key in _keys(part):
                if state.get(key) is not None:
                    found[f"{name}/{key}"] = state[key].detach().to("cpu", copy=copy).contiguous()
            if state and is_averaging(part):
                found[f"{name}/{_Y}"] = value.detach().to("cpu", copy=copy).contiguous()
        if _in_8_bits(part):
            codes = _codes(part)
            found |= {code: codes[code].detach().cpu().clone() for code in _CODES if code in codes}
        if is_averaging(part):
            for index, group in enumerate(part.param_groups):
                for key in _GROUP:
                    found[f"group/{index}/{key}"] = torch.tensor(group[key], dtype=torch.float64)
    return found


@torch.no_grad()
def restore_optimizer(optimizers: Optimizers, parameters: Named, tensors: dict[str, torch.Tensor]) -> None:
    """Restore what `optimizer_tensors` returned; in schedule-free training this sets the parameters too.

    Raises:
        KeyError: The tensors belong to other parameters.
    """
    _synchronize(parameters)
    for part in optimizers.parts:
        if _in_8_bits(part) and tensors:
            _codes(part).update({code: tensors[code].clone() for code in _CODES if code in tensors})
        for name, value in _parameters_of(part, parameters):
            if not tensors or not tensors[f"{name}/{_STEP}"]:
                _forget(part, value)
            else:
                _restore_one(part, name, value, tensors)
        if is_averaging(part):
            for index, group in enumerate(part.param_groups):
                for key, start in _GROUP.items():
                    group[key] = type(start)(tensors[f"group/{index}/{key}"].item() if tensors else start)


def momentum_8_bit(optimizers: Optimizers, value: torch.nn.Parameter) -> torch.Tensor:
    """Dequantize the first moment of a tensor in 8-bit AdamW to fp32, in its shape; 0 before the first step."""
    (part,) = optimizers.parts
    state = _state_of(part, value)
    if not state:
        return torch.zeros_like(value)
    moment: torch.Tensor = state["state1"].to(value.device)
    if moment.dtype == torch.float32:
        return moment
    scales = state["absmax1"].to(value.device).repeat_interleave(_BLOCK_8_BIT)[: moment.numel()]
    codes = state["qmap1"].to(value.device)
    return (codes.index_select(0, moment.flatten().int()) * scales).view(value.shape)


def _state_of(part: torch.optim.Optimizer, value: torch.nn.Parameter) -> dict[str, Any]:
    """Return the state of a parameter; empty before its first step."""
    state = part.state.get(value) or {}
    return {} if _in_8_bits(part) and not state.get(_STEP) else state


def _forget(part: torch.optim.Optimizer, value: torch.nn.Parameter) -> None:
    """Reset a parameter's state. 8-bit moments are zeroed in place, since bitsandbytes never frees paged memory."""
    state = part.state.get(value)
    if not state or not _in_8_bits(part):
        part.state.pop(value, None)
        return
    state[_STEP] = 0
    for key in _KEYS_8_BIT:
        if state.get(key) is not None:
            state[key].zero_()


def _restore_one(
    part: torch.optim.Optimizer, name: str, value: torch.nn.Parameter, tensors: dict[str, torch.Tensor]
) -> None:
    if _in_8_bits(part):
        if not part.state.get(value):
            group, place = _group_and_index(part, value)
            part.init_state(part.param_groups[group], value, group, place)
        state: dict[str, Any] = part.state[value]
        state[_STEP] = int(tensors[f"{name}/{_STEP}"])
        for key in _KEYS_8_BIT:
            if key in state:
                state[key].copy_(tensors[f"{name}/{key}"])
        return
    state = {}
    if type(part).__name__ in _COUNTED:
        on_device = part.defaults.get("fused")
        state[_STEP] = tensors[f"{name}/{_STEP}"].clone().to(value.device if on_device else "cpu")
    for key in _keys(part):
        # Vectors have one of Adafactor's tensors, matrices the others.
        if type(part).__name__ != "Adafactor" or f"{name}/{key}" in tensors:
            state[key] = tensors[f"{name}/{key}"].to(value.device, copy=True)
    part.state[value] = state
    if is_averaging(part):
        value.copy_(tensors[f"{name}/{_Y}"])


def _parameters_of(part: torch.optim.Optimizer, parameters: Named) -> Named:
    mine = {id(value) for group in part.param_groups for value in group["params"]}
    return [(name, value) for name, value in parameters if id(value) in mine]


def _group_and_index(part: torch.optim.Optimizer, wanted: torch.nn.Parameter) -> tuple[int, int]:
    return next(
        (index, place)
        for index, group in enumerate(part.param_groups)
        for place, value in enumerate(group["params"])
        if value is wanted
    )


def _in_8_bits(part: torch.optim.Optimizer) -> bool:
    return hasattr(part, "name2qmap")


def _codes(part: Any) -> dict[str, torch.Tensor]:
    return part.name2qmap


def _keys(part: torch.optim.Optimizer) -> tuple[str, ...]:
    return _KEYS_8_BIT if _in_8_bits(part) else _KEYS[type(part).__name__]


def _synchronize(parameters: Named) -> None:
    """Wait for the GPU: pages that it works on must not be read, which Windows punishes with a crash."""
    if parameters and parameters[0][1].device.type == "cuda":
        torch.cuda.synchronize(parameters[0][1].device)
