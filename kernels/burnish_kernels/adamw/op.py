"""The optimizer step: validate, allocate, launch. CUDA tensors use the kernels, others the reference.

Three launches and no word from the host between them: sum of squares, decision, update. The step can therefore be
captured in a CUDA graph; learning rate and the like change through `AdamW.control`, which a captured step reads anew.
"""

from __future__ import annotations

import time
from typing import Protocol

import torch

from burnish_kernels.adamw import reference
from burnish_kernels.adamw.layout import MAX_PARTIALS, FlatLayout, Segment
from burnish_kernels.adamw.reference import (
    CLIP_FACTOR,
    FACTORS,
    GOOD_STEPS,
    GRADIENT_NORM,
    LOSS_SCALE,
    SKIPPED,
    STEP,
    TAKEN,
    Control,
)
from burnish_kernels.dispatch import use_kernels

__all__ = [
    "CLIP_FACTOR",
    "GOOD_STEPS",
    "GRADIENT_NORM",
    "LOSS_SCALE",
    "SKIPPED",
    "STEP",
    "TAKEN",
    "AdamW",
    "Control",
    "FlatLayout",
    "Segment",
    "gradient_norm",
    "prepare",
    "step_",
    "write_shadows",
]

_POLL_S = 0.0002  # while the device still has to read what the host wants to overwrite

