"""RMSNorm in Triton: one program a row, statistics in fp32, everything read and written once.

Launchers assert and never allocate. Row offsets are int64: N·H may pass 2^31.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _forward(
    x_ptr,  # [N, H]
    residual_ptr,  # [N, H], read only with HAS_RESIDUAL
    weight_ptr,  # [H]
    y_ptr,  # [N, H]
    sum_ptr,  # [N, H], written only with HAS_RESIDUAL
    inverse_ptr,  # [N] fp32
    H,
    eps,
    HAS_RESIDUAL: tl.constexpr,
    ONE_PLUS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < H
    offsets = row * H + columns
    loaded = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    x = loaded.to(tl.float32)
    if HAS_RESIDUAL:
        total = x + tl.load(residual_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
        rounded = total.to(loaded.dtype)
        tl.store(sum_ptr + offsets, rounded, mask=inside)
        x = rounded.to(tl.float32)
    inverse = tl.rsqrt(tl.sum(x * x, axis=0) / H + eps)
    tl.store(inverse_ptr + row, inverse)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    if ONE_PLUS:
        y = x * inverse * (1.0 + weight.to(tl.float32))
    else:
        y = (x * inverse).to(loaded.dtype).to(tl.float32) * weight.to(tl.float32)
    tl.store(y_ptr + offsets, y.to(loaded.dtype), mask=inside)


@triton.jit
def _backward(
    dy_ptr,  # [N, H]
    dsum_ptr,  # [N, H], gradient that reached the sum by another way; read only with HAS_DSUM
    sum_ptr,  # [N, H], what was normalized
    weight_ptr,  # [H]
    inverse_ptr,  # [N] fp32
    dx_ptr,  # [N, H]
    H,
    HAS_DSUM: tl.constexpr,
    ONE_PLUS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < H
    offsets = row * H + columns
    loaded = tl.load(dy_ptr + offsets, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    if ONE_PLUS:
        weight += 1.0
    inverse = tl.load(inverse_ptr + row)
    unit = tl.load(sum_ptr + offsets, mask=inside, other=0.0).to(tl.float32) * inverse
    scaled = loaded.to(tl.float32) * weight
    dx = inverse * (scaled - unit * (tl.sum(scaled * unit, axis=0) / H))
    if HAS_DSUM:
        dx += tl.load(dsum_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    tl.store(dx_ptr + offsets, dx.to(loaded.dtype), mask=inside)


def launch_forward(
    x_NH: torch.Tensor,
    residual_NH: torch.Tensor | None,
    weight_H: torch.Tensor,
    y_NH: torch.Tensor,
    sum_NH: torch.Tensor,
    inverse_N: torch.Tensor,
    eps: float,
    one_plus_weight: bool,
) -> None:
    """Fill `y_NH`, `inverse_N` and, with a residual, `sum_NH`."""
    rows, hidden = x_NH.shape
    assert y_NH.shape == x_NH.shape
    assert inverse_N.shape == (rows,)
    assert inverse_N.dtype == torch.float32
    block = triton.next_power_of_2(hidden)
    _forward[(rows,)](
        x_NH,
        x_NH if residual_NH is None else residual_NH,
        weight_H,
        y_NH,
        sum_NH,
        inverse_N,
        hidden,
        eps,
        HAS_RESIDUAL=residual_NH is not None,
        ONE_PLUS=one_plus_weight,
        BLOCK=block,
        num_warps=_warps(block),
    )


def launch_backward(
    dy_NH: torch.Tensor,
    dsum_NH: torch.Tensor | None,
    sum_NH: torch.Tensor,
    weight_H: torch.Tensor,
    inverse_N: torch.Tensor,
    dx_NH: torch.Tensor,
    one_plus_weight: bool,
) -> None:
    """Fill `dx_NH`, the gradient of the sum (so of x and of the residual alike)."""
    rows, hidden = sum_NH.shape
    assert dx_NH.shape == dy_NH.shape == sum_NH.shape
    block = triton.next_power_of_2(hidden)
    _backward[(rows,)](
        dy_NH,
        dy_NH if dsum_NH is None else dsum_NH,
        sum_NH,
        weight_H,
        inverse_N,
        dx_NH,
        hidden,
        HAS_DSUM=dsum_NH is not None,
        ONE_PLUS=one_plus_weight,
        BLOCK=block,
        num_warps=_warps(block),
    )


def _warps(block: int) -> int:
    return 4 if block <= 2048 else 8 if block <= 8192 else 16
