"""Learning-rate schedules: a pure function of the step.

Warmup, stable, decay is that of Hu et al. 2024 (MiniCPM, arXiv 2404.06395), with a linear decay.
"""

from __future__ import annotations

import math

from burnish_engine.contract.recipe.recipe_train import TrainSection


def warmup_steps(section: TrainSection, total_steps: int) -> int:
    """Count the steps with rising learning rate; at least one step of the run is left for the peak."""
    return min(round(section.warmup_share * total_steps), max(total_steps - 1, 0))


def learning_rate(section: TrainSection, step: int, total_steps: int) -> float:
    """Compute the learning rate of one optimizer step.

    Args:
        section: the recipe's section with peak, shape, warmup share and final share.
        step: number of the step, from 1 to `total_steps`.
        total_steps: optimizer steps of the run.
    """
    peak, warmup = section.learning_rate, warmup_steps(section, total_steps)
    if step <= warmup:
        return peak * step / (warmup + 1)
    if section.schedule == "constant":
        return peak
    first = warmup + 1
    if section.schedule == "wsd":  # the last step of the peak; of the run where that is all there is
        first = max(first, total_steps - max(round(section.decay_share * total_steps), 1))
        if step <= first:
            return peak
    progress = (step - first) / max(total_steps - first, 1)
    shape = 0.5 * (1.0 + math.cos(math.pi * progress)) if section.schedule == "cosine" else 1.0 - progress
    return peak * (section.final_share + (1.0 - section.final_share) * shape)
