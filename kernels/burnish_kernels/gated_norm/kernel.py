"""Gated RMSNorm in Triton: a program takes some heads of some rows, whole.

Values are rounded where the reference rounds them; gradients are computed in fp32 and rounded once. Row offsets are
int64: T times a row's stride may pass 2^31. Launchers assert and never allocate.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 2048
"""Numbers of a program's tile."""
WARPS = 4


@triton.jit
def _places(T, V, E, HEADS: tl.constexpr, SIZE: tl.constexpr):
    """Return the row of each head, where the head's numbers lie in it, and which exist."""
    head = tl.program_id(0).to(tl.int64) * HEADS + tl.arange(0, HEADS)
    element = tl.arange(0, SIZE)
    inside = (head < T.to(tl.int64) * V)[:, None] & (element < E)[None, :]
    return (head // V)[:, None], (head % V)[:, None] * E + element[None, :], inside


@triton.jit
def _normed(o, eps, E):
    """Return the normalized heads and their inverse root mean squares."""
    inverse = tl.rsqrt(tl.sum(o * o, axis=1) / E + eps)
    return o * inverse[:, None], inverse


@triton.jit(do_not_specialize=["T"])
def gated_norm_forward_kernel(
    o_ptr,  # [T, V E]
    z_ptr,  # [T, V E]
    weight_ptr,  # [E]
    y_ptr,  # [T, V E]
    T,
    V,
    o_stride,
    z_stride,
    y_stride,
    eps,
    E: tl.constexpr,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Compute some heads of the result."""
    TYPE: tl.constexpr = y_ptr.dtype.element_ty
    row, column, inside = _places(T, V, E, HEADS, SIZE)
    element = tl.arange(0, SIZE)
    weight = tl.load(weight_ptr + element, mask=element < E, other=0.0).to(tl.float32)
    o = tl.load(o_ptr + row * o_stride + column, mask=inside, other=0.0).to(tl.float32)
    z = tl.load(z_ptr + row * z_stride + column, mask=inside, other=0.0).to(tl.float32)
    normed, _ = _normed(o, eps, E)
    scaled = (weight[None, :] * normed.to(TYPE).to(tl.float32)).to(TYPE).to(tl.float32)
    y = scaled * (z * tl.sigmoid(z))
    tl.store(y_ptr + row * y_stride + column, y.to(TYPE), mask=inside)


@triton.jit(do_not_specialize=["T"])
def gated_norm_backward_kernel(
    dy_ptr,  # [T, V E]
    o_ptr,  # [T, V E]
    z_ptr,  # [T, V E]
    weight_ptr,  # [E]
    do_ptr,  # [T, V E]
    dz_ptr,  # [T, V E]
    T,
    V,
    dy_stride,
    o_stride,
    z_stride,
    do_stride,
    dz_stride,
    eps,
    E: tl.constexpr,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Compute some heads of both gradients."""
    TYPE: tl.constexpr = do_ptr.dtype.element_ty
    row, column, inside = _places(T, V, E, HEADS, SIZE)
    element = tl.arange(0, SIZE)
    weight = tl.load(weight_ptr + element, mask=element < E, other=0.0).to(tl.float32)
    o = tl.load(o_ptr + row * o_stride + column, mask=inside, other=0.0).to(tl.float32)
    z = tl.load(z_ptr + row * z_stride + column, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
    normed, inverse = _normed(o, eps, E)
    scaled = (weight[None, :] * normed.to(TYPE).to(tl.float32)).to(TYPE).to(tl.float32)
    gate = tl.sigmoid(z)
    dz = dy * scaled * gate * (1.0 + z * (1.0 - gate))
    dnormed = dy * z * gate * weight[None, :]
    mean = tl.sum(dnormed * normed, axis=1) / E
    do = inverse[:, None] * (dnormed - normed * mean[:, None])
    tl.store(do_ptr + row * do_stride + column, do.to(TYPE), mask=inside)
    tl.store(dz_ptr + row * dz_stride + column, dz.to(TYPE), mask=inside)


def launch_forward(
    *, o_TJ: torch.Tensor, z_TJ: torch.Tensor, weight_E: torch.Tensor, y_TJ: torch.Tensor, eps: float
) -> None:
    """Fill `y_TJ`."""
    tile = tile_of(len(weight_E))
    gated_norm_forward_kernel[_grid(o_TJ, tile)](
        o_ptr=o_TJ,
        z_ptr=z_TJ,
        weight_ptr=weight_E,
        y_ptr=y_TJ,
        T=len(o_TJ),
        V=o_TJ.shape[1] // tile["E"],
        o_stride=o_TJ.stride(0),
        z_stride=z_TJ.stride(0),
        y_stride=y_TJ.stride(0),
        eps=eps,
        **tile,
        num_warps=WARPS,
    )


def launch_backward(
    *,
    dy_TJ: torch.Tensor,
    o_TJ: torch.Tensor,
    z_TJ: torch.Tensor,
    weight_E: torch.Tensor,
    do_TJ: torch.Tensor,
    dz_TJ: torch.Tensor,
    eps: float,
) -> None:
    """Fill `do_TJ` and `dz_TJ`."""
    tile = tile_of(len(weight_E))
    gated_norm_backward_kernel[_grid(o_TJ, tile)](
        dy_ptr=dy_TJ,
        o_ptr=o_TJ,
        z_ptr=z_TJ,
        weight_ptr=weight_E,
        do_ptr=do_TJ,
        dz_ptr=dz_TJ,
        T=len(o_TJ),
        V=o_TJ.shape[1] // tile["E"],
        dy_stride=dy_TJ.stride(0),
        o_stride=o_TJ.stride(0),
        z_stride=z_TJ.stride(0),
        do_stride=do_TJ.stride(0),
        dz_stride=dz_TJ.stride(0),
        eps=eps,
        **tile,
        num_warps=WARPS,
    )


def tile_of(size: int) -> dict[str, int]:
    """Return the constants of a tile for heads of a size."""
    padded = triton.next_power_of_2(size)
    return {"E": size, "HEADS": max(TILE // padded, 1), "SIZE": padded}


def _grid(o_TJ: torch.Tensor, tile: dict[str, int]) -> tuple[int]:
    return (triton.cdiv(o_TJ.numel() // tile["E"], tile["HEADS"]),)
