"""RMSNorm as an autograd operation: validate, allocate, launch. CUDA tensors use the kernel, others the reference."""

from __future__ import annotations

import os
from typing import Any

import torch

from burnish_kernels.rms_norm import reference

MAX_HIDDEN = 65536  # one row must fit one program's registers


def rms_norm(
    x_NH: torch.Tensor,
    weight_H: torch.Tensor,
    *,
    eps: float,
    residual_NH: torch.Tensor | None = None,
    one_plus_weight: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add the residual, if any, and normalize each row.

    Args:
        x_NH: `[N, H]`, fp32, fp16 or bf16, contiguous.
        weight_H: `[H]`, the same dtype; frozen.
        eps: Added to the mean square.
        residual_NH: `[N, H]`, added to x before the norm.
        one_plus_weight: Scale by 1 + weight (Gemma) and round once.

    Returns:
        The normalized rows and the sum that was normalized (x itself without a residual), both `[N, H]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit, or the weight asks for a gradient.
    """
    _validate(x_NH, weight_H, residual_NH)
    if x_NH.is_cuda or os.environ.get("TRITON_INTERPRET") == "1":
        y_NH, sum_NH = _RmsNorm.apply(x_NH, weight_H, residual_NH, eps, one_plus_weight)
        return y_NH, x_NH if residual_NH is None else sum_NH
    return reference.rms_norm(x_NH, weight_H, eps=eps, residual_NH=residual_NH, one_plus_weight=one_plus_weight)


def _validate(x_NH: torch.Tensor, weight_H: torch.Tensor, residual_NH: torch.Tensor | None) -> None:
    if x_NH.ndim != 2 or not 1 <= x_NH.shape[1] <= MAX_HIDDEN:
        raise ValueError(f"x must be [N, H] with H up to {MAX_HIDDEN}, not {tuple(x_NH.shape)}")
    if weight_H.shape != x_NH.shape[1:] or weight_H.dtype != x_NH.dtype:
        raise ValueError(f"weight must be [{x_NH.shape[1]}] {x_NH.dtype}, not {tuple(weight_H.shape)} {weight_H.dtype}")
    if weight_H.requires_grad:
        raise ValueError("the weight is frozen here; it must not ask for a gradient")
    if residual_NH is not None and (residual_NH.shape != x_NH.shape or residual_NH.dtype != x_NH.dtype):
        raise ValueError(f"residual must be {tuple(x_NH.shape)} {x_NH.dtype}")
    for tensor in (x_NH, weight_H, residual_NH):
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError("tensors must be contiguous")


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_NH: torch.Tensor,
        weight_H: torch.Tensor,
        residual_NH: torch.Tensor | None,
        eps: float,
        one_plus_weight: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        from burnish_kernels.rms_norm.kernel import launch_forward

        y_NH = torch.empty_like(x_NH)
        sum_NH = x_NH if residual_NH is None else torch.empty_like(x_NH)
        inverse_N = torch.empty(x_NH.shape[0], dtype=torch.float32, device=x_NH.device)
        if x_NH.shape[0]:
            launch_forward(x_NH, residual_NH, weight_H, y_NH, sum_NH, inverse_N, eps, one_plus_weight)
        ctx.save_for_backward(sum_NH, weight_H, inverse_N)
        ctx.one_plus_weight, ctx.has_residual = one_plus_weight, residual_NH is not None
        if residual_NH is None:
            return y_NH, y_NH.new_empty(0)
        return y_NH, sum_NH

    @staticmethod
    def backward(ctx: Any, dy_NH: torch.Tensor, dsum_NH: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        from burnish_kernels.rms_norm.kernel import launch_backward

        sum_NH, weight_H, inverse_N = ctx.saved_tensors
        dx_NH = torch.empty_like(sum_NH)
        if dx_NH.shape[0]:
            other = dsum_NH.contiguous() if ctx.has_residual else None
            launch_backward(dy_NH.contiguous(), other, sum_NH, weight_H, inverse_N, dx_NH, ctx.one_plus_weight)
        return dx_NH, None, dx_NH if ctx.has_residual else None, None, None
