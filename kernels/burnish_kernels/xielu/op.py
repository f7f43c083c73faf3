"""xIELU: validate, allocate, choose. Triton on CUDA (or in its interpreter), the reference elsewhere.

The constants are computed once by `reference.constants`; they get no gradient.

Rows may be strided, so that the result can be written into a wider buffer; the last dimension is contiguous. Shapes: T
rows (tokens), I intermediate size.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.row_blocks import row_blocks
from burnish_kernels.xielu import reference


def forward(x_TI: torch.Tensor, constants_4: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute the activation.

    Args:
        x_TI: input `[T, I]`, fp32, fp16 or bf16.
        constants_4: constants `[4]` from `reference.constants`, on the input's device.
        out: tensor `[T, I]` to write the result to; may be `x_TI` itself.

    Returns:
        The result `[T, I]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    act_TI = torch.empty_like(x_TI, memory_format=torch.contiguous_format) if out is None else out
    _validate(x_TI, constants_4, out=act_TI)
    if use_kernels(x_TI):
        from burnish_kernels.xielu.kernel import launch_forward

        if x_TI.numel():
            launch_forward(x_TI, constants_4, act_TI)
        return act_TI
    for rows in row_blocks(x_TI):
        act_TI[rows] = reference.forward(x_TI[rows], constants_4)
    return act_TI


def backward(
    dact_TI: torch.Tensor,
    x_TI: torch.Tensor,
    constants_4: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    act_out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the gradient of the input.

    Args:
        dact_TI: gradient `[T, I]` of the result.
        x_TI: input `[T, I]` given to `forward`.
        constants_4: same as in `forward`.
        out: tensor `[T, I]` to write the gradient to; may be `x_TI` or `dact_TI` itself.
        act_out: tensor `[T, I]` that the result is written to again, bit for bit; may be `x_TI` or `dact_TI`
            itself, where `out` is another. None: not wanted.

    Returns:
        The gradient `[T, I]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    dx_TI = torch.empty_like(x_TI, memory_format=torch.contiguous_format) if out is None else out
    _validate(x_TI, constants_4, dact=dact_TI, out=dx_TI, act_out=act_out)
    if use_kernels(x_TI):
        from burnish_kernels.xielu.kernel import launch_backward

        if x_TI.numel():
            launch_backward(dact_TI, x_TI, constants_4, dx_TI, act_out)
        return dx_TI
    for rows in row_blocks(x_TI):  # of each block all is read before anything is written
        act_TI = None if act_out is None else reference.forward(x_TI[rows], constants_4)
        dx_TI[rows] = reference.backward(dact_TI[rows], x_TI[rows], constants_4)
        if act_out is not None and act_TI is not None:
            act_out[rows] = act_TI
    return dx_TI


def _validate(x_TI: torch.Tensor, constants_4: torch.Tensor, **others: torch.Tensor | None) -> None:
    """Check the operands, of which `others` must be `[T, I]` of the input's type, or None."""
    if x_TI.ndim != 2:
        raise ValueError(f"x must be [T, I], not {tuple(x_TI.shape)}")
    if x_TI.dtype not in {torch.float32, torch.float16, torch.bfloat16} and use_kernels(x_TI):
        raise ValueError(f"x must be fp32, fp16 or bf16, not {x_TI.dtype}")
    if constants_4.shape != (4,) or constants_4.dtype != torch.promote_types(x_TI.dtype, torch.float32):
        raise ValueError(f"constants must be [4] fp32, not {tuple(constants_4.shape)} {constants_4.dtype}")
    for name, tensor in {"x": x_TI, **others}.items():
        if tensor is None:
            continue
        if tensor.shape != x_TI.shape or tensor.dtype != x_TI.dtype:
            raise ValueError(
                f"{name} must be {tuple(x_TI.shape)} {x_TI.dtype}, not {tuple(tensor.shape)} {tensor.dtype}"
            )
        if tensor.stride(1) != 1 and tensor.shape[1] > 1 and len(tensor):
            raise ValueError(f"each row of {name} must be contiguous")
