"""Gated RMSNorm: validate, allocate, choose. Triton on CUDA (or in its interpreter), the reference elsewhere.

`forward` and `backward` know nothing of autograd; the weight is frozen, so that it gets no gradient.

Rows may be strided; the last dimension is contiguous. Shapes: T rows (tokens), V heads of E, J = V E.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.gated_norm import reference

MOST_SIZE = 1024
"""Largest head size."""


def forward(
    o_TJ: torch.Tensor, z_TJ: torch.Tensor, weight_E: torch.Tensor, *, eps: float, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Normalize each head of o, scale it, and multiply by silu(z).

    Args:
        o_TJ: heads `[T, V E]`, side by side, fp32, fp16 or bf16.
        z_TJ: gate `[T, V E]`, in the same dtype.
        weight_E: weight `[E]` of every head, in the same dtype; contiguous.
        eps: number added to the mean square.
        out: tensor `[T, V E]` to write the result to; may be o or z themselves.

    Returns:
        The result `[T, V E]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _validate(o_TJ, weight_E, {"z": z_TJ, "out": out})
    y_TJ = torch.empty_like(o_TJ, memory_format=torch.contiguous_format) if out is None else out
    if not use_kernels(o_TJ):
        return y_TJ.copy_(reference.forward(o_TJ, z_TJ, weight_E, eps=eps))
    from burnish_kernels.gated_norm.kernel import launch_forward

    if y_TJ.numel():
        launch_forward(o_TJ=o_TJ, z_TJ=z_TJ, weight_E=weight_E, y_TJ=y_TJ, eps=eps)
    return y_TJ


def backward(
    dy_TJ: torch.Tensor,
    o_TJ: torch.Tensor,
    z_TJ: torch.Tensor,
    weight_E: torch.Tensor,
    *,
    eps: float,
    do_out: torch.Tensor | None = None,
    dz_out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gradients of o and z; the rows' statistics are computed again.

    Args:
        dy_TJ: gradient `[T, V E]` of the result.
        o_TJ: same as in `forward`.
        z_TJ: same as in `forward`.
        weight_E: same as in `forward`.
        eps: same as in `forward`.
        do_out: tensor `[T, V E]` to write the gradient of o to; may be any of the inputs.
        dz_out: tensor `[T, V E]` to write the gradient of z to; likewise, but another one.

    Returns:
        The gradients of o and of z, each `[T, V E]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _validate(o_TJ, weight_E, {"dy": dy_TJ, "z": z_TJ, "do_out": do_out, "dz_out": dz_out})
    do_TJ, dz_TJ = (
        torch.empty_like(o_TJ, memory_format=torch.contiguous_format) if one is None else one
        for one in (do_out, dz_out)
    )
    if not use_kernels(o_TJ):
        found_do_TJ, found_dz_TJ = reference.backward(dy_TJ, o_TJ, z_TJ, weight_E, eps=eps)
        return do_TJ.copy_(found_do_TJ), dz_TJ.copy_(found_dz_TJ)
    from burnish_kernels.gated_norm.kernel import launch_backward

    if do_TJ.numel():
        launch_backward(dy_TJ=dy_TJ, o_TJ=o_TJ, z_TJ=z_TJ, weight_E=weight_E, do_TJ=do_TJ, dz_TJ=dz_TJ, eps=eps)
    return do_TJ, dz_TJ


def _validate(o_TJ: torch.Tensor, weight_E: torch.Tensor, others: dict[str, torch.Tensor | None]) -> None:
    """Check the operands; `others` are like o.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    if o_TJ.dtype not in {torch.float32, torch.float16, torch.bfloat16} and use_kernels(o_TJ):
        raise ValueError(f"o must be fp32, fp16 or bf16, not {o_TJ.dtype}")
    if weight_E.ndim != 1 or not 1 <= len(weight_E) <= MOST_SIZE or not weight_E.is_contiguous():
        raise ValueError(f"the weight must be [E] with E up to {MOST_SIZE}, contiguous, not {tuple(weight_E.shape)}")
    if weight_E.dtype != o_TJ.dtype:
        raise ValueError(f"the weight must be {o_TJ.dtype}, not {weight_E.dtype}")
    if o_TJ.ndim != 2 or not o_TJ.shape[1] or o_TJ.shape[1] % len(weight_E):
        raise ValueError(f"o must be [T, heads of {len(weight_E)}], not {tuple(o_TJ.shape)}")
    for name, found in {"o": o_TJ, **others}.items():
        if found is None:
            continue
        if found.shape != o_TJ.shape or found.dtype != o_TJ.dtype:
            raise ValueError(f"{name} must be {tuple(o_TJ.shape)} {o_TJ.dtype}, not {tuple(found.shape)} {found.dtype}")
        if found.stride(1) != 1 and found.shape[1] > 1 and len(found):
            raise ValueError(f"each row of {name} must be contiguous")
