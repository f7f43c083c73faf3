"""Gated short convolution in Triton: tiles of some rows and channels. Launchers assert and never allocate.

A tile reads the few rows before it (in the backward pass also those after it) once more, from the cache. Each product
is rounded to the tensors' type as in the reference, and the taps are summed in fp32, the nearest first. Row offsets are
int64: T times a row's stride may pass 2^31.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

ROWS, COLUMNS = 32, 64
FORWARD_WARPS, BACKWARD_WARPS = 4, 8


@triton.jit
def _product(first_ptr, second_ptr, offsets, inside):
    """Load two tensors and return their product, rounded to their type, in fp32."""
    first = tl.load(first_ptr + offsets, mask=inside, other=0.0)
    second = tl.load(second_ptr + offsets, mask=inside, other=0.0)
    return (first.to(tl.float32) * second.to(tl.float32)).to(first.dtype).to(tl.float32)


@triton.jit
def _convolved(
    bcx_ptr, weight_ptr, bias_ptr, row, column, start, inside, H, bcx_stride, HAS_BIAS: tl.constexpr, TAPS: tl.constexpr
):
    """Return the convolution of B x at a tile, rounded to the tensors' type, in fp32."""
    total = tl.zeros(inside.shape, tl.float32)
    for distance in tl.static_range(TAPS):
        reached = inside & (row - distance >= start)
        u = _product(bcx_ptr, bcx_ptr + 2 * H, (row - distance).to(tl.int64) * bcx_stride + column, reached)
        weight = tl.load(weight_ptr + column * TAPS + (TAPS - 1 - distance), mask=column < H, other=0.0)
        total += u * weight.to(tl.float32)
    if HAS_BIAS:
        total += tl.load(bias_ptr + column, mask=column < H, other=0.0).to(tl.float32)
    return total.to(bcx_ptr.dtype.element_ty).to(tl.float32)


@triton.jit(do_not_specialize=["T"])
def short_conv_forward_kernel(
    bcx_ptr,  # [T, 3H]
    weight_ptr,  # [H, TAPS]
    bias_ptr,  # [H], read only with HAS_BIAS
    start_ptr,  # [T] int32
    y_ptr,  # [T, H]
    T,
    H,
    bcx_stride,
    y_stride,
    HAS_BIAS: tl.constexpr,
    TAPS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute one tile of the output."""
    column_tiles = tl.cdiv(H, COLUMNS)
    row = (tl.program_id(0) // column_tiles) * ROWS + tl.arange(0, ROWS)[:, None]
    column = (tl.program_id(0) % column_tiles) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < T) & (column < H)
    start = tl.load(start_ptr + row, mask=row < T, other=0)
    convolved = _convolved(bcx_ptr, weight_ptr, bias_ptr, row, column, start, inside, H, bcx_stride, HAS_BIAS, TAPS)
    row = row.to(tl.int64)
    c = tl.load(bcx_ptr + H + row * bcx_stride + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * y_stride + column, (c * convolved).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["T"])
def short_conv_backward_kernel(
    dy_ptr,  # [T, H]
    bcx_ptr,  # [T, 3H]
    weight_ptr,  # [H, TAPS]
    bias_ptr,  # [H], read only with HAS_BIAS
    start_ptr,  # [T] int32
    end_ptr,  # [T] int32
    dbcx_ptr,  # [T, 3H]
    T,
    H,
    dy_stride,
    bcx_stride,
    dbcx_stride,
    HAS_BIAS: tl.constexpr,
    TAPS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute one tile of the gradients of B, C and x."""
    TYPE: tl.constexpr = dbcx_ptr.dtype.element_ty
    column_tiles = tl.cdiv(H, COLUMNS)
    row = (tl.program_id(0) // column_tiles) * ROWS + tl.arange(0, ROWS)[:, None]
    column = (tl.program_id(0) % column_tiles) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < T) & (column < H)
    start = tl.load(start_ptr + row, mask=row < T, other=0)
    end = tl.load(end_ptr + row, mask=row < T, other=0)
    du = tl.zeros(inside.shape, tl.float32)
    for distance in tl.static_range(TAPS):
        reached = inside & (row + distance < end)
        later = (row + distance).to(tl.int64)
        dy = tl.load(dy_ptr + later * dy_stride + column, mask=reached, other=0.0).to(tl.float32)
        c = tl.load(bcx_ptr + H + later * bcx_stride + column, mask=reached, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + column * TAPS + (TAPS - 1 - distance), mask=column < H, other=0.0)
        du += (dy * c).to(TYPE).to(tl.float32) * weight.to(tl.float32)
    du = du.to(TYPE).to(tl.float32)
    convolved = _convolved(bcx_ptr, weight_ptr, bias_ptr, row, column, start, inside, H, bcx_stride, HAS_BIAS, TAPS)
    row = row.to(tl.int64)
    dy = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
    offsets = row * bcx_stride + column
    b = tl.load(bcx_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(bcx_ptr + 2 * H + offsets, mask=inside, other=0.0).to(tl.float32)
    offsets = row * dbcx_stride + column
    tl.store(dbcx_ptr + offsets, (du * x).to(TYPE), mask=inside)
    tl.store(dbcx_ptr + H + offsets, (dy * convolved).to(TYPE), mask=inside)
    tl.store(dbcx_ptr + 2 * H + offsets, (du * b).to(TYPE), mask=inside)


def launch_forward(
    *,
    bcx_TC: torch.Tensor,
    weight_HL: torch.Tensor,
    bias_H: torch.Tensor | None,
    start_T: torch.Tensor,
    y_TH: torch.Tensor,
) -> None:
    """Fill `y_TH`."""
    rows, channels = y_TH.shape
    assert bcx_TC.shape == (rows, 3 * channels)
    assert weight_HL.is_contiguous()
    short_conv_forward_kernel[_grid(rows, channels)](
        bcx_ptr=bcx_TC,
        weight_ptr=weight_HL,
        bias_ptr=bias_H,
        start_ptr=start_T,
        y_ptr=y_TH,
        T=rows,
        H=channels,
        bcx_stride=bcx_TC.stride(0),
        y_stride=y_TH.stride(0),
        HAS_BIAS=bias_H is not None,
        TAPS=weight_HL.shape[1],
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=FORWARD_WARPS,
    )


def launch_backward(
    *,
    dy_TH: torch.Tensor,
    bcx_TC: torch.Tensor,
    weight_HL: torch.Tensor,
    bias_H: torch.Tensor | None,
    start_T: torch.Tensor,
    end_T: torch.Tensor,
    dbcx_TC: torch.Tensor,
) -> None:
    """Fill `dbcx_TC`."""
    rows, channels = dy_TH.shape
    assert bcx_TC.shape == dbcx_TC.shape == (rows, 3 * channels)
    assert weight_HL.is_contiguous()
    short_conv_backward_kernel[_grid(rows, channels)](
        dy_ptr=dy_TH,
        bcx_ptr=bcx_TC,
        weight_ptr=weight_HL,
        bias_ptr=bias_H,
        start_ptr=start_T,
        end_ptr=end_T,
        dbcx_ptr=dbcx_TC,
        T=rows,
        H=channels,
        dy_stride=dy_TH.stride(0),
        bcx_stride=bcx_TC.stride(0),
        dbcx_stride=dbcx_TC.stride(0),
        HAS_BIAS=bias_H is not None,
        TAPS=weight_HL.shape[1],
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=BACKWARD_WARPS,
    )


def _grid(rows: int, channels: int) -> tuple[int]:
    return (triton.cdiv(rows, ROWS) * triton.cdiv(channels, COLUMNS),)
