"""Schedule-free AdamW with a scale on each tensor's step: schedulefree's step and state, for masking.

Schedule-free training (Defazio et al. 2024, arXiv 2405.15682) takes steps with z, and gradients at y, which lies
between z and the average of all z. The scale therefore applies to the step of z; averaging goes on unscaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from burnish_engine.train.optimizers.optimizer import Optimizers


@torch.no_grad()
def scaled_step(optimizers: Optimizers, step_scales: Mapping[torch.Tensor, torch.Tensor]) -> None:
    """Take a step with the parameters' gradients, which are overwritten. Scales of 1 give the library's own result.

    Args:
        optimizers: schedule-free AdamW and nothing else.
        step_scales: factor on each parameter's step, a 0-dimensional tensor.
    """
    [part] = optimizers.parts
    for group in part.param_groups:
        values = [value for value in group["params"] if value.grad is not None]
        if not values:
            continue
        for value in values:
            if "z" not in part.state[value]:
                part.state[value]["z"] = value.detach().clone()
                part.state[value]["exp_avg_sq"] = torch.zeros_like(value)
        share = _count(group)
        beta1, beta2 = group["betas"]
        rate, states = group["scheduled_lr"], [part.state[value] for value in values]
        second, z = [state["exp_avg_sq"] for state in states], [state["z"] for state in states]
        steps = [value.grad for value in values]
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, steps, steps, value=1 - beta2)
        root = torch._foreach_div(second, 1 - beta2 ** group["k"])
        torch._foreach_sqrt_(root)
        torch._foreach_add_(root, group["eps"])
        torch._foreach_div_(steps, root)
        if group["weight_decay"]:
            torch._foreach_add_(steps, values, alpha=group["weight_decay"])
        for step, value in zip(steps, values, strict=True):
            step.mul_(step_scales[value])
        torch._foreach_lerp_(values, z, weight=share)
        torch._foreach_add_(values, steps, alpha=rate * (beta1 * (1 - share) - 1))
        torch._foreach_sub_(z, steps, alpha=rate)


def _count(group: dict[str, Any]) -> float:
    """Count the step in the group's numbers; return the share of the new z in the average."""
    made, rate = group["k"], group["lr"]
    group["k"], group["scheduled_lr"], group["lr_max"] = made + 1, rate, max(rate, group["lr_max"])
    weight = (made + 1) ** group["r"] * group["lr_max"] ** group["weight_lr_power"]
    group["weight_sum"] += weight
    return float(weight / group["weight_sum"]) if group["weight_sum"] else 0.0
