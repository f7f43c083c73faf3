"""AdamW over the adapter's parameters, and its state as plain tensors (never a pickle)."""

from __future__ import annotations

import torch

from burnish_engine.contract.recipe import TrainSection

Named = list[tuple[str, torch.nn.Parameter]]
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def make_optimizer(section: TrainSection, parameters: Named) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019). No weight decay on vectors (norms, biases, DoRA magnitudes)."""
    matrices = [value for _, value in parameters if value.ndim >= 2]
    vectors = [value for _, value in parameters if value.ndim < 2]
    groups = [{"params": matrices, "weight_decay": section.weight_decay}]
    if vectors:
        groups.append({"params": vectors, "weight_decay": 0.0})
    return torch.optim.AdamW(
        groups, lr=section.learning_rate, betas=(section.beta1, section.beta2), eps=section.epsilon, foreach=True
    )


def optimizer_tensors(optimizer: torch.optim.Optimizer, parameters: Named) -> dict[str, torch.Tensor]:
    """The optimizer's state as named tensors."""
    return {
        f"{name}/{moment}": optimizer.state[value][moment].detach().cpu().contiguous()
        for name, value in parameters
        for moment in _MOMENTS
        if value in optimizer.state
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, parameters: Named, tensors: dict[str, torch.Tensor]) -> None:
    """Put saved state back. The inverse of `optimizer_tensors`.

    Raises:
        KeyError: The tensors belong to other parameters.
    """
    for name, value in parameters:
        if f"{name}/step" not in tensors:
            if tensors:
                raise KeyError(name)
            continue
        optimizer.state[value] = {
            moment: tensors[f"{name}/{moment}"].to("cpu" if moment == "step" else value.device).clone()
            for moment in _MOMENTS
        }