ARENA_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def gradient_norm(layout: FlatLayout, grad: torch.Tensor, partials: torch.Tensor) -> None:
    """Fill `partials` with numbers whose sum is the sum of the squares of the gradient, added in a fixed order.

    Args:
        layout: Of the flat buffers.
        grad: `[layout.total]` fp32.
        partials: `[layout.partials]` fp32.

    Raises:
        ValueError: Shapes or dtypes do not fit.
    """
    _validate_flat(layout, grad)
    _validate_small(grad, (partials, layout.partials, torch.float32))
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
    _validate_small(
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
            gives the same bits as None.

    Raises:
        ValueError: Shapes or dtypes do not fit.
    """
    _validate_flat(layout, param, grad, exp_avg, exp_avg_sq)
    _validate_arena(layout, arena, param)
    _validate_small(param, (factors, FACTORS, torch.float32))
    if displacement_S is not None:
        _validate_small(param, (displacement_S, len(layout.segments), torch.float32))
    if use_kernels(param):
        from burnish_kernels.adamw.kernel import launch_step

        launch_step(layout, param, grad, exp_avg, exp_avg_sq, factors, arena, displacement_S)
        return
    reference.step_(layout, param, grad, exp_avg, exp_avg_sq, factors, arena, displacement_S)


def write_shadows(layout: FlatLayout, param: torch.Tensor, arena: torch.Tensor) -> None:
    """Write every shadow, as after loading a checkpoint; arguments as in `step_`."""
    _validate_flat(layout, param)
    _validate_arena(layout, arena, param)
    if use_kernels(param):
        from burnish_kernels.adamw.kernel import launch_shadows

        launch_shadows(layout, param, arena)
        return
    reference.write_shadows(layout, param, arena)


class Modifier(Protocol):
    """Changes how far segments go in a step."""

    def displacement(self, optimizer: AdamW, factors: torch.Tensor) -> torch.Tensor:
        """`displacement_S` of `step_`; the moments are still those before the step.

        Args:
            optimizer: With the accumulated gradient, and its counters advanced.
            factors: As `prepare` filled them.
        """
        ...


class AdamW:
    """All buffers of the optimizer, and its step.

    Attributes:
        layout: Of the flat buffers.
        arena: Where the shadows go.
        param: `[layout.total]` fp32; fill `layout.views(param)`, then call `write_shadows`.
        grad: `[layout.total]` fp32; accumulate into `layout.views(grad)`. Each step leaves it zeroed.
        exp_avg: `[layout.total]` fp32, mean of the gradient.
        exp_avg_sq: `[layout.total]` fp32, mean of its square.
        control: `[7]` fp64 on the device, `Control.values()`; `set_control` or the caller's own upload fills it.
        counters: `[3]` int64 on the device: STEP, GOOD_STEPS, SKIPPED.
        loss_scale: `[1]` fp32 on the device; what the next backward pass must multiply the loss by.
        status: `[4]` fp32 on the device, about the last step: GRADIENT_NORM, CLIP_FACTOR, TAKEN, LOSS_SCALE.
        modifier: Decides how far segments go, or None.

    Args:
        layout: Made for the arena's device.
        arena: One-dimensional, fp32, fp16 or bf16.
        loss_scale: To begin with, a power of two; 1 unless the arena is fp16.

    Raises:
        ValueError: The arena or the loss scale does not fit.
    """

    def __init__(self, layout: FlatLayout, arena: torch.Tensor, *, loss_scale: float = 1.0) -> None:
        if not reference.SMALLEST_LOSS_SCALE <= loss_scale <= reference.LARGEST_LOSS_SCALE:
            raise ValueError(f"the loss scale must be from 1 to 2^24, not {loss_scale}")
        device = arena.device
        self.layout, self.arena = layout, arena
        self.param, self.grad, self.exp_avg, self.exp_avg_sq = (
            torch.zeros(layout.total, dtype=torch.float32, device=device) for _ in range(4)
        )
        _validate_arena(layout, arena, self.param)
        self.control = torch.zeros(7, dtype=torch.float64, device=device)
        self.counters = torch.zeros(3, dtype=torch.int64, device=device)
        self.loss_scale = torch.full((1,), loss_scale, dtype=torch.float32, device=device)
        self.status = torch.zeros(4, dtype=torch.float32, device=device)
        self._partials = torch.zeros(layout.partials, dtype=torch.float32, device=device)
        self._factors = torch.zeros(FACTORS, dtype=torch.float32, device=device)
        self._staging = _Staging(7) if arena.is_cuda else None
        self.modifier: Modifier | None = None

    def set_control(self, control: Control) -> None:
        """Upload the settings of the steps to come, on the current stream; never waits, is not to be captured."""
        if self._staging is None:
            self.control.copy_(torch.tensor(control.values(), dtype=torch.float64))
        else:
            self._staging.upload(control.values(), self.control)

    def step(self) -> None:
        """Take a step with the gradient accumulated in `grad`, or skip it where that is not finite."""
        gradient_norm(self.layout, self.grad, self._partials)
        prepare(self._partials, self.control, self.counters, self.loss_scale, self.status, self._factors)
        lengths = self.modifier.displacement(self, self._factors) if self.modifier else None
        step_(self.layout, self.param, self.grad, self.exp_avg, self.exp_avg_sq, self._factors, self.arena, lengths)

    def write_shadows(self) -> None:
        """Write every shadow, after `param` was filled."""
        write_shadows(self.layout, self.param, self.arena)


class _Staging:
    """Pinned memory in turns: the host may be several steps ahead, and must not overwrite what is still to be read."""

    TURNS = 8

    def __init__(self, elements: int) -> None:
        self._pinned = torch.zeros(self.TURNS, elements, dtype=torch.float64, pin_memory=True)
        self._read: list[torch.cuda.Event | None] = [None] * self.TURNS
        self._turn = 0

    def upload(self, values: list[float], target: torch.Tensor) -> None:
        event = self._read[self._turn]
        if event is None:
            event = self._read[self._turn] = torch.cuda.Event()
        else:
            while not event.query():  # only a host that is many steps ahead comes here
                time.sleep(_POLL_S)
        staged = self._pinned[self._turn]
        staged.copy_(torch.tensor(values, dtype=torch.float64))
        target.copy_(staged, non_blocking=True)
        event.record()
        self._turn = (self._turn + 1) % self.TURNS


def _validate_flat(layout: FlatLayout, *buffers: torch.Tensor) -> None:
    for buffer in buffers:
        if buffer.shape != (layout.total,) or buffer.dtype != torch.float32 or not buffer.is_contiguous():
            raise ValueError(
                f"flat buffers must be [{layout.total}] fp32, contiguous, not {tuple(buffer.shape)} {buffer.dtype}"
            )
        if buffer.device != layout.tables.block_segments.device:
            raise ValueError(
                f"the layout is on {layout.tables.block_segments.device}, the flat buffer on {buffer.device}"
            )


def _validate_arena(layout: FlatLayout, arena: torch.Tensor, param: torch.Tensor) -> None:
    if arena.ndim != 1 or arena.dtype not in ARENA_DTYPES or not arena.is_contiguous():
        raise ValueError(f"the arena must be one-dimensional fp32, fp16 or bf16, not {arena.ndim}-d {arena.dtype}")
    if arena.numel() < layout.shadow_end:
        raise ValueError(f"the arena has {arena.numel()} elements; the shadows end at {layout.shadow_end}")
    if arena.device != param.device:
        raise ValueError(f"the arena is on {arena.device}, the flat buffer on {param.device}")


def _validate_small(like: torch.Tensor, *buffers: tuple[torch.Tensor, int, torch.dtype]) -> None:
    for buffer, elements, dtype in buffers:
        if buffer.shape != (elements,) or buffer.dtype != dtype or not buffer.is_contiguous():
            raise ValueError(f"expected [{elements}] {dtype}, contiguous, not {tuple(buffer.shape)} {buffer.dtype}")
        if buffer.device != like.device:
            raise ValueError(f"expected a tensor on {like.device}, not on {buffer.device}")
