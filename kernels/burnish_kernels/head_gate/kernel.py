"""Gate of attention's output in Triton: a program takes some heads, each read and written once.

The unit of work is one head of one token. Every element is read and written by the same program, and read before it is
written: outputs may be inputs. Launchers assert and never allocate. Token offsets are int64.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

TILE, WARPS = 2048, 4
"""Numbers of a program's heads: 16 a thread, so twice 16 bytes of each tensor."""


@triton.jit
def _heads(ptr, token, head, token_stride, head_stride, column):
    """Return the addresses of a tile of heads."""
    return ptr + token.to(tl.int64)[:, None] * token_stride + (head * head_stride)[:, None] + column


@triton.jit(do_not_specialize=["T"])
def head_gate_forward_kernel(
    x_ptr,  # [T, N, D]
    gate_ptr,  # [T, N, G]
    y_ptr,  # [T, N, D]
    T,
    x_stride,
    gate_stride,
    gate_head_stride,
    y_stride,
    N: tl.constexpr,
    D: tl.constexpr,
    G: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Scale ROWS heads."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token, head = row // N, row % N
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (token < T)[:, None] & (column < D)
    column_of_gate = column if G == D else column * 0
    gate = tl.load(_heads(gate_ptr, token, head, gate_stride, gate_head_stride, column_of_gate), mask=inside, other=0.0)
    x = tl.load(_heads(x_ptr, token, head, x_stride, D, column), mask=inside, other=0.0).to(tl.float32)
    share = tl.sigmoid(gate.to(tl.float32)).to(y_ptr.dtype.element_ty).to(tl.float32)
    y = (x * share).to(y_ptr.dtype.element_ty)
    tl.store(_heads(y_ptr, token, head, y_stride, D, column), y, mask=inside)


@triton.jit(do_not_specialize=["T"])
def head_gate_backward_kernel(
    dy_ptr,  # [T, N, D]
    x_ptr,  # [T, N, D]
    gate_ptr,  # [T, N, G]
    dx_ptr,  # [T, N, D]
    dgate_ptr,  # [T, N, G]
    T,
    dy_stride,
    x_stride,
    gate_stride,
    gate_head_stride,
    dx_stride,
    dgate_stride,
    dgate_head_stride,
    N: tl.constexpr,
    D: tl.constexpr,
    G: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute the gradients of ROWS heads and of their logits."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token, head = row // N, row % N
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (token < T)[:, None] & (column < D)
    column_of_gate = column if G == D else column * 0
    gate = tl.load(_heads(gate_ptr, token, head, gate_stride, gate_head_stride, column_of_gate), mask=inside, other=0.0)
    x = tl.load(_heads(x_ptr, token, head, x_stride, D, column), mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(_heads(dy_ptr, token, head, dy_stride, D, column), mask=inside, other=0.0).to(tl.float32)
    share = tl.sigmoid(gate.to(tl.float32))
    dx = dy * share.to(dx_ptr.dtype.element_ty).to(tl.float32)
    dgate = dy * x * share * (1.0 - share)
    gates = _heads(dgate_ptr, token, head, dgate_stride, dgate_head_stride, column_of_gate)
    if G == D:
        tl.store(gates, dgate.to(dgate_ptr.dtype.element_ty), mask=inside)
    else:
        total = tl.sum(dgate, axis=1)[:, None] + tl.zeros_like(dgate)
        tl.store(gates, total.to(dgate_ptr.dtype.element_ty), mask=inside & (column == 0))
    tl.store(_heads(dx_ptr, token, head, dx_stride, D, column), dx.to(dx_ptr.dtype.element_ty), mask=inside)


def launch_forward(*, x_TND: torch.Tensor, gate_TNG: torch.Tensor, y_TND: torch.Tensor) -> None:
    """Fill `y_TND`."""
    assert x_TND.shape == y_TND.shape
    constants = configuration(x_TND.shape[1], x_TND.shape[2], gate_TNG.shape[2])
    head_gate_forward_kernel[_grid(len(x_TND), constants)](
        x_ptr=x_TND,
        gate_ptr=gate_TNG,
        y_ptr=y_TND,
        T=len(x_TND),
        x_stride=x_TND.stride(0),
        gate_stride=gate_TNG.stride(0),
        gate_head_stride=gate_TNG.stride(1),
        y_stride=y_TND.stride(0),
        **constants,
        num_warps=WARPS,
    )


def launch_backward(
    *,
    dy_TND: torch.Tensor,
    x_TND: torch.Tensor,
    gate_TNG: torch.Tensor,
    dx_TND: torch.Tensor,
    dgate_TNG: torch.Tensor,
) -> None:
    """Fill `dx_TND` and `dgate_TNG`."""
    assert dy_TND.shape == x_TND.shape == dx_TND.shape
    assert gate_TNG.shape == dgate_TNG.shape
    constants = configuration(x_TND.shape[1], x_TND.shape[2], gate_TNG.shape[2])
    head_gate_backward_kernel[_grid(len(x_TND), constants)](
        dy_ptr=dy_TND,
        x_ptr=x_TND,
        gate_ptr=gate_TNG,
        dx_ptr=dx_TND,
        dgate_ptr=dgate_TNG,
        T=len(x_TND),
        dy_stride=dy_TND.stride(0),
        x_stride=x_TND.stride(0),
        gate_stride=gate_TNG.stride(0),
        gate_head_stride=gate_TNG.stride(1),
        dx_stride=dx_TND.stride(0),
        dgate_stride=dgate_TNG.stride(0),
        dgate_head_stride=dgate_TNG.stride(1),
        **constants,
        num_warps=WARPS,
    )


def configuration(heads: int, head_dim: int, logits: int) -> dict[str, Any]:
    """Return the constants of a launch: the same for every dtype and GPU."""
    columns = triton.next_power_of_2(head_dim)
    return {"N": heads, "D": head_dim, "G": logits, "ROWS": max(1, TILE // columns), "COLUMNS": columns}


def _grid(tokens: int, constants: dict[str, Any]) -> tuple[int]:
    return (triton.cdiv(tokens * constants["N"], constants["ROWS"]),)
