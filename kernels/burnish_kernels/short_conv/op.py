"""Gated short convolution: validate, allocate, choose. Triton on CUDA (or in its interpreter), the reference elsewhere.

`forward` and `backward` know nothing of autograd; the weights are frozen, so that they get no gradient.

Rows may be strided; the last dimension is contiguous. Shapes: T rows (tokens), H channels, C = 3H (B, C, x), L taps.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.short_conv import reference

MOST_TAPS = 16


def forward(
    bcx_TC: torch.Tensor,
    weight_HL: torch.Tensor,
    start_T: torch.Tensor,
    *,
    bias_H: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute C (w * (B x) + bias), where the convolution w * reaches back to the start of a token's document.

    Args:
        bcx_TC: input `[T, 3H]`, fp32, fp16 or bf16: B, C and x.
        weight_HL: taps `[H, L]`, the last one for the token itself; contiguous.
        start_T: first row of each row's document, int32 `[T]`.
        bias_H: bias of the convolution, or None.
        out: tensor `[T, H]` to write the result to; no part of the input.

    Returns:
        The result `[T, H]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _validate(bcx_TC, weight_HL, bias_H, {"start": start_T}, narrow={"out": out})
    y_TH = bcx_TC.new_empty(len(bcx_TC), len(weight_HL)) if out is None else out
    if not use_kernels(bcx_TC):
        return y_TH.copy_(reference.forward(bcx_TC, weight_HL, bias_H, start_T))
    from burnish_kernels.short_conv.kernel import launch_forward

    if y_TH.numel():
        launch_forward(bcx_TC=bcx_TC, weight_HL=weight_HL, bias_H=bias_H, start_T=start_T, y_TH=y_TH)
    return y_TH


def backward(
    dy_TH: torch.Tensor,
    bcx_TC: torch.Tensor,
    weight_HL: torch.Tensor,
    start_T: torch.Tensor,
    end_T: torch.Tensor,
    *,
    bias_H: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the gradient of B, C and x.

    Args:
        dy_TH: gradient `[T, H]` of the result.
        bcx_TC: input `[T, 3H]` given to `forward`.
        weight_HL: same as in `forward`.
        start_T: same as in `forward`.
        end_T: one past the last row of each row's document, int32 `[T]`.
        bias_H: same as in `forward`.
        out: tensor `[T, 3H]` to write the gradient to; no part of the inputs.

    Returns:
        The gradient `[T, 3H]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _validate(
        bcx_TC, weight_HL, bias_H, {"start": start_T, "end": end_T}, narrow={"dy": dy_TH}, wide={"out": out}
    )  # fmt: skip
    dbcx_TC = torch.empty_like(bcx_TC, memory_format=torch.contiguous_format) if out is None else out
    if not use_kernels(bcx_TC):
        return dbcx_TC.copy_(reference.backward(dy_TH, bcx_TC, weight_HL, bias_H, start_T))
    from burnish_kernels.short_conv.kernel import launch_backward

    if dbcx_TC.numel():
        launch_backward(
            dy_TH=dy_TH,
            bcx_TC=bcx_TC,
            weight_HL=weight_HL,
            bias_H=bias_H,
            start_T=start_T,
            end_T=end_T,
            dbcx_TC=dbcx_TC,
        )
    return dbcx_TC


def _validate(
    bcx_TC: torch.Tensor,
    weight_HL: torch.Tensor,
    bias_H: torch.Tensor | None,
    edges: dict[str, torch.Tensor],
    *,
    narrow: dict[str, torch.Tensor | None],
    wide: dict[str, torch.Tensor | None] | None = None,
) -> None:
    """Check the operands: `edges` are `[T]`, `narrow` is `[T, H]`, `wide` is `[T, 3H]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    if bcx_TC.ndim != 2 or bcx_TC.shape[1] % 3 or not bcx_TC.shape[1]:
        raise ValueError(f"bcx must be [T, 3H], not {tuple(bcx_TC.shape)}")
    if bcx_TC.dtype not in {torch.float32, torch.float16, torch.bfloat16} and use_kernels(bcx_TC):
        raise ValueError(f"bcx must be fp32, fp16 or bf16, not {bcx_TC.dtype}")
    rows, width = bcx_TC.shape
    channels = width // 3
    if weight_HL.ndim != 2 or len(weight_HL) != channels or not 0 < weight_HL.shape[1] <= MOST_TAPS:
        raise ValueError(f"the weight must be [{channels}, 1 to {MOST_TAPS} taps], not {tuple(weight_HL.shape)}")
    if not weight_HL.is_contiguous():
        raise ValueError("the weight must be contiguous")
    if bias_H is not None and bias_H.shape != (channels,):
        raise ValueError(f"the bias must be [{channels}], not {tuple(bias_H.shape)}")
    for name, edge in edges.items():
        if edge.shape != (rows,) or edge.dtype != torch.int32:
            raise ValueError(f"{name} must be [{rows}] int32, not {tuple(edge.shape)} {edge.dtype}")
    sized = [(name, tensor, channels) for name, tensor in narrow.items()]
    sized += [(name, tensor, width) for name, tensor in {"bcx": bcx_TC, **(wide or {})}.items()]
    for name, found, columns in sized:
        if found is None:
            continue
        if found.shape != (rows, columns) or found.dtype != bcx_TC.dtype:
            raise ValueError(f"{name} must be {(rows, columns)} {bcx_TC.dtype}, not {tuple(found.shape)} {found.dtype}")
        if found.stride(1) != 1 and columns > 1 and rows:
            raise ValueError(f"each row of {name} must be contiguous")
