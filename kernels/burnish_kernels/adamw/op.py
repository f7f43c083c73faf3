"""The optimizer step: validate, allocate, launch. CUDA tensors use the kernels, others the reference.

Three launches and no word from the host between them: sum of squares, decision, update. AdamW's step can therefore be
captured in a CUDA graph; learning rate and the like change through `control`, which a captured step reads anew.

Another optimizer shares all but the update: it computes how far each parameter moves, and `apply_update_` moves it.
Its step can be captured in a CUDA graph too where it does not ask the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from typing_extensions import override

from burnish_kernels.adamw import reference
from burnish_kernels.adamw.checks import validate_compute_buffer, validate_flat, validate_small
from burnish_kernels.adamw.layout import MAX_PARTIALS, FlatLayout, Segment
from burnish_kernels.adamw.reference import (
    CLIP_FACTOR,
    FACTORS,
    GRADIENT_FACTOR,
    GRADIENT_NORM,
    LOSS_SCALE,
    STEP,
    TAKEN,
    StepSettings,
)
from burnish_kernels.adamw.staging import PinnedStaging
from burnish_kernels.dispatch import use_kernels

__all__ = [
    "CLIP_FACTOR",
    "GRADIENT_FACTOR",
    "GRADIENT_NORM",
    "LOSS_SCALE",
    "STEP",
    "TAKEN",
    "AdamW",
    "FlatLayout",
    "FlatOptimizer",
    "Segment",
    "StepSettings",
    "apply_update_",
    "gradient_norm",
    "prepare",
    "step_",
    "write_compute_copies",
]


def gradient_norm(layout: FlatLayout, grad: torch.Tensor, partials: torch.Tensor) -> None:
    """Fill `partials` with numbers whose sum is the sum of the squares of the gradient, added in a fixed order.

    Args:
        layout: layout of the flat buffers.
        grad: gradient `[layout.total]` fp32.
        partials: sums `[layout.partials]` fp32, filled.

    Raises:
        ValueError: Shapes or dtypes do not fit.
    """
    validate_flat(layout, grad)
    validate_small(grad, (partials, layout.partials, torch.float32))
    if use_kernels(grad):
        from burnish_kernels.adamw.kernel import launch_norm

        launch_norm(grad, partials)
        return
    reference.gradient_norm(grad, partials)


def prepare(
    partials: torch.Tensor,
    control: torch.Tensor,
    counters: torch.Tensor,
    loss_scale: torch.Tensor,
    status: torch.Tensor,
    factors: torch.Tensor,
) -> None:
    """Decide whether the step is taken and with which factors; advance the counters and the loss scale.

    Args:
        partials: sums filled by `gradient_norm`.
        control: settings `[7]` fp64, `StepSettings.values()`.
        counters: counters `[3]` int64: STEP, GOOD_STEPS, SKIPPED. Updated.
        loss_scale: factor `[1]` fp32 that the gradient was multiplied by; a power of two. Updated for the next step.
        status: results `[4]` fp32, filled: GRADIENT_NORM, CLIP_FACTOR, TAKEN, LOSS_SCALE.
        factors: factors `[FACTORS]` fp32, filled for `step_`.

    Raises:
        ValueError: Shapes or dtypes do not fit.
    """
    if partials.ndim != 1 or not 1 <= partials.numel() <= MAX_PARTIALS or partials.dtype != torch.float32:
        raise ValueError(f"partials must be [1 .. {MAX_PARTIALS}] fp32, not {tuple(partials.shape)} {partials.dtype}")
    validate_small(
        partials,
        (control, 7, torch.float64),
        (counters, 3, torch.int64),
        (loss_scale, 1, torch.float32),
        (status, 4, torch.float32),
        (factors, FACTORS, torch.float32),
    )
    if use_kernels(partials):
        from burnish_kernels.adamw.kernel import launch_prepare

        launch_prepare(
            partials=partials,
            control=control,
            counters=counters,
            loss_scale=loss_scale,
            status=status,
            factors=factors,
        )
        return
    reference.prepare(partials, control, counters, loss_scale, status, factors)


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

    Args:
        layout: layout of the flat buffers.
        param: parameters `[layout.total]` fp32. Updated.
        grad: gradient `[layout.total]` fp32. Zeroed.
        exp_avg: first moment `[layout.total]` fp32. Updated.
        exp_avg_sq: second moment `[layout.total]` fp32. Updated.
        factors: factors filled by `prepare`.
        compute_buffer: one-dimensional buffer, fp32, fp16 or bf16; each segment's compute copy is written.
        step_scale_S: factors `[segments]` fp32 of each segment's step, weight decay included. 1 everywhere gives the
            same bits as None where learning rate times weight decay is at most a half.

    Raises:
        ValueError: Shapes or dtypes do not fit.
    """
    validate_flat(layout, param, grad, exp_avg, exp_avg_sq)
    validate_compute_buffer(layout, compute_buffer, param)
    validate_small(param, (factors, FACTORS, torch.float32))
    if step_scale_S is not None:
        validate_small(param, (step_scale_S, len(layout.segments), torch.float32))
    if use_kernels(param):
        from burnish_kernels.adamw.kernel import launch_step

        launch_step(
            layout=layout,
            param=param,
            grad=grad,
            exp_avg=exp_avg,
            exp_avg_sq=exp_avg_sq,
            factors=factors,
            compute_buffer=compute_buffer,
            step_scale_S=step_scale_S,
        )
        return
    reference.step_(layout, param, grad, exp_avg, exp_avg_sq, factors, compute_buffer, step_scale_S)


