"""The optimizer step in Triton: sum of squares, decision, update.

Every sum has a fixed order, and nothing depends on the GPU: the same gradient gives the same bits. The decision is one
program that computes in double precision, for there are a dozen numbers and 1 - beta2^t cancels. The update reads and
writes everything once, 34 bytes an element with a 16-bit compute copy.

Launchers assert and never allocate. Offsets into flat buffers and compute buffer are int64.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.adamw import reference
from burnish_kernels.adamw.layout import BLOCK, MAX_PARTIALS, FlatLayout

_CLIP_EPS = tl.constexpr(reference.CLIP_EPS)
_SMALLEST_EPS = tl.constexpr(reference.SMALLEST_EPS)
_SMALLEST_LOSS_SCALE = tl.constexpr(reference.SMALLEST_LOSS_SCALE)
_LARGEST_LOSS_SCALE = tl.constexpr(reference.LARGEST_LOSS_SCALE)
WARPS = 4


@triton.jit
def norm_kernel(
    grad_ptr,  # [blocks * BLOCK] fp32
    partials_ptr,  # [programs] fp32
    blocks,
    programs,
    BLOCK: tl.constexpr,
):
    """Sum the squares of every `programs`-th block, beginning with the program's own."""
    program = tl.program_id(0)
    places_ptr = grad_ptr + program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for _ in range(program, blocks, programs):
        grad = tl.load(places_ptr)
        squares += grad * grad
        places_ptr += programs * BLOCK
    tl.store(partials_ptr + program, tl.sum(squares, axis=0))


@triton.jit
def prepare_kernel(
    partials_ptr,  # [programs] fp32
    control_ptr,  # [7] fp64, reference.Control
    counters_ptr,  # [3] int64: STEP, GOOD_STEPS, SKIPPED
    loss_scale_ptr,  # [1] fp32
    status_ptr,  # [4] fp32: GRADIENT_NORM, CLIP_FACTOR, TAKEN, LOSS_SCALE
    factors_ptr,  # [9] fp32: TAKE, GRADIENT_FACTOR, KEEP, NEW1, KEEP2, NEW2, STEP_SIZE, ROOT_CORRECTION2, EPS
    programs,
    MAX_PROGRAMS: tl.constexpr,
):
    """Decide whether the step is taken and with which factors; advance the counters and the loss scale."""
    learning_rate = tl.load(control_ptr)
    beta1 = tl.load(control_ptr + 1)
    beta2 = tl.load(control_ptr + 2)
    eps = tl.load(control_ptr + 3)
    weight_decay = tl.load(control_ptr + 4)
    max_grad_norm = tl.load(control_ptr + 5)
    growth_interval = tl.load(control_ptr + 6)
    scale = tl.load(loss_scale_ptr).to(tl.float64)
    lanes = tl.arange(0, MAX_PROGRAMS)
    total = tl.sum(tl.load(partials_ptr + lanes, mask=lanes < programs, other=0.0).to(tl.float64), axis=0)
    norm = tl.sqrt(total) / scale
    taken = norm < float("inf")  # false for NaN
    clip = tl.where(max_grad_norm > 0.0, tl.minimum(max_grad_norm / (norm + _CLIP_EPS), 1.0), 1.0)
    clip = tl.where(taken, clip, 0.0)
    tl.store(status_ptr, norm.to(tl.float32))
    tl.store(status_ptr + 1, clip.to(tl.float32))
    tl.store(status_ptr + 2, taken.to(tl.float32))
    tl.store(status_ptr + 3, scale.to(tl.float32))

    one = taken.to(tl.int64)
    step = tl.load(counters_ptr) + one
    good_steps = (tl.load(counters_ptr + 1) + 1) * one
    grows = taken & (growth_interval > 0.0) & (good_steps.to(tl.float64) >= growth_interval)
    shrinks = (growth_interval > 0.0) & (taken == 0)
    new_scale = tl.where(grows, tl.minimum(scale * 2.0, _LARGEST_LOSS_SCALE), scale)
    new_scale = tl.where(shrinks, tl.maximum(scale * 0.5, _SMALLEST_LOSS_SCALE), new_scale)
    tl.store(counters_ptr, step)
    tl.store(counters_ptr + 1, tl.where(grows, 0, good_steps))
    tl.store(counters_ptr + 2, tl.load(counters_ptr + 2) + (1 - one))
    tl.store(loss_scale_ptr, new_scale.to(tl.float32))

    steps = tl.maximum(step, 1).to(tl.float64)
    correction1 = 1.0 - tl.exp(steps * tl.log(beta1))  # 1 - beta^t
    correction2 = 1.0 - tl.exp(steps * tl.log(beta2))
    tl.store(factors_ptr, taken.to(tl.float32))
    tl.store(factors_ptr + 1, (clip / scale).to(tl.float32))
    tl.store(factors_ptr + 2, (1.0 - learning_rate * weight_decay).to(tl.float32))
    tl.store(factors_ptr + 3, (1.0 - beta1).to(tl.float32))
    tl.store(factors_ptr + 4, beta2.to(tl.float32))
    tl.store(factors_ptr + 5, (1.0 - beta2).to(tl.float32))
    tl.store(factors_ptr + 6, (learning_rate / correction1).to(tl.float32))
    tl.store(factors_ptr + 7, tl.sqrt(correction2).to(tl.float32))
    tl.store(factors_ptr + 8, tl.maximum(eps, _SMALLEST_EPS).to(tl.float32))


