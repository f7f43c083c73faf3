"""The optimizer step in plain PyTorch: the definition that the kernels are held to.

AdamW (Loshchilov and Hutter 2017, arXiv 1711.05101) with the order of operations of torch.optim.AdamW, clipping by the
global norm as torch.nn.utils.clip_grad_norm_ does it, and loss scaling as in Micikevicius et al. 2017
(arXiv 1710.03740) with the dynamics of torch.amp.GradScaler: halve after a step whose gradient is not finite, double
after so many good ones.

Scalars are computed in double precision, as torch.optim does in Python: 1 - beta2 is 0.001 only to five digits if beta2
is first rounded to single precision.

The buffers may be of any floating dtype: double precision gives the exact result that the tests compare with.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

import torch

from burnish_kernels.adamw.layout import FlatLayout

STEP, GOOD_STEPS, SKIPPED = range(3)
"""Places in `counters` [3] int64: steps taken; good ones since the loss scale last changed; skipped ones."""

GRADIENT_NORM, CLIP_FACTOR, TAKEN, LOSS_SCALE = range(4)
"""Places in `status` [4] fp32: norm of the unscaled gradient before clipping; its factor (0 if the step was skipped);
1 if the step was taken; the loss scale that the gradient carried."""

TAKE, GRADIENT_FACTOR, KEEP, NEW1, KEEP2, NEW2, STEP_SIZE, ROOT_CORRECTION2, EPS = range(9)
"""Places in `factors` [9]: what `prepare` tells `step_`."""

FACTORS = 9
SMALLEST_LOSS_SCALE, LARGEST_LOSS_SCALE = 1.0, 2.0**24
CLIP_EPS = 1e-6  # torch.nn.utils.clip_grad_norm_
SMALLEST_EPS = torch.finfo(torch.float32).tiny  # with 0, numbers that never had a gradient would become 0 / 0


@dataclass(frozen=True)
class StepSettings:
    """Settings of one step from the host, in the order of the `control` tensor (double precision).

    Attributes:
        learning_rate: learning rate of this step.
        beta1: decay of the mean of the gradient.
        beta2: decay of the mean of its square.
        eps: number added to the root of the mean square.
        weight_decay: decoupled weight decay, multiplied by the learning rate.
        max_grad_norm: bound of the global norm; 0: no clipping.
        growth_interval: number of good steps after which the loss scale doubles; 0: the loss scale is constant.
    """

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 0.0
    growth_interval: int = 0

    def values(self) -> list[float]:
        """The `control` tensor's elements."""
        return [float(value) for value in astuple(self)]


def gradient_norm(grad: torch.Tensor, partials: torch.Tensor) -> None:
    """Fill `partials` with numbers whose sum is the sum of the squares of the gradient."""
    partials.zero_()
    partials[0] = grad.square().sum()


def prepare(
    partials: torch.Tensor,
    control: torch.Tensor,
    counters: torch.Tensor,
    loss_scale: torch.Tensor,
    status: torch.Tensor,
    factors: torch.Tensor,
) -> None:
    """Decide about the step; advance `counters` and `loss_scale`; fill `status` and `factors`."""
    settings = StepSettings(*control.tolist())
    step, good_steps, skipped = counters.tolist()
    scale = float(loss_scale)
    norm = math.sqrt(total) / scale if (total := float(partials.double().sum())) >= 0.0 else math.nan
    taken = math.isfinite(norm)
    clip = min(1.0, settings.max_grad_norm / (norm + CLIP_EPS)) if taken and settings.max_grad_norm > 0.0 else 1.0
    status.copy_(torch.tensor([norm, clip * taken, float(taken), scale], dtype=torch.float64))
    if taken:
        step, good_steps = step + 1, good_steps + 1
        correction1, correction2 = 1.0 - settings.beta1**step, 1.0 - settings.beta2**step
        values = {
            TAKE: 1.0,
            GRADIENT_FACTOR: clip / scale,
            KEEP: 1.0 - settings.learning_rate * settings.weight_decay,
            NEW1: 1.0 - settings.beta1,
            KEEP2: settings.beta2,
            NEW2: 1.0 - settings.beta2,
            STEP_SIZE: settings.learning_rate / correction1,
            ROOT_CORRECTION2: math.sqrt(correction2),
            EPS: max(settings.eps, SMALLEST_EPS),
        }
        factors.copy_(torch.tensor([values[place] for place in range(FACTORS)], dtype=torch.float64))
    else:
        good_steps, skipped = 0, skipped + 1
        factors.zero_()
    if settings.growth_interval > 0:
        if not taken:
            scale = max(scale * 0.5, SMALLEST_LOSS_SCALE)
        elif good_steps >= settings.growth_interval:
            scale, good_steps = min(scale * 2.0, LARGEST_LOSS_SCALE), 0
    counters.copy_(torch.tensor([step, good_steps, skipped]))
    loss_scale.fill_(scale)


def step_(
    layout: FlatLayout,
    param: torch.Tensor,
    grad: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    factors: torch.Tensor,
    compute_buffer: torch.Tensor,
    step_scale_S: torch.Tensor | None = None,
) -> None:
    """Update parameters and moments, write the compute copies, zero the gradient; a step not taken only zeroes.

    With `step_scale_S` each segment's step, weight decay included, is multiplied by its factor.
    """
    values = factors.tolist()
    if values[TAKE]:
        grad.mul_(values[GRADIENT_FACTOR])
        exp_avg.lerp_(grad, values[NEW1])
        exp_avg_sq.mul_(values[KEEP2]).addcmul_(grad, grad, value=values[NEW2])
        denominator = exp_avg_sq.sqrt().div_(values[ROOT_CORRECTION2]).add_(values[EPS])
        lengths = [1.0] * len(layout.segments) if step_scale_S is None else step_scale_S.tolist()
        parts = (layout.segments, lengths, *(layout.views(flat) for flat in (param, exp_avg, denominator)))
        for segment, length, part, mean, below in zip(*parts, strict=True):
            if segment.decay:
                part.mul_(1.0 - length * (1.0 - values[KEEP]))
            part.addcdiv_(mean, below, value=-values[STEP_SIZE] * length)
        write_compute_copies(layout, param, compute_buffer)
    grad.zero_()


def apply_update_(
    layout: FlatLayout,
    param: torch.Tensor,
    grad: torch.Tensor,
    update: torch.Tensor,
    factors: torch.Tensor,
    compute_buffer: torch.Tensor,
    step_scale_S: torch.Tensor,
) -> None:
    """Add `update` to the parameters, decayed before as in AdamW; write the compute copies, zero gradient and update.

    Each segment's step, weight decay included, is multiplied by `step_scale_S`; a step not taken only zeroes.
    """
    values = factors.tolist()
    if values[TAKE]:
        parts = (layout.segments, step_scale_S.tolist(), layout.views(param), layout.views(update))
        for segment, length, part, moved in zip(*parts, strict=True):
            if segment.decay:
                part.mul_(1.0 - length * (1.0 - values[KEEP]))
            part.add_(moved, alpha=length)
        write_compute_copies(layout, param, compute_buffer)
    grad.zero_()
    update.zero_()


def write_compute_copies(layout: FlatLayout, param: torch.Tensor, compute_buffer: torch.Tensor) -> None:
    """Write each segment times its scale into the compute buffer, rounded to its dtype."""
    for segment, part, compute_copy in zip(
        layout.segments, layout.views(param), layout.compute_copies(compute_buffer), strict=True
    ):
        compute_copy.copy_(part if segment.copy_scale == 1.0 else part * segment.copy_scale)
