"""RMSNorm in Triton: one program a row, statistics in fp32, everything read and written once.

A row is a piece of HEAD columns and a piece of TAIL columns, both powers of two: a single power of two would leave
many lanes idle at hidden sizes such as 576, 2560 or 3072. Short rows take a single warp, which needs no barrier.

Every element is read and written by the same program, and read before it is written: outputs may be inputs. On request
the row that is written is also quantized (`eight_bit_linear`) while it is in registers.
Launchers assert and never allocate. Row offsets are int64: T times a row's stride may pass 2^31.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from burnish_kernels.dispatch import interpreted
from burnish_kernels.eight_bit_linear.quantize.kernel import kernel_codes, magnitude, row_scale, to_codes
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.kernel_overlap import launch_options, let_next_begin, wait_for_earlier

WASTE = 1.2  # lanes a column from which on a row is split in two
ELEMENTS_A_THREAD = 16
MAX_WARPS = 16


@triton.jit
def _load_sum(x_ptr, residual_ptr, sum_ptr, columns, inside, HAS_RESIDUAL: tl.constexpr):
    """Load the rows to normalize in fp32, rounded to the inputs' type first; store a sum that is a new tensor."""
    x = tl.load(x_ptr + columns, mask=inside, other=0.0)
    if HAS_RESIDUAL:
        residual = tl.load(residual_ptr + columns, mask=inside, other=0.0)
        x = (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)
        tl.store(sum_ptr + columns, x, mask=inside)
    return x.to(tl.float32)


@triton.jit
def _store_scaled(x, inverse, weight, y_ptr, columns, inside, ONE_PLUS: tl.constexpr):
    """Store the normalized values, and return them as stored, fp32."""
    TYPE: tl.constexpr = y_ptr.dtype.element_ty
    if ONE_PLUS:
        y = x * inverse * (1.0 + weight.to(tl.float32))
    else:
        y = (x * inverse).to(TYPE).to(tl.float32) * weight.to(tl.float32)
    stored = y.to(TYPE)
    tl.store(y_ptr + columns, stored, mask=inside)
    return stored.to(tl.float32)


@triton.jit
def _scaled_by(values, factor_ptr, columns, inside, HAS_FACTOR: tl.constexpr):
    """Return what is quantized: values times the columns' factors."""
    if HAS_FACTOR:
        values *= tl.load(factor_ptr + columns, mask=inside, other=0.0)
    return values


@triton.jit
def _store_codes(values, inverse, codes_ptr, columns, inside, AT_ONCE: tl.constexpr, INTERPRETED: tl.constexpr):
    """Store codes, AT_ONCE side by side for a thread: as many as it loads of a row.

    Left alone, the compiler gives a thread 16 columns for the sake of these stores. Then rows are loaded in pieces, and
    added up in another order than without codes: results have to be the same bits.
    """
    codes = to_codes(values * inverse, codes_ptr.dtype.element_ty == tl.int8, INTERPRETED)
    tl.store(tl.max_contiguous(codes_ptr + columns, AT_ONCE), codes, mask=inside)