@triton.jit
def _copy_indices(segments_ptr, geometry_ptr, BLOCK: tl.constexpr, VECTOR: tl.constexpr):
    """Locate this program's elements.

    Returns the segment, whether it decays, indices into the flat buffer, which of them are real, and indices into the
    compute buffer.

    Groups of VECTOR neighbors (E in a block, V in a group) share a row of their matrix: one division a group.
    """
    block = tl.program_id(0)
    segment = tl.load(segments_ptr + block)
    row_ptr = geometry_ptr + segment * 6
    start = tl.load(row_ptr)
    elements = tl.load(row_ptr + 1).to(tl.int32)
    columns = tl.load(row_ptr + 2).to(tl.int32)
    offset = tl.load(row_ptr + 3)
    stride = tl.load(row_ptr + 4)
    decay = tl.load(row_ptr + 5)
    within_V = tl.arange(0, VECTOR)
    first = block.to(tl.int64) * BLOCK
    lanes_E = tl.arange(0, BLOCK // VECTOR) * VECTOR
    element_E = (first - start).to(tl.int32) + lanes_E
    row_E = element_E // columns
    column_E = element_E - row_E * columns
    copy_E = tl.multiple_of(offset + row_E.to(tl.int64) * stride + column_E, VECTOR)
    inside_EV = (element_E < elements)[:, None] & (within_V >= 0)[None, :]
    flat_EV = first + (lanes_E[:, None] + within_V[None, :])
    return segment, decay, flat_EV, inside_EV, copy_E[:, None] + within_V[None, :]


@triton.jit
def step_kernel(
    param_ptr,  # [blocks * BLOCK] fp32
    grad_ptr,  # [blocks * BLOCK] fp32
    exp_avg_ptr,  # [blocks * BLOCK] fp32
    exp_avg_sq_ptr,  # [blocks * BLOCK] fp32
    factors_ptr,  # [9] fp32
    copies_ptr,  # one-dimensional, of the compute dtype
    segments_ptr,  # [blocks] int32
    geometry_ptr,  # [S, 6] int64
    scales_ptr,  # [S] fp32
    step_scale_ptr,  # [S] fp32; not read unless SCALED
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    SCALED: tl.constexpr,
):
    """Update one block: parameters, moments and compute copies; zero its gradient."""
    segment, decay, flat_EV, inside_EV, copy_EV = _copy_indices(segments_ptr, geometry_ptr, BLOCK, VECTOR)
    # A skipped step does not even read the gradient: NaN times 0 would be NaN.
    if tl.load(factors_ptr) != 0.0:
        gradient_factor = tl.load(factors_ptr + 1)
        keep = tl.load(factors_ptr + 2)
        new1 = tl.load(factors_ptr + 3)
        keep2 = tl.load(factors_ptr + 4)
        new2 = tl.load(factors_ptr + 5)
        step_size = tl.load(factors_ptr + 6)
        root_correction2 = tl.load(factors_ptr + 7)
        eps = tl.load(factors_ptr + 8)
        copy_scale = tl.load(scales_ptr + segment)
        if SCALED:
            length = tl.load(step_scale_ptr + segment)
            keep = 1.0 - length * (1.0 - keep)  # with 1 the very same number, as 1 - keep is exact near 1
            step_size *= length
        param = tl.load(param_ptr + flat_EV, mask=inside_EV, other=0.0)
        grad = tl.load(grad_ptr + flat_EV, mask=inside_EV, other=0.0)
        exp_avg = tl.load(exp_avg_ptr + flat_EV, mask=inside_EV, other=0.0)
        exp_avg_sq = tl.load(exp_avg_sq_ptr + flat_EV, mask=inside_EV, other=0.0)
        grad *= gradient_factor
        param *= tl.where(decay != 0, keep, 1.0)
        exp_avg += new1 * (grad - exp_avg)
        exp_avg_sq = exp_avg_sq * keep2 + new2 * (grad * grad)
        denominator = tl.div_rn(tl.sqrt_rn(exp_avg_sq), root_correction2) + eps
        param -= step_size * tl.div_rn(exp_avg, denominator)
        tl.store(param_ptr + flat_EV, param, mask=inside_EV)
        tl.store(exp_avg_ptr + flat_EV, exp_avg, mask=inside_EV)
        tl.store(exp_avg_sq_ptr + flat_EV, exp_avg_sq, mask=inside_EV)
        tl.store(copies_ptr + copy_EV, (param * copy_scale).to(copies_ptr.dtype.element_ty), mask=inside_EV)
    tl.store(grad_ptr + flat_EV, tl.zeros((BLOCK // VECTOR, VECTOR), dtype=tl.float32), mask=inside_EV)


@triton.jit
def apply_update_kernel(
    param_ptr,  # [blocks * BLOCK] fp32
    grad_ptr,  # [blocks * BLOCK] fp32
    update_ptr,  # [blocks * BLOCK] fp32
    factors_ptr,  # [9] fp32
    copies_ptr,  # one-dimensional, of the compute dtype
    segments_ptr,  # [blocks] int32
    geometry_ptr,  # [S, 6] int64
    scales_ptr,  # [S] fp32
    step_scale_ptr,  # [S] fp32
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Add another optimizer's update to one block, decay it and write its compute copies; zero gradient and update."""
    segment, decay, flat_EV, inside_EV, copy_EV = _copy_indices(segments_ptr, geometry_ptr, BLOCK, VECTOR)
    if tl.load(factors_ptr) != 0.0:
        length = tl.load(step_scale_ptr + segment)
        keep = 1.0 - length * (1.0 - tl.load(factors_ptr + 2))  # with 1 the very same number
        copy_scale = tl.load(scales_ptr + segment)
        param = tl.load(param_ptr + flat_EV, mask=inside_EV, other=0.0)
        param *= tl.where(decay != 0, keep, 1.0)
        param += length * tl.load(update_ptr + flat_EV, mask=inside_EV, other=0.0)
        tl.store(param_ptr + flat_EV, param, mask=inside_EV)
        tl.store(copies_ptr + copy_EV, (param * copy_scale).to(copies_ptr.dtype.element_ty), mask=inside_EV)
    zeros = tl.zeros((BLOCK // VECTOR, VECTOR), dtype=tl.float32)
    tl.store(grad_ptr + flat_EV, zeros, mask=inside_EV)
    tl.store(update_ptr + flat_EV, zeros, mask=inside_EV)


@triton.jit
def write_compute_copies_kernel(
    param_ptr,  # [blocks * BLOCK] fp32
    copies_ptr,  # one-dimensional, of the compute dtype
    segments_ptr,  # [blocks] int32
    geometry_ptr,  # [S, 6] int64
    scales_ptr,  # [S] fp32
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Write the compute copies of one block."""
    segment, _, flat_EV, inside_EV, copy_EV = _copy_indices(segments_ptr, geometry_ptr, BLOCK, VECTOR)
    param = tl.load(param_ptr + flat_EV, mask=inside_EV, other=0.0)
    compute_copy = (param * tl.load(scales_ptr + segment)).to(copies_ptr.dtype.element_ty)
    tl.store(copies_ptr + copy_EV, compute_copy, mask=inside_EV)


def launch_norm(grad: torch.Tensor, partials: torch.Tensor) -> None:
    """Fill `partials` with sums of squares; the gradient's padding is 0."""
    assert grad.dtype == partials.dtype == torch.float32
    assert grad.numel() % BLOCK == 0
    programs = partials.numel()
    norm_kernel[(programs,)](
        grad_ptr=grad,
        partials_ptr=partials,
        blocks=grad.numel() // BLOCK,
        programs=programs,
        BLOCK=BLOCK,
        num_warps=WARPS,
    )


def launch_prepare(
    *,
    partials: torch.Tensor,
    control: torch.Tensor,
    counters: torch.Tensor,
    loss_scale: torch.Tensor,
    status: torch.Tensor,
    factors: torch.Tensor,
) -> None:
    """Update counters and loss scale, fill status and factors."""
    assert control.dtype == torch.float64
    assert counters.dtype == torch.int64
    assert factors.numel() == reference.FACTORS
    programs = partials.numel()
    assert programs <= MAX_PARTIALS
    prepare_kernel[(1,)](
        partials_ptr=partials,
        control_ptr=control,
        counters_ptr=counters,
        loss_scale_ptr=loss_scale,
        status_ptr=status,
        factors_ptr=factors,
        programs=programs,
        MAX_PROGRAMS=MAX_PARTIALS,
        num_warps=WARPS,
    )


def launch_step(
    *,
    layout: FlatLayout,
    param: torch.Tensor,
    grad: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    factors: torch.Tensor,
    compute_buffer: torch.Tensor,
    step_scale_S: torch.Tensor | None,
) -> None:
    """Update everything, one program a block."""
    assert param.shape == grad.shape == exp_avg.shape == exp_avg_sq.shape == (layout.total,)
    assert step_scale_S is None or step_scale_S.dtype == torch.float32
    tables = layout.tables
    step_kernel[(layout.blocks,)](
        param_ptr=param,
        grad_ptr=grad,
        exp_avg_ptr=exp_avg,
        exp_avg_sq_ptr=exp_avg_sq,
        factors_ptr=factors,
        copies_ptr=compute_buffer,
        segments_ptr=tables.block_segments,
        geometry_ptr=tables.geometry,
        scales_ptr=tables.scales,
        step_scale_ptr=step_scale_S,
        BLOCK=BLOCK,
        VECTOR=layout.vector,
        SCALED=step_scale_S is not None,
        num_warps=WARPS,
    )


def launch_apply_update(
    *,
    layout: FlatLayout,
    param: torch.Tensor,
    grad: torch.Tensor,
    update: torch.Tensor,
    factors: torch.Tensor,
    compute_buffer: torch.Tensor,
    step_scale_S: torch.Tensor,
) -> None:
    """Move and decay everything, one program a block."""
    assert param.shape == grad.shape == update.shape == (layout.total,)
    assert step_scale_S.dtype == torch.float32
    tables = layout.tables
    apply_update_kernel[(layout.blocks,)](
        param_ptr=param,
        grad_ptr=grad,
        update_ptr=update,
        factors_ptr=factors,
        copies_ptr=compute_buffer,
        segments_ptr=tables.block_segments,
        geometry_ptr=tables.geometry,
        scales_ptr=tables.scales,
        step_scale_ptr=step_scale_S,
        BLOCK=BLOCK,
        VECTOR=layout.vector,
        num_warps=WARPS,
    )


def launch_compute_copies(layout: FlatLayout, param: torch.Tensor, compute_buffer: torch.Tensor) -> None:
    """Write every compute copy, one program a block."""
    assert param.shape == (layout.total,)
    tables = layout.tables
    write_compute_copies_kernel[(layout.blocks,)](
        param_ptr=param,
        copies_ptr=compute_buffer,
        segments_ptr=tables.block_segments,
        geometry_ptr=tables.geometry,
        scales_ptr=tables.scales,
        BLOCK=BLOCK,
        VECTOR=layout.vector,
        num_warps=WARPS,
    )
