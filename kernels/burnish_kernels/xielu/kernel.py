"""xIELU in Triton: flat tiles of a few rows, computed in fp32, everything read and written once.

Every element is read and written by the same program, and read before it is written: outputs may be inputs. Launchers
assert and never allocate. Row offsets are int64: T·I passes 2^31 at 100,000 tokens of an 8B model.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

ROWS, COLUMNS, WARPS = 2, 512, 4
"""Tile of a program: 8 elements a thread, so 16 bytes of each tensor; 512 divides most intermediate sizes."""


@triton.jit
def _expm1(x):
    """Return exp(x) - 1 for x up to 0, fp32; near 0 by its series, since the difference would cancel."""
    series = 1.0 + x * (0.5 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720 + x * (1 / 5040 + x / 40320))))))
    return tl.where(x > -0.5, x * series, tl.exp(x) - 1.0)


@triton.jit
def _activated(x, square, exponential, beta, eps):
    """Return the activation of x, fp32."""
    below = exponential * (_expm1(tl.minimum(x, eps)) - x)
    return tl.where(x > 0, square * x * x, below) + beta * x


@triton.jit
def _tile(T, size, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return rows and columns of the program's tile, and which of its elements exist."""
    column_tiles = tl.cdiv(size, COLUMNS)
    row = (tl.program_id(0) // column_tiles) * ROWS + tl.arange(0, ROWS)[:, None]
    column = (tl.program_id(0) % column_tiles) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return row.to(tl.int64), column, (row < T) & (column < size)


@triton.jit
def _constants(constants_ptr):
    """Load the factors of the square and of the exponential, beta and eps."""
    return tl.load(constants_ptr), tl.load(constants_ptr + 1), tl.load(constants_ptr + 2), tl.load(constants_ptr + 3)


@triton.jit(do_not_specialize=["T"])
def xielu_forward_kernel(
    x_ptr,  # [T, I]
    constants_ptr,  # [4] fp32
    act_ptr,  # [T, I]
    T,
    size,
    x_stride,
    act_stride,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute one tile of the activation."""
    row, column, inside = _tile(T, size, ROWS, COLUMNS)
    square, exponential, beta, eps = _constants(constants_ptr)
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    act = _activated(x, square, exponential, beta, eps)
    tl.store(act_ptr + row * act_stride + column, act.to(act_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["T"])
def xielu_backward_kernel(
    dact_ptr,  # [T, I]
    x_ptr,  # [T, I]
    constants_ptr,  # [4] fp32
    dx_ptr,  # [T, I]
    act_ptr,  # [T, I], written only with HAS_ACT
    T,
    size,
    dact_stride,
    x_stride,
    dx_stride,
    act_stride,
    HAS_ACT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute one tile of the input's gradient, and with HAS_ACT of the activation again."""
    row, column, inside = _tile(T, size, ROWS, COLUMNS)
    square, exponential, beta, eps = _constants(constants_ptr)
    dact = tl.load(dact_ptr + row * dact_stride + column, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    rising = tl.where(x < eps, _expm1(tl.minimum(x, 0.0)), -1.0)
    dx = dact * (tl.where(x > 0, 2.0 * square * x, exponential * rising) + beta)
    tl.store(dx_ptr + row * dx_stride + column, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    if HAS_ACT:
        act = _activated(x, square, exponential, beta, eps)
        tl.store(act_ptr + row * act_stride + column, act.to(act_ptr.dtype.element_ty), mask=inside)


def launch_forward(x_TI: torch.Tensor, constants_4: torch.Tensor, act_TI: torch.Tensor) -> None:
    """Fill `act_TI`."""
    rows, size = act_TI.shape
    assert x_TI.shape == (rows, size)
    xielu_forward_kernel[_grid(rows, size)](
        x_ptr=x_TI,
        constants_ptr=constants_4,
        act_ptr=act_TI,
        T=rows,
        size=size,
        x_stride=x_TI.stride(0),
        act_stride=act_TI.stride(0),
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=WARPS,
    )


def launch_backward(
    dact_TI: torch.Tensor,
    x_TI: torch.Tensor,
    constants_4: torch.Tensor,
    dx_TI: torch.Tensor,
    act_TI: torch.Tensor | None,
) -> None:
    """Fill `dx_TI` and, if given, `act_TI`."""
    rows, size = dact_TI.shape
    assert x_TI.shape == dx_TI.shape == (rows, size)
    assert act_TI is None or act_TI.shape == dact_TI.shape
    xielu_backward_kernel[_grid(rows, size)](
        dact_ptr=dact_TI,
        x_ptr=x_TI,
        constants_ptr=constants_4,
        dx_ptr=dx_TI,
        act_ptr=act_TI,
        T=rows,
        size=size,
        dact_stride=dact_TI.stride(0),
        x_stride=x_TI.stride(0),
        dx_stride=dx_TI.stride(0),
        act_stride=(dact_TI if act_TI is None else act_TI).stride(0),
        HAS_ACT=act_TI is not None,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=WARPS,
    )


def _grid(rows: int, size: int) -> tuple[int]:
    """Return a one-dimensional grid, because a second dimension ends at 65,535; neighbors are adjacent in memory."""
    return (triton.cdiv(rows, ROWS) * triton.cdiv(size, COLUMNS),)
