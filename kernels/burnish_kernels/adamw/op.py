"""The optimizer step: validate, allocate, launch. CUDA tensors use the kernels, others the reference.

Three launches and no word from the host between them: sum of squares, decision, update. AdamW's step can therefore be
captured in a CUDA graph; learning rate and the like change through `control`, which a captured step reads anew.

Another optimizer shares all but the update: it says by how much it would move what is trained, and `displace_` does so.
Its step can be captured too where it does not ask the host.
"""

from __future__ import annotations

from typing import Protocol

import torch

from burnish_kernels.adamw import reference
from burnish_kernels.adamw.checks import validate_arena, validate_flat, validate_small
from burnish_kernels.adamw.layout import MAX_PARTIALS, FlatLayout, Segment
from burnish_kernels.adamw.reference import (
    CLIP_FACTOR,
    FACTORS,
    GOOD_STEPS,
    GRADIENT_FACTOR,
    GRADIENT_NORM,
    LOSS_SCALE,
    SKIPPED,
    STEP,
    TAKEN,
    Control,
)
from burnish_kernels.adamw.staging import Staging
from burnish_kernels.dispatch import use_kernels

__all__ = [
    "CLIP_FACTOR",
    "GOOD_STEPS",
    "GRADIENT_FACTOR",
    "GRADIENT_NORM",
    "LOSS_SCALE",
    "SKIPPED",
    "STEP",
    "TAKEN",
    "AdamW",
    "Control",
    "FlatLayout",
    "FlatOptimizer",
    "Segment",
    "displace_",
    "gradient_norm",
    "prepare",
    "step_",
    "write_shadows",
]


