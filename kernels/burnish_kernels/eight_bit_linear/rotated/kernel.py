"""Rows rotated in place, in Triton. Launchers assert and never allocate.

Shapes: T tokens, K columns, R ranks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.dispatch import interpreted
from burnish_kernels.eight_bit_linear.kernel import adapter_arguments, add_adapter
from burnish_kernels.eight_bit_linear.quantize.kernel import rotated_columns

TOKENS, COLUMNS, WARPS = 64, 64, 4  # tile of a program


@triton.jit(do_not_specialize=["T"])
def rotate_back_kernel(
    x_ptr,  # [T, K]
    narrow_ptr,  # [T, R], read only with HAS_ADAPTER
    adapter_ptr,  # [K, R], read only with HAS_ADAPTER
    T,
    K,
    R,
    x_stride,
    narrow_stride,
    adapter_output,
    adapter_rank,
    HAS_ADAPTER: tl.constexpr,
    ROTATION: tl.constexpr,
    TOKENS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Rotate COLUMNS columns of TOKENS rows."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    at = x_ptr + token.to(tl.int64)[:, None] * x_stride + column[None, :]
    own = (token < T)[:, None] & (column < K)[None, :]
    x = tl.load(at, mask=own, other=0.0)
    sums = rotated_columns(x, ROTATION, TOKENS, COLUMNS, INTERPRETED)
    if HAS_ADAPTER:
        sums = add_adapter(
            sums,
            narrow_ptr,
            adapter_ptr,
            tl.minimum(token, T - 1),
            tl.minimum(column, K - 1),
            R,
            narrow_stride,
            adapter_output,
            adapter_rank,
            BLOCK_R,
            False,
            INTERPRETED,
        )
    tl.store(at, sums.to(x_ptr.dtype.element_ty), mask=own)


def launch_rotate_back(
    *, x_TK: torch.Tensor, rotation: int, narrow_TR: torch.Tensor | None, adapter_KR: torch.Tensor | None
) -> None:
    """Rotate `x_TK`."""
    tokens, columns = x_TK.shape
    assert columns % rotation == 0
    rotate_back_kernel[(triton.cdiv(tokens, TOKENS), triton.cdiv(columns, COLUMNS))](
        x_ptr=x_TK,
        T=tokens,
        K=columns,
        x_stride=x_TK.stride(0),
        **adapter_arguments(narrow_TR, adapter_KR, x_TK),
        ROTATION=rotation,
        TOKENS=TOKENS,
        COLUMNS=COLUMNS,
        INTERPRETED=interpreted(),
        num_warps=WARPS,
    )
