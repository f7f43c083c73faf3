"""Cross entropy in Triton: one program a row, which reads it twice and writes it once.

The first pass keeps a running maximum and sum, the second writes the gradient over the logits. Few rows are in flight
at a time (one program of 32 warps an SM for a large vocabulary), so that the second pass finds most of its row in L2;
it goes backwards, because the end of the row was used last. Statistics are kept per group of neighbors that one thread
holds: warps meet only once a row.

Launchers assert and never allocate. Row offsets are int64: R·V passes 2^31 for 16,384 rows of 131,072.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.cross_entropy.config import CONFIGS, CrossEntropyConfig
from burnish_kernels.cross_entropy.reference import IGNORED

_IGNORED = tl.constexpr(IGNORED)
_LOWEST = tl.constexpr(-3.0e38)  # finite: the difference of two infinities is not a number


@triton.jit
def _capped(raw, softcap, HAS_SOFTCAP: tl.constexpr):
    """Return the logit after the soft cap, and its derivative by the logit before."""
    z = raw.to(tl.float32)
    slope = 1.0
    if HAS_SOFTCAP:
        shrinking = tl.exp(tl.abs(z) * (-2.0 / softcap))  # tanh by a power that cannot overflow
        inverse = 1.0 / (1.0 + shrinking)
        bounded = softcap * (1.0 - shrinking) * inverse
        z = tl.where(z < 0.0, -bounded, bounded)
        slope = 4.0 * shrinking * inverse * inverse  # 1 - tanh², without the cancellation
    return z, slope


@triton.jit
def _collect(
    raw_GW,
    columns_GW,
    inside_GW,
    top_G,  # largest logit so far
    sum_G,  # of exp(logit - top)
    total_G,  # of the logits; with SMOOTH
    beaten_G,  # 1 where a logit came before the target in the order of argmax; with CORRECT
    target,
    raw_target,
    softcap,
    HAS_SOFTCAP: tl.constexpr,
    SMOOTH: tl.constexpr,
    CORRECT: tl.constexpr,
):
    z_GW, _ = _capped(raw_GW, softcap, HAS_SOFTCAP)
    z_GW = tl.where(inside_GW, z_GW, float("-inf"))
    new_top_G = tl.maximum(top_G, tl.max(z_GW, axis=1))
    sum_G = sum_G * tl.exp(top_G - new_top_G) + tl.sum(tl.exp(z_GW - new_top_G[:, None]), axis=1)
    if SMOOTH:
        total_G += tl.sum(tl.where(inside_GW, z_GW, 0.0), axis=1)
    if CORRECT:
        wide_GW = raw_GW.to(tl.float32)
        before = (wide_GW > raw_target) | ((wide_GW == raw_target) & (columns_GW < target))
        beaten_G = tl.maximum(beaten_G, tl.max((before & inside_GW).to(tl.int32), axis=1))
    return new_top_G, sum_G, total_G, beaten_G


@triton.jit
def _gradient(
    raw_GW, columns_GW, target, top, share, floor, spike, softcap, HAS_SOFTCAP: tl.constexpr, SMOOTH: tl.constexpr
):
    z_GW, slope_GW = _capped(raw_GW, softcap, HAS_SOFTCAP)
    dz_GW = tl.exp(z_GW - top) * share
    if SMOOTH:
        dz_GW -= floor
    dz_GW = tl.where(columns_GW == target, dz_GW - spike, dz_GW)
    if HAS_SOFTCAP:
        dz_GW *= slope_GW
    return dz_GW.to(raw_GW.dtype)


@triton.jit
def cross_entropy_kernel(
    logits_ptr,  # [R, V]; with GRADIENT overwritten by scale * dloss / dlogits
    targets_ptr,  # [R] int32 or int64
    loss_ptr,  # [R] fp32
    scale_ptr,  # [1] fp32, read only with GRADIENT
    correct_ptr,  # [R] int32 or uint8, written only with CORRECT
    row_stride,
    V,
    softcap,
    label_smoothing,
    z_loss,
    GRADIENT: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    SMOOTH: tl.constexpr,
    CORRECT: tl.constexpr,
    GROUPS: tl.constexpr,  # G
    WIDTH: tl.constexpr,  # W, neighbors that one thread holds
):
    """Compute the loss of one row, and with GRADIENT overwrite its logits."""
    BLOCK: tl.constexpr = GROUPS * WIDTH
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * row_stride
    lanes_GW = tl.arange(0, GROUPS)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    target = tl.load(targets_ptr + row).to(tl.int32)
    if target == _IGNORED:
        tl.store(loss_ptr + row, 0.0)
        if CORRECT:
            tl.store(correct_ptr + row, 0)
        if GRADIENT:
            zero_GW = tl.zeros((GROUPS, WIDTH), dtype=logits_ptr.dtype.element_ty)
            for start in range(0, V, BLOCK):
                tl.store(row_ptr + start + lanes_GW, zero_GW, mask=start + lanes_GW < V)
    else:
        # A target outside the vocabulary makes loss and gradient NaN: seen at once, and nothing is read out of bounds.
        known = (target >= 0) & (target < V)
        raw_target = tl.load(row_ptr + target, mask=known, other=float("nan")).to(tl.float32)
        top_G = tl.full((GROUPS,), _LOWEST, dtype=tl.float32)
        sum_G = tl.zeros((GROUPS,), dtype=tl.float32)
        total_G = tl.zeros((GROUPS,), dtype=tl.float32)
        beaten_G = tl.zeros((GROUPS,), dtype=tl.int32)
        everywhere_GW = lanes_GW >= 0
        # Whole blocks without a mask (it would split the 16-byte accesses where V is odd), one block read ahead.
        whole = V // BLOCK * BLOCK
        raw_GW = tl.load(row_ptr + lanes_GW, mask=whole > 0, eviction_policy="evict_last")
        for start in range(0, whole, BLOCK):
            ahead = start + BLOCK
            next_GW = tl.load(row_ptr + ahead + lanes_GW, mask=ahead < whole, eviction_policy="evict_last")
            top_G, sum_G, total_G, beaten_G = _collect(
                raw_GW, start + lanes_GW, everywhere_GW, top_G, sum_G, total_G, beaten_G,
                target, raw_target, softcap, HAS_SOFTCAP, SMOOTH, CORRECT,
            )  # fmt: skip
            raw_GW = next_GW
        rest_GW = whole + lanes_GW
        in_rest_GW = rest_GW < V
        raw_rest_GW = tl.load(row_ptr + rest_GW, mask=in_rest_GW, other=0.0)
        top_G, sum_G, total_G, beaten_G = _collect(
            raw_rest_GW, rest_GW, in_rest_GW, top_G, sum_G, total_G, beaten_G,
            target, raw_target, softcap, HAS_SOFTCAP, SMOOTH, CORRECT,
        )  # fmt: skip

        top = tl.max(top_G, axis=0)
        sum_ = tl.sum(sum_G * tl.exp(top_G - top), axis=0)
        log_sum = tl.log(sum_)
        lse = top + log_sum
        z_target, _ = _capped(raw_target, softcap, HAS_SOFTCAP)
        loss = (1.0 - label_smoothing) * (log_sum + (top - z_target)) + z_loss * lse * lse
        if SMOOTH:
            loss += label_smoothing * (log_sum + (top - tl.sum(total_G, axis=0) / V))
        tl.store(loss_ptr + row, loss)
        if CORRECT:
            tl.store(correct_ptr + row, ((tl.max(beaten_G, axis=0) == 0) & (loss < float("inf"))).to(tl.int32))
        if GRADIENT:
            scale = tl.where(known, tl.load(scale_ptr), float("nan"))
            share = scale * (1.0 + 2.0 * z_loss * lse) / sum_
            floor = scale * label_smoothing / V
            spike = scale * (1.0 - label_smoothing)
            d_rest_GW = _gradient(
                raw_rest_GW, rest_GW, target, top, share, floor, spike, softcap, HAS_SOFTCAP, SMOOTH
            )  # fmt: skip
            tl.store(row_ptr + rest_GW, d_rest_GW, mask=in_rest_GW, eviction_policy="evict_first")
            last = whole - BLOCK
            raw_GW = tl.load(row_ptr + last + lanes_GW, mask=whole > 0, eviction_policy="evict_first")
            for behind in range(0, whole, BLOCK):
                start = last - behind
                next_GW = tl.load(
                    row_ptr + (start - BLOCK) + lanes_GW, mask=start > 0, eviction_policy="evict_first"
                )  # fmt: skip
                d_GW = _gradient(
                    raw_GW, start + lanes_GW, target, top, share, floor, spike, softcap, HAS_SOFTCAP, SMOOTH
                )  # fmt: skip
                tl.store(row_ptr + start + lanes_GW, d_GW, eviction_policy="evict_first")
                raw_GW = next_GW


def launch(
    *,
    logits_RV: torch.Tensor,
    targets_R: torch.Tensor,
    loss_R: torch.Tensor,
    scale: torch.Tensor | None,
    softcap: float | None,
    label_smoothing: float,
    z_loss: float,
    correct_R: torch.Tensor | None,
    config: CrossEntropyConfig,
) -> None:
    """Fill `loss_R` and `correct_R`; with a scale, replace the logits by their gradient."""
    rows, vocabulary = logits_RV.shape
    assert logits_RV.stride(1) == 1
    assert targets_R.shape == loss_R.shape == (rows,)
    assert loss_R.dtype == torch.float32
    assert scale is None or (scale.numel() == 1 and scale.dtype == torch.float32)
    assert config in CONFIGS
    if correct_R is not None and correct_R.dtype == torch.bool:
        correct_R = correct_R.view(torch.uint8)
    cross_entropy_kernel[(rows,)](
        logits_ptr=logits_RV,
        targets_ptr=targets_R,
        loss_ptr=loss_R,
        scale_ptr=scale,
        correct_ptr=correct_R,
        row_stride=logits_RV.stride(0),
        V=vocabulary,
        softcap=1.0 if softcap is None else softcap,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        GRADIENT=scale is not None,
        HAS_SOFTCAP=softcap is not None,
        SMOOTH=label_smoothing > 0.0,
        CORRECT=correct_R is not None,
        GROUPS=config.groups(),
        WIDTH=16 // logits_RV.element_size(),
        num_warps=config.warps,
        num_stages=1,
    )
