"""The sum over a token's experts: validate, allocate, choose. Triton on CUDA, else the reference.

With weights it is the layer's output; without, the gradient of the tokens that the first map gathered.

Shapes: P sorted rows, T tokens, k slots of a token, H columns.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.moe_combine import reference
from burnish_kernels.moe_sort.order import ExpertOrder


def combine(
    y_PH: torch.Tensor,
    order: ExpertOrder,
    *,
    weights_Tk: torch.Tensor | None = None,
    add_TH: torch.Tensor | None = None,
    scale_T: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sum each token's rows over its slots, in the slots' order and in fp32, rounded once.

    Args:
        y_PH: outputs of the experts in sorted order `[P, H]`, fp32, fp16 or bf16, rows may be strided.
        order: rows by expert.
        weights_Tk: routing weights `[T, k]` fp32; None: each counts once.
        add_TH: what the sum begins with, `[T, H]`, rows may be strided; None: nothing.
        scale_T: factor of each row of `add_TH`, contiguous and of its type, whose product is rounded to that type;
            None: 1.
        out: tensor `[T, H]` to write to, of y's type or fp32, rows may be strided; may be `add_TH`. Allocated if None.

    Returns:
        The sums `[T, H]`.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    tokens, columns = order.positions // order.slots, y_PH.shape[-1]
    wide = torch.promote_types(y_PH.dtype, torch.float32)
    if y_PH.shape != (order.positions, columns) or y_PH.stride(1) != 1:
        raise ValueError(f"y must be [{order.positions}, H] with columns side by side, not {tuple(y_PH.shape)}")
    if y_PH.dtype not in {torch.float32, torch.float16, torch.bfloat16} and use_kernels(y_PH):
        raise ValueError(f"y must be fp32, fp16 or bf16, not {y_PH.dtype}")
    if out is None:
        out = y_PH.new_empty(tokens, columns)
    for name, tensor in (("add", add_TH), ("out", out)):
        if tensor is None:
            continue
        if tensor.shape != (tokens, columns) or tensor.dtype not in (y_PH.dtype, wide) or tensor.stride(1) != 1:
            raise ValueError(
                f"{name} must be {(tokens, columns)} {y_PH.dtype} or fp32, not {tuple(tensor.shape)} {tensor.dtype}"
            )
    if weights_Tk is not None and (
        weights_Tk.shape != (tokens, order.slots) or weights_Tk.dtype != wide or not weights_Tk.is_contiguous()
    ):
        raise ValueError(f"weights must be {(tokens, order.slots)} fp32, not {tuple(weights_Tk.shape)}")
    if scale_T is not None and (
        add_TH is None or scale_T.shape != (tokens,) or scale_T.dtype != add_TH.dtype or not scale_T.is_contiguous()
    ):
        raise ValueError(f"scale must be [{tokens}] of the type of add, not {tuple(scale_T.shape)} {scale_T.dtype}")
    if not use_kernels(y_PH):
        return out.copy_(reference.combine(y_PH, order, weights_Tk, add_TH, scale_T))
    from burnish_kernels.moe_combine.kernel import launch_combine

    if out.numel():
        launch_combine(y_PH, order, weights_Tk, add_TH, scale_T, out)
    return out
