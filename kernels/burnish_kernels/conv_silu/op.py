"""Short convolution with SiLU: validate, allocate, choose. Triton on CUDA (or in its interpreter), or the reference.

`forward` and `backward` know nothing of autograd; the weights are frozen, so that they get no gradient.

Rows may be strided; the last dimension is contiguous. Shapes: T rows (tokens), B rows (replies), H channels, L taps,
P = L - 1 earlier tokens.
"""

from __future__ import annotations

import torch

from burnish_kernels.conv_silu import reference
from burnish_kernels.dispatch import use_kernels

MOST_TAPS = 4
"""Most taps that the kernels are made for; published models have 4."""


def forward(
    x_TH: torch.Tensor, weight_HL: torch.Tensor, start_T: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute silu(w * x), where the convolution w * reaches back to the start of a token's document.

    Args:
        x_TH: input `[T, H]`, fp32, fp16 or bf16.
        weight_HL: taps `[H, L]`, the last one for the token itself; contiguous.
        start_T: first row of each row's document, int32 `[T]`.
        out: tensor `[T, H]` to write the result to; no part of the input.

    Returns:
        The result `[T, H]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _validate(x_TH, weight_HL, {"out": out}, start_T)
    y_TH = torch.empty_like(x_TH, memory_format=torch.contiguous_format) if out is None else out
    if not use_kernels(x_TH):
        return y_TH.copy_(reference.forward(x_TH, weight_HL, start_T))
    from burnish_kernels.conv_silu.kernel import launch_forward

    if y_TH.numel():
        launch_forward(x_TH=x_TH, weight_HL=weight_HL, start_T=start_T, y_TH=y_TH)
    return y_TH


def backward(
    dy_TH: torch.Tensor,
    x_TH: torch.Tensor,
    weight_HL: torch.Tensor,
    start_T: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the gradient of x.

    Args:
        dy_TH: gradient `[T, H]` of the result.
        x_TH: input `[T, H]` given to `forward`.
        weight_HL: same as in `forward`.
        start_T: same as in `forward`.
        out: tensor `[T, H]` to write the gradient to; no part of the inputs.

    Returns:
        The gradient `[T, H]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _validate(x_TH, weight_HL, {"dy": dy_TH, "out": out}, start_T)
    dx_TH = torch.empty_like(x_TH, memory_format=torch.contiguous_format) if out is None else out
    if not use_kernels(x_TH):
        return dx_TH.copy_(reference.backward(dy_TH, x_TH, weight_HL, start_T))
    from burnish_kernels.conv_silu.kernel import launch_backward

    if dx_TH.numel():
        launch_backward(dy_TH=dy_TH, x_TH=x_TH, weight_HL=weight_HL, start_T=start_T, dx_TH=dx_TH)
    return dx_TH


def step(
    x_BH: torch.Tensor, earlier_BPH: torch.Tensor, weight_HL: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute silu(w * x) for each row's newest token, and move it into the row's earlier tokens.

    Args:
        x_BH: newest input of each row `[B, H]`.
        earlier_BPH: inputs of each row's last tokens `[B, L - 1, H]`, the newest last, zeros before a row's first
            token; contiguous; changed.
        weight_HL: same as in `forward`.
        out: tensor `[B, H]` to write the result to; no part of the inputs.

    Returns:
        The result `[B, H]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _validate(x_BH, weight_HL, {"out": out})
    shape = (len(x_BH), weight_HL.shape[1] - 1, x_BH.shape[1])
    if earlier_BPH.shape != shape or earlier_BPH.dtype != x_BH.dtype or not earlier_BPH.is_contiguous():
        raise ValueError(f"earlier must be {shape} {x_BH.dtype}, contiguous, not {tuple(earlier_BPH.shape)}")
    y_BH = torch.empty_like(x_BH, memory_format=torch.contiguous_format) if out is None else out
    if not use_kernels(x_BH):
        return y_BH.copy_(reference.step(x_BH, earlier_BPH, weight_HL))
    from burnish_kernels.conv_silu.kernel import launch_step

    if y_BH.numel():
        launch_step(x_BH=x_BH, earlier_BPH=earlier_BPH, weight_HL=weight_HL, y_BH=y_BH)
    return y_BH


def _validate(
    x_TH: torch.Tensor,
    weight_HL: torch.Tensor,
    others: dict[str, torch.Tensor | None],
    start_T: torch.Tensor | None = None,
) -> None:
    """Check the operands; `others` are like x.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    if x_TH.ndim != 2 or not x_TH.shape[1]:
        raise ValueError(f"x must be [T, H], not {tuple(x_TH.shape)}")
    if x_TH.dtype not in {torch.float32, torch.float16, torch.bfloat16} and use_kernels(x_TH):
        raise ValueError(f"x must be fp32, fp16 or bf16, not {x_TH.dtype}")
    rows, channels = x_TH.shape
    if weight_HL.ndim != 2 or len(weight_HL) != channels or not 0 < weight_HL.shape[1] <= MOST_TAPS:
        raise ValueError(f"the weight must be [{channels}, 1 to {MOST_TAPS} taps], not {tuple(weight_HL.shape)}")
    if not weight_HL.is_contiguous():
        raise ValueError("the weight must be contiguous")
    if start_T is not None and (start_T.shape != (rows,) or start_T.dtype != torch.int32):
        raise ValueError(f"start must be [{rows}] int32, not {tuple(start_T.shape)} {start_T.dtype}")
    for name, found in {"x": x_TH, **others}.items():
        if found is None:
            continue
        if found.shape != x_TH.shape or found.dtype != x_TH.dtype:
            raise ValueError(f"{name} must be {(rows, channels)} {x_TH.dtype}, not {tuple(found.shape)} {found.dtype}")
        if found.stride(1) != 1 and channels > 1 and rows:
            raise ValueError(f"each row of {name} must be contiguous")
