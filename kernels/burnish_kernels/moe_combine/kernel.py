"""The sum over a token's experts in Triton: a program takes a block of columns of one token, slot after slot in fp32.

No atomics, so the same inputs give the same bits. Launchers assert and never allocate. Row offsets are int64.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.moe_sort.order import ExpertOrder

COLUMNS, WARPS = 1024, 4


@triton.jit
def combine_kernel(
    y_ptr,  # [P, H]
    inverse_ptr,  # [T, K] int32
    weights_ptr,  # [T, K] fp32, read only with HAS_WEIGHTS
    add_ptr,  # [T, H], read only with HAS_ADD
    scale_ptr,  # [T], of the type of add, read only with HAS_SCALE
    out_ptr,  # [T, H]
    H,
    y_stride,
    add_stride,
    out_stride,
    K: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
    HAS_ADD: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Sum one block of columns of one token."""
    blocks = tl.cdiv(H, COLUMNS)
    token = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < H
    sums = tl.zeros([COLUMNS], tl.float32)
    if HAS_ADD:
        add = tl.load(add_ptr + token * add_stride + column, mask=inside, other=0.0).to(tl.float32)
        if HAS_SCALE:  # the product is rounded, as that of two tensors is
            add = (add * tl.load(scale_ptr + token).to(tl.float32)).to(add_ptr.dtype.element_ty).to(tl.float32)
        sums += add
    for slot in tl.static_range(K):
        row = tl.load(inverse_ptr + token * K + slot).to(tl.int64)
        y = tl.load(y_ptr + row * y_stride + column, mask=inside, other=0.0).to(tl.float32)
        if HAS_WEIGHTS:
            y *= tl.load(weights_ptr + token * K + slot)
        sums += y
    tl.store(out_ptr + token * out_stride + column, sums.to(out_ptr.dtype.element_ty), mask=inside)


def launch_combine(
    y_PH: torch.Tensor,
    order: ExpertOrder,
    weights_Tk: torch.Tensor | None,
    add_TH: torch.Tensor | None,
    scale_T: torch.Tensor | None,
    out_TH: torch.Tensor,
) -> None:
    """Fill `out_TH`."""
    tokens, columns = out_TH.shape
    assert y_PH.shape == (order.positions, columns)
    assert order.positions == tokens * order.slots
    combine_kernel[(tokens * triton.cdiv(columns, COLUMNS),)](
        y_ptr=y_PH,
        inverse_ptr=order.inverse,
        weights_ptr=weights_Tk,
        add_ptr=add_TH,
        scale_ptr=scale_T,
        out_ptr=out_TH,
        H=columns,
        y_stride=y_PH.stride(0),
        add_stride=0 if add_TH is None else add_TH.stride(0),
        out_stride=out_TH.stride(0),
        K=order.slots,
        HAS_WEIGHTS=weights_Tk is not None,
        HAS_ADD=add_TH is not None,
        HAS_SCALE=scale_T is not None,
        COLUMNS=COLUMNS,
        num_warps=WARPS,
    )
