"""Gate of attention's output: validate, allocate, choose. Triton on CUDA (or in its interpreter), else the reference.

`forward` and `backward` know nothing of autograd.

Tokens may be strided, and the logits of heads too; the last dimension is contiguous. Shapes: T tokens, N heads of D
numbers, G logits of a head: 1 or D.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.head_gate import reference

MOST_SIZE = 1024
"""Largest head size."""


def forward(x_TND: torch.Tensor, gate_TNG: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Multiply heads, or their numbers, by the sigmoids of their logits.

    Args:
        x_TND: heads `[T, N, D]`, next to each other, fp32, fp16 or bf16.
        gate_TNG: logits `[T, N, G]`, in the same dtype; any strides between tokens and between heads.
        out: tensor `[T, N, D]` to write the result to; may be x itself.

    Returns:
        The result `[T, N, D]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _validate(x_TND, {"gate": gate_TNG}, {"out": out})
    y_TND = torch.empty_like(x_TND, memory_format=torch.contiguous_format) if out is None else out
    if not use_kernels(x_TND):
        return y_TND.copy_(reference.forward(x_TND, gate_TNG))
    from burnish_kernels.head_gate.kernel import launch_forward

    if y_TND.numel():
        launch_forward(x_TND=x_TND, gate_TNG=gate_TNG, y_TND=y_TND)
    return y_TND


def backward(
    dy_TND: torch.Tensor,
    x_TND: torch.Tensor,
    gate_TNG: torch.Tensor,
    *,
    dx_out: torch.Tensor | None = None,
    dgate_out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gradients of heads and logits.

    Args:
        dy_TND: gradient `[T, N, D]` of the result.
        x_TND: same as in `forward`.
        gate_TNG: same as in `forward`.
        dx_out: tensor `[T, N, D]` to write the gradient of the heads to; may be `dy_TND` or `x_TND` itself.
        dgate_out: tensor `[T, N, G]` to write the gradient of the logits to; may be `gate_TNG` itself.

    Returns:
        The gradients of the heads `[T, N, D]` and of the logits `[T, N, G]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _validate(x_TND, {"gate": gate_TNG, "dgate_out": dgate_out}, {"dy": dy_TND, "dx_out": dx_out})
    dx_TND = torch.empty_like(x_TND, memory_format=torch.contiguous_format) if dx_out is None else dx_out
    dgate_TNG = torch.empty_like(gate_TNG, memory_format=torch.contiguous_format) if dgate_out is None else dgate_out
    if not use_kernels(x_TND):
        found_dx, found_dgate = reference.backward(dy_TND, x_TND, gate_TNG)
        return dx_TND.copy_(found_dx), dgate_TNG.copy_(found_dgate)
    from burnish_kernels.head_gate.kernel import launch_backward

    if dx_TND.numel():
        launch_backward(dy_TND=dy_TND, x_TND=x_TND, gate_TNG=gate_TNG, dx_TND=dx_TND, dgate_TNG=dgate_TNG)
    return dx_TND, dgate_TNG


def _validate(
    x_TND: torch.Tensor, gates: dict[str, torch.Tensor | None], others: dict[str, torch.Tensor | None]
) -> None:
    """Check the operands; `gates` hold logits, `others` are like x.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    if x_TND.ndim != 3 or not x_TND.shape[1] or not 0 < x_TND.shape[2] <= MOST_SIZE:
        raise ValueError(f"x must be [T, N, D] with D up to {MOST_SIZE}, not {tuple(x_TND.shape)}")
    if x_TND.dtype not in {torch.float32, torch.float16, torch.bfloat16} and use_kernels(x_TND):
        raise ValueError(f"x must be fp32, fp16 or bf16, not {x_TND.dtype}")
    tokens, heads, size = x_TND.shape
    for name, found in {"x": x_TND, **gates, **others}.items():
        if found is None:
            continue
        widths = {1, size} if name in gates else {size}
        if found.ndim != 3 or found.shape[:2] != (tokens, heads) or found.shape[2] not in widths:
            raise ValueError(f"{name} must be {tokens} tokens of {heads} heads of {widths}, not {tuple(found.shape)}")
        if found.dtype != x_TND.dtype:
            raise ValueError(f"{name} must be {x_TND.dtype}, not {found.dtype}")
        apart = name not in gates and heads > 1 and found.stride(1) != size
        if found.numel() and (apart or (found.stride(2) != 1 and found.shape[2] > 1)):
            raise ValueError(f"the heads of each token of {name} must be contiguous")
    shapes = {found.shape for found in gates.values() if found is not None}
    if len(shapes) > 1:
        raise ValueError("logits and their gradient must have the same shape")