@triton.jit
def rms_norm_forward_kernel(
    x_ptr,  # [T, H]
    residual_ptr,  # [T, H], read only with HAS_RESIDUAL
    weight_ptr,  # [H]
    y_ptr,  # [T, H]
    sum_ptr,  # [T, H], written only with HAS_RESIDUAL
    inverse_ptr,  # [T] fp32
    codes_ptr,  # [T, H] E4M3 or INT8, written only with HAS_CODES
    scale_ptr,  # [T] fp32, written only with HAS_CODES
    H,
    x_stride,
    residual_stride,
    y_stride,
    sum_stride,
    codes_stride,
    eps,
    HAS_RESIDUAL: tl.constexpr,
    HAS_CODES: tl.constexpr,
    ONE_PLUS: tl.constexpr,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,  # 0: HEAD covers the row
    INTERPRETED: tl.constexpr,
    OVERLAPS: tl.constexpr = False,
):
    """Normalize one row, or the sum of two."""
    let_next_begin(OVERLAPS)
    wait_for_earlier(OVERLAPS)
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    if HAS_RESIDUAL:
        residual_ptr += row * residual_stride
    y_ptr += row * y_stride
    sum_ptr += row * sum_stride
    # All of the row is asked for before the first sum waits for any of it.
    head = tl.arange(0, HEAD)
    in_head = head < H
    x = _load_sum(x_ptr, residual_ptr, sum_ptr, head, in_head, HAS_RESIDUAL)
    weight = tl.load(weight_ptr + head, mask=in_head, other=0.0)
    if TAIL > 0:
        tail = HEAD + tl.arange(0, TAIL)
        in_tail = tail < H
        x_tail = _load_sum(x_ptr, residual_ptr, sum_ptr, tail, in_tail, HAS_RESIDUAL)
        weight_tail = tl.load(weight_ptr + tail, mask=in_tail, other=0.0)
    square = tl.sum(x * x, axis=0)
    if TAIL > 0:
        square += tl.sum(x_tail * x_tail, axis=0)
    inverse = tl.rsqrt(square / H + eps)
    tl.store(inverse_ptr + row, inverse)
    y = _store_scaled(x, inverse, weight, y_ptr, head, in_head, ONE_PLUS)
    if TAIL > 0:
        y_tail = _store_scaled(x_tail, inverse, weight_tail, y_ptr, tail, in_tail, ONE_PLUS)
    if HAS_CODES:
        codes_ptr += row * codes_stride
        largest = tl.max(magnitude(y), axis=0)
        if TAIL > 0:
            largest = tl.maximum(largest, tl.max(magnitude(y_tail), axis=0))
        scale, shrink = row_scale(largest, codes_ptr.dtype.element_ty == tl.int8)
        tl.store(scale_ptr + row, scale)
        at_once: tl.constexpr = 128 // y_ptr.dtype.element_ty.primitive_bitwidth
        _store_codes(y, shrink, codes_ptr, head, in_head, at_once, INTERPRETED)
        if TAIL > 0:
            _store_codes(y_tail, shrink, codes_ptr, tail, in_tail, at_once, INTERPRETED)


