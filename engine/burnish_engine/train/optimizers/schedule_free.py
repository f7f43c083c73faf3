"""Take masked steps of schedule-free AdamW: schedulefree's step and state, with a scale on each tensor's step.

Schedule-free training (Defazio et al. 2024, arXiv 2405.15682) takes steps with z, and gradients at y, which lies
between z and the average of all z. The scale therefore applies to the step of z; averaging continues unscaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from typing_extensions import override

from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.train.optimizers.library_step import KEPT, KEPT_DECAY, DirectStep
from burnish_engine.train.optimizers.optimizer import Optimizers
from burnish_engine.train.optimizers.trained_segments import TrainedSegments


class MaskedScheduleFreeStep(DirectStep):
    """Step with masks: they skip the step of z and not that of the weights, so it is taken here."""

    def __init__(self, section: TrainSection, segments: TrainedSegments) -> None:
        super().__init__(section, segments)
        self._flat_state = {KEPT: self.new_flat()}

    @override
    def _advance(self) -> None:
        self.momentum.lerp_(self.grad, 1 - KEPT_DECAY)

    @override
    def _move(self, step_scale: torch.Tensor | None) -> None:
        if step_scale is None:
            self._library.step()
        else:
            pairs = zip(self._pieces, self._named, strict=True)
            _scaled_step(self._library, {value: step_scale[piece.first] for piece, (_, value) in pairs})
        self._finish()


@torch.no_grad()
def _scaled_step(optimizers: Optimizers, step_scales: Mapping[torch.Tensor, torch.Tensor]) -> None:
    """Take a step with the parameters' gradients, which are overwritten. Scales of 1 give the library's own result."""
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
