"""Short convolution with SiLU in Triton: a program walks down some rows of a few hundred channels.

The last inputs stay in registers, so that each number is read once, but for three rows between two programs. In the
backward pass a row's gradient is complete three rows later. Sums are taken in fp32, the nearest tap first. Row offsets
are int64: T times a row's stride may pass 2^31. Launchers assert and never allocate.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

ROWS, COLUMNS, WARPS = 32, 512, 4
BACKWARD_ROWS = 64


@triton.jit
def _row(pointer, row, stride, column, inside):
    return tl.load(pointer + row.to(tl.int64) * stride + column, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _taps(weight_ptr, column, H, TAPS: tl.constexpr):
    """Return the weights of a row and of the three before it; 0 where there is no tap."""
    own = weight_ptr + column * TAPS + TAPS - 1
    inside = column < H
    w0 = tl.load(own, mask=inside, other=0.0).to(tl.float32)
    w1 = tl.load(own - 1, mask=inside & (TAPS > 1), other=0.0).to(tl.float32)
    w2 = tl.load(own - 2, mask=inside & (TAPS > 2), other=0.0).to(tl.float32)
    w3 = tl.load(own - 3, mask=inside & (TAPS > 3), other=0.0).to(tl.float32)
    return w0, w1, w2, w3


@triton.jit
def _convolved(x0, x1, x2, x3, w0, w1, w2, w3, reach, TYPE: tl.constexpr):
    """Return the sum over the last `reach` + 1 inputs, at most four, rounded to the tensors' type, in fp32."""
    total = x0 * w0
    total += tl.where(reach >= 1, x1 * w1, 0.0)
    total += tl.where(reach >= 2, x2 * w2, 0.0)
    total += tl.where(reach >= 3, x3 * w3, 0.0)
    return total.to(TYPE).to(tl.float32)