@triton.jit
def _load_gradients(
    dy_ptr,
    dsum_ptr,
    sum_ptr,
    weight_ptr,
    y_ptr,
    inverse,
    columns,
    inside,
    HAS_DSUM: tl.constexpr,
    HAS_Y: tl.constexpr,
    ONE_PLUS: tl.constexpr,
):
    """Load the normalized input, the gradient of its normalized value, and the other gradient; store y if asked for."""
    x = tl.load(sum_ptr + columns, mask=inside, other=0.0)
    dy = tl.load(dy_ptr + columns, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    dsum = tl.load(dsum_ptr + columns, mask=inside, other=0.0) if HAS_DSUM else x
    x = x.to(tl.float32)
    if HAS_Y:
        _store_scaled(x, inverse, weight, y_ptr, columns, inside, ONE_PLUS)
    factor = 1.0 + weight.to(tl.float32) if ONE_PLUS else weight.to(tl.float32)
    return x, dy.to(tl.float32) * factor, dsum


@triton.jit
def _store_gradient(dunit, x, inverse, mean, dsum, dx_ptr, columns, inside, HAS_DSUM: tl.constexpr):
    """Store the gradient, and return it as stored, fp32."""
    dx = inverse * (dunit - x * inverse * mean)
    if HAS_DSUM:
        dx += dsum.to(tl.float32)
    stored = dx.to(dx_ptr.dtype.element_ty)
    tl.store(dx_ptr + columns, stored, mask=inside)
    return stored.to(tl.float32)


@triton.jit
def rms_norm_backward_kernel(
    dy_ptr,  # [T, H]
    dsum_ptr,  # [T, H], gradient that reached the sum by another way; read only with HAS_DSUM
    sum_ptr,  # [T, H], what was normalized
    weight_ptr,  # [H]
    inverse_ptr,  # [T] fp32
    dx_ptr,  # [T, H]
    y_ptr,  # [T, H], written only with HAS_Y
    factor_ptr,  # [H] fp32, read only with HAS_FACTOR
    codes_ptr,  # [T, H] E4M3 or INT8 of dx times the factors, written only with HAS_CODES
    scale_ptr,  # [T] fp32, written only with HAS_CODES
    H,
    dy_stride,
    dsum_stride,
    sum_stride,
    dx_stride,
    y_stride,
    codes_stride,
    HAS_DSUM: tl.constexpr,
    HAS_Y: tl.constexpr,
    HAS_CODES: tl.constexpr,
    HAS_FACTOR: tl.constexpr,
    ONE_PLUS: tl.constexpr,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,  # 0: HEAD covers the row
    INTERPRETED: tl.constexpr,
):
    """Compute the gradient of one row before the norm."""
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * dy_stride
    if HAS_DSUM:
        dsum_ptr += row * dsum_stride
    sum_ptr += row * sum_stride
    dx_ptr += row * dx_stride
    if HAS_Y:
        y_ptr += row * y_stride
    inverse = tl.load(inverse_ptr + row)
    head = tl.arange(0, HEAD)
    in_head = head < H
    x, dunit, dsum = _load_gradients(
        dy_ptr, dsum_ptr, sum_ptr, weight_ptr, y_ptr, inverse, head, in_head, HAS_DSUM, HAS_Y, ONE_PLUS
    )
    if TAIL > 0:
        tail = HEAD + tl.arange(0, TAIL)
        in_tail = tail < H
        x_tail, dunit_tail, dsum_tail = _load_gradients(
            dy_ptr, dsum_ptr, sum_ptr, weight_ptr, y_ptr, inverse, tail, in_tail, HAS_DSUM, HAS_Y, ONE_PLUS
        )
    dot = tl.sum(dunit * x, axis=0)
    if TAIL > 0:
        dot += tl.sum(dunit_tail * x_tail, axis=0)
    mean = dot * inverse / H
    dx = _store_gradient(dunit, x, inverse, mean, dsum, dx_ptr, head, in_head, HAS_DSUM)
    if TAIL > 0:
        dx_tail = _store_gradient(dunit_tail, x_tail, inverse, mean, dsum_tail, dx_ptr, tail, in_tail, HAS_DSUM)
    if HAS_CODES:
        codes_ptr += row * codes_stride
        dx = _scaled_by(dx, factor_ptr, head, in_head, HAS_FACTOR)
        largest = tl.max(magnitude(dx), axis=0)
        if TAIL > 0:
            dx_tail = _scaled_by(dx_tail, factor_ptr, tail, in_tail, HAS_FACTOR)
            largest = tl.maximum(largest, tl.max(magnitude(dx_tail), axis=0))
        scale, shrink = row_scale(largest, codes_ptr.dtype.element_ty == tl.int8)
        tl.store(scale_ptr + row, scale)
        at_once: tl.constexpr = 128 // dx_ptr.dtype.element_ty.primitive_bitwidth
        _store_codes(dx, shrink, codes_ptr, head, in_head, at_once, INTERPRETED)
        if TAIL > 0:
            _store_codes(dx_tail, shrink, codes_ptr, tail, in_tail, at_once, INTERPRETED)


def launch_forward(
    *,
    x_TH: torch.Tensor,
    residual_TH: torch.Tensor | None,
    weight_H: torch.Tensor,
    y_TH: torch.Tensor,
    sum_TH: torch.Tensor,
    inverse_T: torch.Tensor,
    codes: EightBitRows | None,
    eps: float,
    one_plus_weight: bool,
) -> None:
    """Fill `y_TH`, `inverse_T`, `codes` if given and, with a residual, `sum_TH`."""
    rows, hidden = x_TH.shape
    assert y_TH.shape == sum_TH.shape == x_TH.shape
    assert inverse_T.shape == (rows,)
    assert inverse_T.dtype == torch.float32
    rms_norm_forward_kernel[(rows,)](
        x_ptr=x_TH,
        residual_ptr=residual_TH,
        weight_ptr=weight_H,
        y_ptr=y_TH,
        sum_ptr=sum_TH,
        inverse_ptr=inverse_T,
        **_codes(codes, y_TH),
        H=hidden,
        x_stride=x_TH.stride(0),
        residual_stride=(x_TH if residual_TH is None else residual_TH).stride(0),
        y_stride=y_TH.stride(0),
        sum_stride=sum_TH.stride(0),
        eps=eps,
        HAS_RESIDUAL=residual_TH is not None,
        ONE_PLUS=one_plus_weight,
        INTERPRETED=interpreted(),
        **configuration(hidden),
        **launch_options(x_TH, rows),
    )


def launch_backward(
    *,
    dy_TH: torch.Tensor,
    dsum_TH: torch.Tensor | None,
    sum_TH: torch.Tensor,
    weight_H: torch.Tensor,
    inverse_T: torch.Tensor,
    dx_TH: torch.Tensor,
    y_TH: torch.Tensor | None,
    codes: EightBitRows | None,
    factor_H: torch.Tensor | None,
    one_plus_weight: bool,
) -> None:
    """Fill `dx_TH`, the gradient of the sum (so of x and of the residual alike), and `y_TH` and `codes`, if given."""
    rows, hidden = sum_TH.shape
    assert dx_TH.shape == dy_TH.shape == sum_TH.shape
    assert inverse_T.dtype == torch.float32
    rms_norm_backward_kernel[(rows,)](
        dy_ptr=dy_TH,
        dsum_ptr=dsum_TH,
        sum_ptr=sum_TH,
        weight_ptr=weight_H,
        inverse_ptr=inverse_T,
        dx_ptr=dx_TH,
        y_ptr=y_TH,
        factor_ptr=factor_H,
        **_codes(codes, dx_TH),
        H=hidden,
        dy_stride=dy_TH.stride(0),
        dsum_stride=(dy_TH if dsum_TH is None else dsum_TH).stride(0),
        sum_stride=sum_TH.stride(0),
        dx_stride=dx_TH.stride(0),
        y_stride=(dx_TH if y_TH is None else y_TH).stride(0),
        HAS_DSUM=dsum_TH is not None,
        HAS_Y=y_TH is not None,
        HAS_FACTOR=factor_H is not None,
        ONE_PLUS=one_plus_weight,
        INTERPRETED=interpreted(),
        **configuration(hidden),
    )


def _codes(codes: EightBitRows | None, instead: torch.Tensor) -> dict[str, Any]:
    """Return the arguments of a kernel that writes codes, or with `instead` those of one that does not."""
    if codes is None:
        return {"codes_ptr": instead, "scale_ptr": instead, "codes_stride": instead.stride(0), "HAS_CODES": False}
    written = {"codes_ptr": kernel_codes(codes.codes), "scale_ptr": codes.scale}
    return written | {"codes_stride": codes.codes.stride(0), "HAS_CODES": True}


def configuration(hidden: int) -> dict[str, int]:
    """Return tile and warps for a hidden size: the same for every dtype and GPU, because no resource is scarce here."""
    head, tail = triton.next_power_of_2(hidden), 0
    if hidden * WASTE < head:
        head //= 2
        tail = triton.next_power_of_2(hidden - head)
    warps = max(1, min(MAX_WARPS, head // (32 * ELEMENTS_A_THREAD)))
    return {"HEAD": head, "TAIL": tail, "num_warps": warps}