def apply_update_(
    layout: FlatLayout,
    param: torch.Tensor,
    grad: torch.Tensor,
    update: torch.Tensor,
    factors: torch.Tensor,
    compute_buffer: torch.Tensor,
    step_scale_S: torch.Tensor,
) -> None:
    """Add an optimizer's update to the parameters, decay them, write the compute copies, zero gradient and update.

    A step that is not taken only zeroes.

    Args:
        layout: layout of the flat buffers.
        param: parameters `[layout.total]` fp32. Updated.
        grad: gradient `[layout.total]` fp32. Zeroed.
        update: update `[layout.total]` fp32 to add, learning rate included, weight decay not. Zeroed.
        factors: factors filled by `prepare`; only TAKE and KEEP are read.
        compute_buffer: one-dimensional buffer, fp32, fp16 or bf16; each segment's compute copy is written.
        step_scale_S: factors `[segments]` fp32 of each segment's step, weight decay included.

    Raises:
        ValueError: Shapes or dtypes do not fit.
    """
    validate_flat(layout, param, grad, update)
    validate_compute_buffer(layout, compute_buffer, param)
    validate_small(param, (factors, FACTORS, torch.float32), (step_scale_S, len(layout.segments), torch.float32))
    if use_kernels(param):
        from burnish_kernels.adamw.kernel import launch_apply_update

        launch_apply_update(
            layout=layout,
            param=param,
            grad=grad,
            update=update,
            factors=factors,
            compute_buffer=compute_buffer,
            step_scale_S=step_scale_S,
        )
        return
    reference.apply_update_(layout, param, grad, update, factors, compute_buffer, step_scale_S)


def write_compute_copies(layout: FlatLayout, param: torch.Tensor, compute_buffer: torch.Tensor) -> None:
    """Write every compute copy, as after loading a checkpoint; arguments as in `step_`."""
    validate_flat(layout, param)
    validate_compute_buffer(layout, compute_buffer, param)
    if use_kernels(param):
        from burnish_kernels.adamw.kernel import launch_compute_copies

        launch_compute_copies(layout, param, compute_buffer)
        return
    reference.write_compute_copies(layout, param, compute_buffer)


class StepModifier(Protocol):
    """Scales the steps of segments."""

    @property
    def momentum_after(self) -> bool:
        """Whether it needs the momentum after the step, for optimizers that know it only then."""
        ...

    def step_scale(self, optimizer: FlatOptimizer, factors: torch.Tensor) -> torch.Tensor:
        """Return `step_scale_S` of `step_`.

        Args:
            optimizer: optimizer with the accumulated gradient, and its counters advanced; its momentum is that before
                the step unless it says `advanced`.
            factors: factors filled by `prepare`.
        """
        ...