@triton.jit(do_not_specialize=["T"])
def conv_silu_forward_kernel(
    x_ptr,  # [T, H]
    weight_ptr,  # [H, TAPS]
    start_ptr,  # [T] int32
    y_ptr,  # [T, H]
    T,
    H,
    x_stride,
    y_stride,
    TAPS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute some rows of some channels."""
    TYPE: tl.constexpr = y_ptr.dtype.element_ty
    column_tiles = tl.cdiv(H, COLUMNS)
    first = (tl.program_id(0) // column_tiles) * ROWS
    column = (tl.program_id(0) % column_tiles) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < H
    w0, w1, w2, w3 = _taps(weight_ptr, column, H, TAPS)
    x1 = _row(x_ptr, first - 1, x_stride, column, inside & (first >= 1))
    x2 = _row(x_ptr, first - 2, x_stride, column, inside & (first >= 2))
    x3 = _row(x_ptr, first - 3, x_stride, column, inside & (first >= 3))
    for passed in range(0, tl.minimum(ROWS, T - first)):
        row = first + passed
        x0 = _row(x_ptr, row, x_stride, column, inside)
        c = _convolved(x0, x1, x2, x3, w0, w1, w2, w3, row - tl.load(start_ptr + row), TYPE)
        y = c * tl.sigmoid(c)
        tl.store(y_ptr + row.to(tl.int64) * y_stride + column, y.to(TYPE), mask=inside)
        x3 = x2
        x2 = x1
        x1 = x0


@triton.jit(do_not_specialize=["T"])
def conv_silu_backward_kernel(
    dy_ptr,  # [T, H]
    x_ptr,  # [T, H]
    weight_ptr,  # [H, TAPS]
    start_ptr,  # [T] int32
    dx_ptr,  # [T, H]
    T,
    H,
    dy_stride,
    x_stride,
    dx_stride,
    TAPS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute the gradient of some rows of some channels."""
    TYPE: tl.constexpr = dx_ptr.dtype.element_ty
    column_tiles = tl.cdiv(H, COLUMNS)
    first = (tl.program_id(0) // column_tiles) * ROWS
    column = (tl.program_id(0) % column_tiles) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < H
    w0, w1, w2, w3 = _taps(weight_ptr, column, H, TAPS)
    x1 = _row(x_ptr, first - 1, x_stride, column, inside & (first >= 1))
    x2 = _row(x_ptr, first - 2, x_stride, column, inside & (first >= 2))
    x3 = _row(x_ptr, first - 3, x_stride, column, inside & (first >= 3))
    dx1 = tl.zeros([COLUMNS], tl.float32)
    dx2 = tl.zeros([COLUMNS], tl.float32)
    dx3 = tl.zeros([COLUMNS], tl.float32)
    for passed in range(0, ROWS + 3):
        row = first + passed
        exists = inside & (row < T)
        reach = row - tl.load(start_ptr + row, mask=row < T, other=0)
        x0 = _row(x_ptr, row, x_stride, column, exists)
        c = _convolved(x0, x1, x2, x3, w0, w1, w2, w3, reach, TYPE)
        gate = tl.sigmoid(c)
        dc = _row(dy_ptr, row, dy_stride, column, exists) * gate * (1.0 + c * (1.0 - gate))
        dc = dc.to(TYPE).to(tl.float32)
        done = dx3 + tl.where(reach >= 3, dc * w3, 0.0)
        earlier = row - 3
        kept = inside & (earlier >= first) & (earlier < T)
        tl.store(dx_ptr + earlier.to(tl.int64) * dx_stride + column, done.to(TYPE), mask=kept)
        dx3 = dx2 + tl.where(reach >= 2, dc * w2, 0.0)
        dx2 = dx1 + tl.where(reach >= 1, dc * w1, 0.0)
        dx1 = dc * w0
        x3 = x2
        x2 = x1
        x1 = x0


@triton.jit
def conv_silu_step_kernel(
    x_ptr,  # [B, H]
    earlier_ptr,  # [B, TAPS - 1, H]
    weight_ptr,  # [H, TAPS]
    y_ptr,  # [B, H]
    H,
    x_stride,
    y_stride,
    TAPS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Convolve some channels of a row's newest token, and let the earlier ones move up by one."""
    TYPE: tl.constexpr = y_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < H
    newer = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + column * TAPS + TAPS - 1, mask=inside, other=0.0)
    total = newer.to(tl.float32) * weight.to(tl.float32)
    for distance in tl.static_range(1, TAPS):
        place = earlier_ptr + (row * (TAPS - 1) + TAPS - 1 - distance) * H + column
        older = tl.load(place, mask=inside, other=0.0)
        tl.store(place, newer, mask=inside)
        weight = tl.load(weight_ptr + column * TAPS + TAPS - 1 - distance, mask=inside, other=0.0)
        total += older.to(tl.float32) * weight.to(tl.float32)
        newer = older
    c = total.to(TYPE).to(tl.float32)
    tl.store(y_ptr + row * y_stride + column, (c * tl.sigmoid(c)).to(TYPE), mask=inside)


def launch_forward(
    *, x_TH: torch.Tensor, weight_HL: torch.Tensor, start_T: torch.Tensor, y_TH: torch.Tensor
) -> None:
    """Fill `y_TH`."""
    rows, channels = x_TH.shape
    assert weight_HL.is_contiguous()
    conv_silu_forward_kernel[_grid(rows, channels, ROWS)](
        x_ptr=x_TH,
        weight_ptr=weight_HL,
        start_ptr=start_T,
        y_ptr=y_TH,
        T=rows,
        H=channels,
        x_stride=x_TH.stride(0),
        y_stride=y_TH.stride(0),
        TAPS=weight_HL.shape[1],
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=WARPS,
    )


def launch_backward(
    *,
    dy_TH: torch.Tensor,
    x_TH: torch.Tensor,
    weight_HL: torch.Tensor,
    start_T: torch.Tensor,
    dx_TH: torch.Tensor,
) -> None:
    """Fill `dx_TH`."""
    rows, channels = x_TH.shape
    assert weight_HL.is_contiguous()
    conv_silu_backward_kernel[_grid(rows, channels, BACKWARD_ROWS)](
        dy_ptr=dy_TH,
        x_ptr=x_TH,
        weight_ptr=weight_HL,
        start_ptr=start_T,
        dx_ptr=dx_TH,
        T=rows,
        H=channels,
        dy_stride=dy_TH.stride(0),
        x_stride=x_TH.stride(0),
        dx_stride=dx_TH.stride(0),
        TAPS=weight_HL.shape[1],
        ROWS=BACKWARD_ROWS,
        COLUMNS=COLUMNS,
        num_warps=WARPS,
    )


def launch_step(
    *, x_BH: torch.Tensor, earlier_BPH: torch.Tensor, weight_HL: torch.Tensor, y_BH: torch.Tensor
) -> None:
    """Fill `y_BH` and let `earlier_BPH` move up by one."""
    rows, channels = x_BH.shape
    assert weight_HL.is_contiguous()
    assert earlier_BPH.is_contiguous()
    conv_silu_step_kernel[rows, triton.cdiv(channels, COLUMNS)](
        x_ptr=x_BH,
        earlier_ptr=earlier_BPH,
        weight_ptr=weight_HL,
        y_ptr=y_BH,
        H=channels,
        x_stride=x_BH.stride(0),
        y_stride=y_BH.stride(0),
        TAPS=weight_HL.shape[1],
        COLUMNS=COLUMNS,
        num_warps=WARPS,
    )


def _grid(rows: int, channels: int, tile_rows: int) -> tuple[int]:
    return (triton.cdiv(rows, tile_rows) * triton.cdiv(channels, COLUMNS),)
