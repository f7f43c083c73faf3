"""The masking decision in Triton: sums over every block of the flat buffers, then one program for each matrix.

Every sum has a fixed order. Momentum and gradient are read once, 8 bytes an element.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.adamw import reference as adamw
from burnish_kernels.adamw.layout import BLOCK
from burnish_kernels.magma.reference import DOMAIN, NEVER, MagmaOptions

WARPS = 4
LANES = 512
"""Blocks whose sums a program adds up at once."""
_TAKE, _GRADIENT_FACTOR, _NEW1 = tl.constexpr(adamw.TAKE), tl.constexpr(adamw.GRADIENT_FACTOR), tl.constexpr(adamw.NEW1)
_DOMAIN, _NEVER = tl.constexpr(DOMAIN), tl.constexpr(NEVER)


@triton.jit
def sums_kernel(
    grad_ptr,  # [blocks * BLOCK] fp32
    exp_avg_ptr,  # [blocks * BLOCK] fp32
    partials_ptr,  # [blocks, 3] fp32: DOT, MOMENTUM, GRADIENT
    BLOCK: tl.constexpr,
):
    """Sum the products of momentum and gradient, and the squares of both, over one block."""
    block = tl.program_id(0).to(tl.int64)
    places = block * BLOCK + tl.arange(0, BLOCK)  # padding is 0 in both
    grad = tl.load(grad_ptr + places)
    exp_avg = tl.load(exp_avg_ptr + places)
    tl.store(partials_ptr + 3 * block, tl.sum(exp_avg * grad, axis=0))
    tl.store(partials_ptr + 3 * block + 1, tl.sum(exp_avg * exp_avg, axis=0))
    tl.store(partials_ptr + 3 * block + 2, tl.sum(grad * grad, axis=0))


@triton.jit
def decide_kernel(
    partials_ptr,  # [blocks, 3] fp32
    blocks_ptr,  # [S, 2] int32: first block and number of blocks
    draws_ptr,  # [S] int32
    seed_ptr,  # [1] int64
    step_ptr,  # [1] int64
    factors_ptr,  # [9] fp32
    alignment_ptr,  # [S] fp32
    step_scale_ptr,  # [S] fp32
    threshold,
    inverse_temperature,
    decay,
    skip_length,
    rate,
    LANES: tl.constexpr,
    AFTER: tl.constexpr,
    SKIP: tl.constexpr,
):
    """Draw whether one segment takes the step, and how long that is."""
    segment = tl.program_id(0)
    if tl.load(factors_ptr + _TAKE) != 0.0:
        draw = tl.load(draws_ptr + segment)
        if draw == _NEVER:
            tl.store(step_scale_ptr + segment, 1.0)
        else:
            first = tl.load(blocks_ptr + 2 * segment).to(tl.int64)
            count = tl.load(blocks_ptr + 2 * segment + 1)
            lanes = tl.arange(0, LANES)
            dots = tl.zeros((LANES,), dtype=tl.float64)
            momenta = tl.zeros((LANES,), dtype=tl.float64)
            gradients = tl.zeros((LANES,), dtype=tl.float64)
            for begin in range(0, count, LANES):
                there = begin + lanes < count
                row_ptr = partials_ptr + 3 * (first + begin + lanes)
                dots += tl.load(row_ptr, mask=there, other=0.0).to(tl.float64)
                momenta += tl.load(row_ptr + 1, mask=there, other=0.0).to(tl.float64)
                gradients += tl.load(row_ptr + 2, mask=there, other=0.0).to(tl.float64)
            factor = tl.load(factors_ptr + _GRADIENT_FACTOR).to(tl.float64)
            dot = tl.sum(dots, axis=0) * factor
            momentum = tl.sum(momenta, axis=0)
            gradient = tl.sum(gradients, axis=0) * factor * factor
            if AFTER:
                new = tl.load(factors_ptr + _NEW1).to(tl.float64)
                kept = 1.0 - new
                momentum = kept * kept * momentum + 2 * kept * new * dot + new * new * gradient
                dot = kept * dot + new * gradient
            norms = tl.sqrt(tl.maximum(momentum, 0.0)) * tl.sqrt(gradient)
            cosine = tl.where(norms > 0.0, dot / tl.where(norms > 0.0, norms, 1.0), 0.0)
            fresh = 1.0 / (1.0 + tl.exp(-cosine * inverse_temperature))
            alignment = decay * tl.load(alignment_ptr + segment).to(tl.float64) + (1.0 - decay) * fresh
            tl.store(alignment_ptr + segment, alignment.to(tl.float32))
            zero = tl.zeros((1,), dtype=tl.int32)
            step = tl.load(step_ptr).to(tl.int32)
            bits, _, _, _ = tl.philox(tl.load(seed_ptr), zero + step, zero + draw, zero + _DOMAIN, zero)
            goes = tl.sum(((bits >> 1).to(tl.int64) < threshold).to(tl.int32), axis=0)
            length = alignment.to(tl.float32)
            if SKIP:
                length = skip_length
            tl.store(step_scale_ptr + segment, rate * length * goes.to(tl.float32))


def launch_sums(grad: torch.Tensor, exp_avg: torch.Tensor, partials_N3: torch.Tensor) -> None:
    """Fill `partials_N3`, one row a block."""
    assert grad.dtype == exp_avg.dtype == partials_N3.dtype == torch.float32
    assert grad.numel() == exp_avg.numel() == len(partials_N3) * BLOCK
    sums_kernel[(len(partials_N3),)](
        grad_ptr=grad, exp_avg_ptr=exp_avg, partials_ptr=partials_N3, BLOCK=BLOCK, num_warps=WARPS
    )


def launch_decide(
    *,
    partials_N3: torch.Tensor,
    blocks_S2: torch.Tensor,
    draws_S: torch.Tensor,
    seed: torch.Tensor,
    step: torch.Tensor,
    factors: torch.Tensor,
    alignment_S: torch.Tensor,
    step_scale_S: torch.Tensor,
    options: MagmaOptions,
) -> None:
    """Update alignments and fill the step scales; one program a segment."""
    assert blocks_S2.dtype == draws_S.dtype == torch.int32
    assert seed.dtype == step.dtype == torch.int64
    decide_kernel[(len(draws_S),)](
        partials_ptr=partials_N3,
        blocks_ptr=blocks_S2,
        draws_ptr=draws_S,
        seed_ptr=seed,
        step_ptr=step,
        factors_ptr=factors,
        alignment_ptr=alignment_S,
        step_scale_ptr=step_scale_S,
        threshold=options.threshold,
        inverse_temperature=1.0 / options.temperature,
        decay=options.decay,
        skip_length=1.0 / options.probability,
        rate=options.rate,
        LANES=LANES,
        AFTER=options.momentum_after,
        SKIP=options.skip,
        num_warps=WARPS,
    )
