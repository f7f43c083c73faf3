"""The narrow products of the experts' adapters: validate, allocate, choose. Triton on CUDA, else the reference.

With the adapter s B_e A_e of expert e, sorted rows i of input x and output gradient dy:

    x A_eᵀ and dy s B_e     `project`, on A `[E, R, K]` and on the scaled B read as `[E, R, N]`
    dA_e = (dy s B_e)ᵀ x    `outer_accumulate`, into A's gradient
    dB_e = s dyᵀ (x A_eᵀ)   `outer_accumulate`, into B's gradient read as `[E, R, N]`

Where dy is the token's gradient times a routing weight, as behind an expert's second map, the weights are multiplied
into the narrow operand.

Shapes: T tokens, P = T·k sorted rows, C columns, R ranks, E experts.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.grouped_skinny import reference
from burnish_kernels.moe_sort.order import ExpertOrder

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def project(
    x: torch.Tensor,
    matrix_ERC: torch.Tensor,
    order: ExpertOrder,
    *,
    by_token: bool,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Multiply each sorted row with its expert's narrow matrix.

    Args:
        x: rows `[T, C]` with `by_token`, else `[P, C]`; rows may be strided.
        matrix_ERC: matrices `[E, R, C]` of x's type, any strides.
        order: rows by expert.
        by_token: whether x has a row for each token rather than for each sorted row.
        out: tensor `[P, R]` of x's type to write to, rows may be strided. Allocated if None.

    Returns:
        The products `[P, R]`.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    experts, ranks, columns = matrix_ERC.shape
    _validate_rows("x", x, order, columns, by_token=by_token)
    if experts != order.experts or matrix_ERC.dtype != x.dtype or not ranks:
        raise ValueError(f"the matrices must be [{order.experts}, R, {columns}] {x.dtype}: {tuple(matrix_ERC.shape)}")
    if out is None:
        out = x.new_empty(order.positions, ranks)
    if out.shape != (order.positions, ranks) or out.dtype != x.dtype or out.stride(1) != 1:
        raise ValueError(f"out must be {(order.positions, ranks)} {x.dtype}, not {tuple(out.shape)} {out.dtype}")
    if not use_kernels(x):
        reference.project(x, matrix_ERC, order, out, by_token=by_token)
        return out
    from burnish_kernels.grouped_skinny.kernel import launch_project

    if order.positions:
        launch_project(x, matrix_ERC, order, out, by_token=by_token)
    return out


def outer_accumulate(
    p_PR: torch.Tensor,
    q: torch.Tensor,
    order: ExpertOrder,
    out_ERC: torch.Tensor,
    *,
    by_token: bool,
    scale: float = 1.0,
    weights_Tk: torch.Tensor | None = None,
) -> None:
    """Add scale · Σ w p qᵀ over each expert's rows to its gradient, in the rows' order.

    Args:
        p_PR: narrow operand `[P, R]` in sorted order, rows may be strided.
        q: wide operand `[T, C]` with `by_token`, else `[P, C]`, of p's type; rows may be strided.
        order: rows by expert.
        out_ERC: gradients `[E, R, C]` fp32, any strides. Those of experts without rows stay as they are.
        by_token: whether q has a row for each token rather than for each sorted row.
        scale: factor of the sums.
        weights_Tk: routing weights `[T, k]` fp32 that rows are multiplied with; None: none.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    experts, ranks, columns = out_ERC.shape
    _validate_rows("q", q, order, columns, by_token=by_token)
    if p_PR.shape != (order.positions, ranks) or p_PR.dtype != q.dtype or p_PR.stride(1) != 1:
        raise ValueError(f"p must be {(order.positions, ranks)} {q.dtype}, not {tuple(p_PR.shape)} {p_PR.dtype}")
    wide = torch.promote_types(q.dtype, torch.float32)
    if experts != order.experts or out_ERC.dtype != wide:
        raise ValueError(f"gradients are fp32 of {order.experts} experts, not {tuple(out_ERC.shape)} {out_ERC.dtype}")
    shape = (order.positions // order.slots, order.slots)
    if weights_Tk is not None and (weights_Tk.shape != shape or not weights_Tk.is_contiguous()):
        raise ValueError(f"weights must be {shape} and contiguous, not {tuple(weights_Tk.shape)}")
    if not use_kernels(q):
        reference.outer_accumulate(p_PR, q, order, out_ERC, scale=scale, by_token=by_token, weights_Tk=weights_Tk)
        return
    from burnish_kernels.grouped_skinny.kernel import launch_outer

    if order.positions:
        launch_outer(p_PR, q, order, out_ERC, scale=scale, by_token=by_token, weights_Tk=weights_Tk)


def _validate_rows(name: str, rows: torch.Tensor, order: ExpertOrder, columns: int, *, by_token: bool) -> None:
    shape = (order.positions // order.slots if by_token else order.positions, columns)
    if rows.dtype not in DTYPES and use_kernels(rows):
        raise ValueError(f"{name} must be fp32, fp16 or bf16, not {rows.dtype}")
    if rows.shape != shape or rows.stride(1) != 1:
        raise ValueError(f"{name} must be {shape} with columns side by side, not {tuple(rows.shape)}")