def gradient_norm(layout: FlatLayout, grad: torch.Tensor, partials: torch.Tensor) -> None:
    """Fill `partials` with numbers whose sum is the sum of the squares of the gradient, added in a fixed order.

    Args:
        layout: Of the flat buffers.
        grad: `[layout.total]` fp32.
        partials: `[layout.partials]` fp32.

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
        partials: Filled by `gradient_norm`.
        control: `[7]` fp64, `Control.values()`.
        counters: `[3]` int64: STEP, GOOD_STEPS, SKIPPED. Updated.
        loss_scale: `[1]` fp32, what the gradient was multiplied by; a power of two. Updated for the next step.
        status: `[4]` fp32, filled: GRADIENT_NORM, CLIP_FACTOR, TAKEN, LOSS_SCALE.
        factors: `[FACTORS]` fp32, filled for `step_`.

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

        launch_prepare(partials, control, counters, loss_scale, status, factors)
        return
    reference.prepare(partials, control, counters, loss_scale, status, factors)


def step_(
    layout: FlatLayout,
    param: torch.Tensor,
    grad: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    factors: torch.Tensor,
    arena: torch.Tensor,
    displacement_S: torch.Tensor | None = None,
) -> None:
    """Update parameters and moments, write the shadows, zero the gradient; a step not taken only zeroes.

    Args:
        layout: Of the flat buffers.
        param: `[layout.total]` fp32. Updated.
        grad: `[layout.total]` fp32. Zeroed.
        exp_avg: `[layout.total]` fp32. Updated.
        exp_avg_sq: `[layout.total]` fp32. Updated.
        factors: Filled by `prepare`.
        arena: One-dimensional, fp32, fp16 or bf16; each segment's shadow is written.
        displacement_S: `[segments]` fp32: how many times as far each segment goes, weight decay included. 1 everywhere
            gives the same bits as None where learning rate times weight decay is at most a half.

    Raises:
        ValueError: Shapes or dtypes do not fit.
    """
    validate_flat(layout, param, grad, exp_avg, exp_avg_sq)
    validate_arena(layout, arena, param)
    validate_small(param, (factors, FACTORS, torch.float32))
    if displacement_S is not None:
        validate_small(param, (displacement_S, len(layout.segments), torch.float32))
    if use_kernels(param):
        from burnish_kernels.adamw.kernel import launch_step

        launch_step(layout, param, grad, exp_avg, exp_avg_sq, factors, arena, displacement_S)
        return
    reference.step_(layout, param, grad, exp_avg, exp_avg_sq, factors, arena, displacement_S)


def displace_(
    layout: FlatLayout,
    param: torch.Tensor,
    grad: torch.Tensor,
    way: torch.Tensor,
    factors: torch.Tensor,
    arena: torch.Tensor,
    displacement_S: torch.Tensor,
) -> None:
    """Move parameters by what an optimizer found, decay them, write the shadows, zero gradient and way.

    A step not taken only zeroes.

    Args:
        layout: Of the flat buffers.
        param: `[layout.total]` fp32. Updated.
        grad: `[layout.total]` fp32. Zeroed.
        way: `[layout.total]` fp32: what to add, learning rate included, weight decay not. Zeroed.
        factors: Filled by `prepare`; of them TAKE and KEEP are read.
        arena: One-dimensional, fp32, fp16 or bf16; each segment's shadow is written.
        displacement_S: `[segments]` fp32: how many times as far each segment goes, weight decay included.

    Raises:
        ValueError: Shapes or dtypes do not fit.
    """
    validate_flat(layout, param, grad, way)
    validate_arena(layout, arena, param)
    validate_small(param, (factors, FACTORS, torch.float32), (displacement_S, len(layout.segments), torch.float32))
    if use_kernels(param):
        from burnish_kernels.adamw.kernel import launch_displace

        launch_displace(layout, param, grad, way, factors, arena, displacement_S)
        return
    reference.displace_(layout, param, grad, way, factors, arena, displacement_S)


def write_shadows(layout: FlatLayout, param: torch.Tensor, arena: torch.Tensor) -> None:
    """Write every shadow, as after loading a checkpoint; arguments as in `step_`."""
    validate_flat(layout, param)
    validate_arena(layout, arena, param)
    if use_kernels(param):
        from burnish_kernels.adamw.kernel import launch_shadows

        launch_shadows(layout, param, arena)
        return
    reference.write_shadows(layout, param, arena)


class Modifier(Protocol):
    """Changes how far segments go in a step."""

    @property
    def momentum_after(self) -> bool:
        """Whether it wants the momentum after the step, where that is known only then."""
        ...

    def displacement(self, optimizer: FlatOptimizer, factors: torch.Tensor) -> torch.Tensor:
        """`displacement_S` of `step_`.

        Args:
            optimizer: With the accumulated gradient, and its counters advanced; its momentum is that before the step
                unless it says `advanced`.
            factors: As `prepare` filled them.
        """
        ...


class FlatOptimizer:
    """The buffers that every optimizer of flat segments has, and the decision whether a step is taken.

    Attributes:
        layout: Of the flat buffers.
        arena: Where the shadows go.
        param: `[layout.total]` fp32; fill `layout.views(param)`, then call `write_shadows`.
        grad: `[layout.total]` fp32; accumulate into `layout.views(grad)`. Each step leaves it zeroed.
        control: `[7]` fp64 on the device, `Control.values()`; `set_control` or the caller's own upload fills it.
        counters: `[3]` int64 on the device: STEP, GOOD_STEPS, SKIPPED.
        loss_scale: `[1]` fp32 on the device; what the next backward pass must multiply the loss by.
        status: `[4]` fp32 on the device, about the last step: GRADIENT_NORM, CLIP_FACTOR, TAKEN, LOSS_SCALE.
        modifier: Decides how far segments go, or None.
        rates: `[segments]` fp32 on the device: times the learning rate of each segment, or None.
        advanced: Whether `momentum` is that after the step that is being taken.
        capturable: Whether `step` never waits for the device, so that a CUDA graph may hold it.

    Args:
        layout: Made for the arena's device.
        arena: One-dimensional, fp32, fp16 or bf16. None: the shadows are the flat buffer's own segments, so that the
            model computes with the masters themselves.
        loss_scale: To begin with, a power of two; 1 unless the arena is fp16.

    Raises:
        ValueError: The arena or the loss scale does not fit.
    """

    capturable = True

    def __init__(self, layout: FlatLayout, arena: torch.Tensor | None, *, loss_scale: float = 1.0) -> None:
        if not reference.SMALLEST_LOSS_SCALE <= loss_scale <= reference.LARGEST_LOSS_SCALE:
            raise ValueError(f"the loss scale must be from 1 to 2^24, not {loss_scale}")
        device = layout.tables.scales.device
        self.layout = layout
        self.param, self.grad = self.new_flat(), self.new_flat()
        self.arena = self.param if arena is None else arena
        validate_arena(layout, self.arena, self.param)
        if arena is None and any(
            (segment.shadow_offset, segment.shadow_row_stride, segment.shadow_scale) != (start, segment.columns, 1.0)
            for start, segment in zip(layout.starts, layout.segments, strict=True)
        ):
            raise ValueError("without an arena each segment's shadow must be the segment itself, scaled by 1")
        self.control = torch.zeros(7, dtype=torch.float64, device=device)
        self.counters = torch.zeros(3, dtype=torch.int64, device=device)
        self.loss_scale = torch.full((1,), loss_scale, dtype=torch.float32, device=device)
        self.status = torch.zeros(4, dtype=torch.float32, device=device)
        self._partials = torch.zeros(layout.partials, dtype=torch.float32, device=device)
        self._factors = torch.zeros(FACTORS, dtype=torch.float32, device=device)
        self._lengths = torch.ones(len(layout.segments), dtype=torch.float32, device=device)
        self._staging = Staging(7) if device.type == "cuda" else None
        self.modifier: Modifier | None = None
        self.rates: torch.Tensor | None = None
        self.advanced = False

    def new_flat(self) -> torch.Tensor:
        """Another flat buffer, `[layout.total]` fp32, all 0."""
        return torch.zeros(self.layout.total, dtype=torch.float32, device=self.layout.tables.scales.device)

    @property
    def momentum(self) -> torch.Tensor:
        """`[layout.total]` fp32, the running mean of the gradient."""
        raise NotImplementedError

    @property
    def flat_state(self) -> dict[str, torch.Tensor]:
        """Flat buffers by name that, beside `param`, `counters` and `loss_scale`, the next step depends on."""
        return {}

    def set_control(self, control: Control) -> None:
        """Upload the settings of the steps to come, on the current stream; never waits, is not to be captured."""
        if self._staging is None:
            self.control.copy_(torch.tensor(control.values(), dtype=torch.float64))
        else:
            self._staging.upload(control.values(), self.control)

    def decide(self) -> None:
        """Find the gradient's norm and decide whether the step is taken; `status` says so."""
        gradient_norm(self.layout, self.grad, self._partials)
        prepare(self._partials, self.control, self.counters, self.loss_scale, self.status, self._factors)

    def lengths(self) -> torch.Tensor | None:
        """How many times as far each segment goes, `[segments]` fp32; None: once everywhere."""
        lengths = self.modifier.displacement(self, self._factors) if self.modifier else None
        if lengths is None or self.rates is None:
            return lengths if self.rates is None else self.rates
        return torch.mul(lengths, self.rates, out=self._lengths)

    def step(self) -> None:
        """Take a step with the gradient accumulated in `grad`, or skip it where that is not finite."""
        raise NotImplementedError

    def write_shadows(self) -> None:
        """Write every shadow, after `param` was filled."""
        write_shadows(self.layout, self.param, self.arena)


class AdamW(FlatOptimizer):
    """AdamW: two moments in flat buffers.

    Attributes:
        exp_avg: `[layout.total]` fp32, mean of the gradient.
        exp_avg_sq: `[layout.total]` fp32, mean of its square.
    """

    def __init__(self, layout: FlatLayout, arena: torch.Tensor | None, *, loss_scale: float = 1.0) -> None:
        super().__init__(layout, arena, loss_scale=loss_scale)
        self.exp_avg, self.exp_avg_sq = self.new_flat(), self.new_flat()

    @property
    def momentum(self) -> torch.Tensor:
        """See `FlatOptimizer`."""
        return self.exp_avg

    @property
    def flat_state(self) -> dict[str, torch.Tensor]:
        """See `FlatOptimizer`."""
        return {"exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq}

    def step(self) -> None:
        """See `FlatOptimizer`. Three launches, and no word from the host between them."""
        self.decide()
        lengths = self.lengths()
        step_(self.layout, self.param, self.grad, self.exp_avg, self.exp_avg_sq, self._factors, self.arena, lengths)