class FlatOptimizer:
    """The buffers of an optimizer of flat segments, and the decision whether a step is taken.

    Attributes:
        layout: layout of the flat buffers.
        compute_buffer: buffer of the compute copies, one-dimensional, fp32, fp16 or bf16.
        param: parameters `[layout.total]` fp32; fill `layout.views(param)`, then call `write_compute_copies`.
        grad: gradient `[layout.total]` fp32; accumulate into `layout.views(grad)`. Each step leaves it zeroed.
        control: settings `[7]` fp64 on the device, `StepSettings.values()`; `set_control` or the caller's own upload
            fills it.
        counters: counters `[3]` int64 on the device: STEP, GOOD_STEPS, SKIPPED.
        loss_scale: factor `[1]` fp32 on the device that the next backward pass must multiply the loss by.
        status: results `[4]` fp32 on the device of the last step: GRADIENT_NORM, CLIP_FACTOR, TAKEN, LOSS_SCALE.
        modifier: scale of each segment's step, or None.
        rates: factor `[segments]` fp32 on the device of each segment's learning rate, or None.
        advanced: whether `momentum` is that after the step that is being taken.
        capturable: whether `step` never waits for the device, so that a CUDA graph may hold it.

    Args:
        layout: layout of the flat buffers, made for the compute buffer's device.
        compute_buffer: one-dimensional buffer, fp32, fp16 or bf16. None: the compute copies are the flat buffer's own
            segments, so the model computes with the fp32 master weights themselves.
        loss_scale: initial loss scale, a power of two; 1 unless the compute buffer is fp16.

    Raises:
        ValueError: The compute buffer or the loss scale does not fit.
    """

    capturable = True

    def __init__(self, layout: FlatLayout, compute_buffer: torch.Tensor | None, *, loss_scale: float = 1.0) -> None:
        if not reference.SMALLEST_LOSS_SCALE <= loss_scale <= reference.LARGEST_LOSS_SCALE:
            raise ValueError(f"the loss scale must be from 1 to 2^24, not {loss_scale}")
        device = layout.tables.scales.device
        self.layout = layout
        self.param, self.grad = self.new_flat(), self.new_flat()
        self.compute_buffer = self.param if compute_buffer is None else compute_buffer
        validate_compute_buffer(layout, self.compute_buffer, self.param)
        if compute_buffer is None and any(
            (segment.copy_offset, segment.copy_row_stride, segment.copy_scale) != (start, segment.columns, 1.0)
            for start, segment in zip(layout.starts, layout.segments, strict=True)
        ):
            raise ValueError(
                "without a compute buffer each segment's compute copy must be the segment itself, scaled by 1"
            )
        self.control = torch.zeros(7, dtype=torch.float64, device=device)
        self.counters = torch.zeros(3, dtype=torch.int64, device=device)
        self.loss_scale = torch.full((1,), loss_scale, dtype=torch.float32, device=device)
        self.status = torch.zeros(4, dtype=torch.float32, device=device)
        self._partials = torch.zeros(layout.partials, dtype=torch.float32, device=device)
        self._factors = torch.zeros(FACTORS, dtype=torch.float32, device=device)
        self._step_scale = torch.ones(len(layout.segments), dtype=torch.float32, device=device)
        self._staging = PinnedStaging(7) if device.type == "cuda" else None
        self.modifier: StepModifier | None = None
        self.rates: torch.Tensor | None = None
        self.advanced = False

    def new_flat(self) -> torch.Tensor:
        """Allocate another flat buffer, `[layout.total]` fp32, all 0."""
        return torch.zeros(self.layout.total, dtype=torch.float32, device=self.layout.tables.scales.device)

    @property
    def momentum(self) -> torch.Tensor:
        """Running mean `[layout.total]` fp32 of the gradient."""
        raise NotImplementedError

    @property
    def flat_state(self) -> dict[str, torch.Tensor]:
        """Flat buffers by name that, beside `param`, `counters` and `loss_scale`, the next step depends on."""
        return {}

    def set_control(self, control: StepSettings) -> None:
        """Upload the settings of the next steps on the current stream; never waits, and must not be captured."""
        if self._staging is None:
            self.control.copy_(torch.tensor(control.values(), dtype=torch.float64))
        else:
            self._staging.upload(control.values(), self.control)

    def decide(self) -> None:
        """Compute the gradient's norm and decide whether the step is taken; `status` has the result."""
        gradient_norm(self.layout, self.grad, self._partials)
        prepare(self._partials, self.control, self.counters, self.loss_scale, self.status, self._factors)

    def step_scale(self) -> torch.Tensor | None:
        """Return the factor of each segment's step, `[segments]` fp32; None: 1 everywhere."""
        step_scale = self.modifier.step_scale(self, self._factors) if self.modifier else None
        if step_scale is None or self.rates is None:
            return step_scale if self.rates is None else self.rates
        return torch.mul(step_scale, self.rates, out=self._step_scale)

    def step_scale_around(self, advance: Callable[[], None]) -> torch.Tensor | None:
        """Advance the momentum with `advance`; return `step_scale`, from the momentum that the modifier needs."""
        self.advanced = self.modifier is not None and self.modifier.momentum_after
        step_scale = None if self.advanced else self.step_scale()
        advance()
        return self.step_scale() if self.advanced else step_scale

    def step(self) -> None:
        """Take a step with the gradient accumulated in `grad`, or skip it where that is not finite."""
        raise NotImplementedError

    def write_compute_copies(self) -> None:
        """Write every compute copy, after `param` was filled."""
        write_compute_copies(self.layout, self.param, self.compute_buffer)


class AdamW(FlatOptimizer):
    """AdamW: two moments in flat buffers.

    Attributes:
        exp_avg: mean `[layout.total]` fp32 of the gradient.
        exp_avg_sq: mean `[layout.total]` fp32 of its square.
    """

    def __init__(self, layout: FlatLayout, compute_buffer: torch.Tensor | None, *, loss_scale: float = 1.0) -> None:
        super().__init__(layout, compute_buffer, loss_scale=loss_scale)
        self.exp_avg, self.exp_avg_sq = self.new_flat(), self.new_flat()

    @property
    @override
    def momentum(self) -> torch.Tensor:
        return self.exp_avg

    @property
    @override
    def flat_state(self) -> dict[str, torch.Tensor]:
        return {"exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq}

    @override
    def step(self) -> None:
        self.decide()
        step_scale = self.step_scale()
        step_(
            self.layout,
            self.param,
            self.grad,
            self.exp_avg,
            self.exp_avg_sq,
            self._factors,
            self.compute_buffer,
            step_scale,
        )
