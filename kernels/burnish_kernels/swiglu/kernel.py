"""Gated activation in Triton: flat tiles of a few rows, computed in fp32, everything read and written once.

Every element is read and written by the same program, and read before it is written: outputs may be inputs. Where the
result is also to be quantized (`eight_bit_linear`), programs take whole rows: what is quantized is in the cache.
Launchers assert and never allocate. Row offsets are int64: T·2I passes 2^31 at 80,000 tokens of an 8B model.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from burnish_kernels.dispatch import interpreted
from burnish_kernels.eight_bit_linear.quantize.kernel import kernel_codes, magnitude, row_scale, store_codes
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.kernel_overlap import launch_options, let_next_begin, wait_for_earlier

ROWS, COLUMNS, WARPS = 2, 512, 4
"""Tile of a program: 8 elements a thread, so 16 bytes of each tensor; 512 divides most intermediate sizes."""

CODED_ROWS, CODED_COLUMNS, CODED_WARPS = 2, 2048, 16
"""Tile of a program that also quantizes, by which it passes over its rows: two programs fill a multiprocessor, so that
what all of them read again fits the second-level cache. What is read once makes room in it first."""

# As in the reference; Triton's functions see only constants declared so.
_CUBIC = tl.constexpr(0.044715)
_TWICE_ROOT_2_OVER_PI = tl.constexpr(1.5957691216057308)
_ROOT_HALF = tl.constexpr(0.7071067811865476)
_INVERSE_ROOT_2_PI = tl.constexpr(0.3989422804014327)


@triton.jit
def activation_share(x, ACTIVATION: tl.constexpr):
    """Return the share of x that the activation lets through, fp32."""
    if ACTIVATION == "gelu":
        return 0.5 * (1.0 + tl.erf(x * _ROOT_HALF))
    if ACTIVATION == "gelu_tanh":  # (1 + tanh(u)) / 2 is sigmoid(2u), which does not cancel
        return tl.sigmoid(x * _TWICE_ROOT_2_OVER_PI * (1.0 + x * x * _CUBIC))
    return tl.sigmoid(x)


@triton.jit
def activation_slope(x, share, ACTIVATION: tl.constexpr):
    """Return the derivative of the activation, fp32."""
    if ACTIVATION == "gelu":
        return share + x * (tl.exp(-0.5 * x * x) * _INVERSE_ROOT_2_PI)
    inner = x * (1.0 - share)
    if ACTIVATION == "gelu_tanh":
        inner = inner * _TWICE_ROOT_2_OVER_PI * (1.0 + 3.0 * (x * x * _CUBIC))
    return share * (1.0 + inner)


@triton.jit
def _gradients(dact, gate, up, ACTIVATION: tl.constexpr):
    """Return the gradients of gate and up, and the activated gate times up, fp32."""
    share = activation_share(gate, ACTIVATION)
    return dact * up * activation_slope(gate, share, ACTIVATION), dact * (gate * share), gate * share * up


@triton.jit(do_not_specialize=["T"])
def swiglu_forward_kernel(
    gate_ptr,  # [T, I]
    up_ptr,  # [T, I], the same stride
    act_ptr,  # [T, I]
    T,
    size,
    gate_stride,
    act_stride,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    OVERLAPS: tl.constexpr = False,
):
    """Compute one tile of the activated gate times up."""
    let_next_begin(OVERLAPS)
    wait_for_earlier(OVERLAPS)
    column_tiles = tl.cdiv(size, COLUMNS)
    row = (tl.program_id(0) // column_tiles) * ROWS + tl.arange(0, ROWS)[:, None]
    column = (tl.program_id(0) % column_tiles) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < T) & (column < size)
    row = row.to(tl.int64)
    offsets = row * gate_stride + column
    gate = tl.load(gate_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    act = gate * activation_share(gate, ACTIVATION) * up
    tl.store(act_ptr + row * act_stride + column, act.to(act_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["T"])
def swiglu_backward_kernel(
    dact_ptr,  # [T, I]
    gate_ptr,  # [T, I]
    up_ptr,  # [T, I], gate's stride
    dgate_ptr,  # [T, I]
    dup_ptr,  # [T, I], dgate's stride
    act_ptr,  # [T, I], written only with HAS_ACT
    T,
    size,
    dact_stride,
    gate_stride,
    dgate_stride,
    act_stride,
    ACTIVATION: tl.constexpr,
    HAS_ACT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute one tile of the gradients of gate and up, and with HAS_ACT of the activation again."""
    column_tiles = tl.cdiv(size, COLUMNS)
    row = (tl.program_id(0) // column_tiles) * ROWS + tl.arange(0, ROWS)[:, None]
    column = (tl.program_id(0) % column_tiles) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < T) & (column < size)
    row = row.to(tl.int64)
    offsets = row * gate_stride + column
    dact = tl.load(dact_ptr + row * dact_stride + column, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    dgate, dup, act = _gradients(dact, gate, up, ACTIVATION)
    offsets = row * dgate_stride + column
    tl.store(dgate_ptr + offsets, dgate.to(dgate_ptr.dtype.element_ty), mask=inside)
    tl.store(dup_ptr + offsets, dup.to(dup_ptr.dtype.element_ty), mask=inside)
    if HAS_ACT:
        tl.store(act_ptr + row * act_stride + column, act.to(act_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _load_once(pointers, inside):
    """Load what is not read again, fp32."""
    return tl.load(pointers, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)


@triton.jit(do_not_specialize=["T"])
def swiglu_forward_coded_kernel(
    gate_ptr,  # [T, I]
    up_ptr,  # [T, I], the same stride
    act_ptr,  # [T, I]
    codes_ptr,  # [T, I] E4M3 or INT8
    scale_ptr,  # [T] fp32
    T,
    size,
    gate_stride,
    act_stride,
    codes_stride,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Compute and quantize some rows of the activated gate times up."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    own, far = row < T, tl.minimum(row, T - 1).to(tl.int64)[:, None]
    act_at = act_ptr + far * act_stride
    largest = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(0, size, COLUMNS):
        column = first + tl.arange(0, COLUMNS)[None, :]
        inside = own[:, None] & (column < size)
        gate = _load_once(gate_ptr + far * gate_stride + column, inside)
        up = _load_once(up_ptr + far * gate_stride + column, inside)
        act = (gate * activation_share(gate, ACTIVATION) * up).to(act_ptr.dtype.element_ty)
        tl.store(act_at + column, act, mask=inside)
        largest = tl.maximum(largest, magnitude(act.to(tl.float32)))
    scale, inverse = row_scale(tl.max(largest, axis=1), codes_ptr.dtype.element_ty == tl.int8)
    tl.store(scale_ptr + row, scale, mask=own)
    tl.debug_barrier()  # other threads may read what one has written
    store_codes(act_at, scale_ptr, codes_ptr + far * codes_stride, inverse, own, size, False, COLUMNS, INTERPRETED)


@triton.jit(do_not_specialize=["T"])
def swiglu_backward_coded_kernel(
    dact_ptr,  # [T, I]
    gate_ptr,  # [T, I]
    up_ptr,  # [T, I], gate's stride
    dgate_up_ptr,  # [T, 2I]
    act_ptr,  # [T, I], written only with HAS_ACT
    factor_ptr,  # [2I] fp32, read only with HAS_FACTOR
    codes_ptr,  # [T, 2I] E4M3 or INT8 of the gradient times the factors
    scale_ptr,  # [T] fp32
    T,
    size,
    dact_stride,
    gate_stride,
    dgate_stride,
    act_stride,
    codes_stride,
    ACTIVATION: tl.constexpr,
    HAS_ACT: tl.constexpr,
    HAS_FACTOR: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Compute and quantize some rows of the gradients of gate and up, and with HAS_ACT the activation again."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    own, far = row < T, tl.minimum(row, T - 1).to(tl.int64)[:, None]
    dgate_at = dgate_up_ptr + far * dgate_stride
    largest = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(0, size, COLUMNS):
        column = first + tl.arange(0, COLUMNS)[None, :]
        inside = own[:, None] & (column < size)
        dact = _load_once(dact_ptr + far * dact_stride + column, inside)
        gate = _load_once(gate_ptr + far * gate_stride + column, inside)
        up = _load_once(up_ptr + far * gate_stride + column, inside)
        dgate, dup, act = _gradients(dact, gate, up, ACTIVATION)
        dgate, dup = dgate.to(dgate_up_ptr.dtype.element_ty), dup.to(dgate_up_ptr.dtype.element_ty)
        tl.store(dgate_at + column, dgate, mask=inside)
        tl.store(dgate_at + size + column, dup, mask=inside)
        if HAS_ACT:
            tl.store(act_ptr + far * act_stride + column, act.to(act_ptr.dtype.element_ty), mask=inside)
        dgate, dup = dgate.to(tl.float32), dup.to(tl.float32)
        if HAS_FACTOR:
            dgate *= tl.load(factor_ptr + column, mask=column < size, other=0.0)
            dup *= tl.load(factor_ptr + size + column, mask=column < size, other=0.0)
        largest = tl.maximum(largest, tl.maximum(magnitude(dgate), magnitude(dup)))
    scale, inverse = row_scale(tl.max(largest, axis=1), codes_ptr.dtype.element_ty == tl.int8)
    tl.store(scale_ptr + row, scale, mask=own)
    tl.debug_barrier()  # other threads may read what one has written
    codes_at = codes_ptr + far * codes_stride
    store_codes(dgate_at, factor_ptr, codes_at, inverse, own, 2 * size, HAS_FACTOR, COLUMNS, INTERPRETED)


def launch_forward(
    gate_up_TJ: torch.Tensor, act_TI: torch.Tensor, activation: str, codes: EightBitRows | None = None
) -> None:
    """Fill `act_TI`, and `codes` if given."""
    rows, size = act_TI.shape
    assert gate_up_TJ.shape == (rows, 2 * size)
    if codes is not None:
        swiglu_forward_coded_kernel[(triton.cdiv(rows, CODED_ROWS),)](
            gate_ptr=gate_up_TJ,
            up_ptr=gate_up_TJ[:, size:],
            act_ptr=act_TI,
            **_coded(codes),
            T=rows,
            size=size,
            gate_stride=gate_up_TJ.stride(0),
            act_stride=act_TI.stride(0),
            ACTIVATION=activation,
        )
        return
    swiglu_forward_kernel[_grid(rows, size)](
        gate_ptr=gate_up_TJ,
        up_ptr=gate_up_TJ[:, size:],
        act_ptr=act_TI,
        T=rows,
        size=size,
        gate_stride=gate_up_TJ.stride(0),
        act_stride=act_TI.stride(0),
        ACTIVATION=activation,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=WARPS,
        **launch_options(act_TI, rows),
    )


def launch_backward(
    dact_TI: torch.Tensor,
    gate_up_TJ: torch.Tensor,
    dgate_up_TJ: torch.Tensor,
    act_TI: torch.Tensor | None,
    activation: str,
    codes: EightBitRows | None = None,
    factor_J: torch.Tensor | None = None,
) -> None:
    """Fill `dgate_up_TJ` and, if given, `act_TI` and `codes`."""
    rows, size = dact_TI.shape
    assert gate_up_TJ.shape == dgate_up_TJ.shape == (rows, 2 * size)
    assert act_TI is None or act_TI.shape == dact_TI.shape
    if codes is not None:
        swiglu_backward_coded_kernel[(triton.cdiv(rows, CODED_ROWS),)](
            dact_ptr=dact_TI,
            gate_ptr=gate_up_TJ,
            up_ptr=gate_up_TJ[:, size:],
            dgate_up_ptr=dgate_up_TJ,
            act_ptr=act_TI,
            factor_ptr=factor_J,
            **_coded(codes),
            T=rows,
            size=size,
            dact_stride=dact_TI.stride(0),
            gate_stride=gate_up_TJ.stride(0),
            dgate_stride=dgate_up_TJ.stride(0),
            act_stride=(dact_TI if act_TI is None else act_TI).stride(0),
            ACTIVATION=activation,
            HAS_ACT=act_TI is not None,
            HAS_FACTOR=factor_J is not None,
        )
        return
    swiglu_backward_kernel[_grid(rows, size)](
        dact_ptr=dact_TI,
        gate_ptr=gate_up_TJ,
        up_ptr=gate_up_TJ[:, size:],
        dgate_ptr=dgate_up_TJ,
        dup_ptr=dgate_up_TJ[:, size:],
        act_ptr=act_TI,
        T=rows,
        size=size,
        dact_stride=dact_TI.stride(0),
        gate_stride=gate_up_TJ.stride(0),
        dgate_stride=dgate_up_TJ.stride(0),
        act_stride=(dact_TI if act_TI is None else act_TI).stride(0),
        ACTIVATION=activation,
        HAS_ACT=act_TI is not None,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=WARPS,
    )


def _coded(codes: EightBitRows) -> dict[str, Any]:
    """Return the arguments that both kernels which quantize have in common."""
    return {
        "codes_ptr": kernel_codes(codes.codes),
        "scale_ptr": codes.scale,
        "codes_stride": codes.codes.stride(0),
        "ROWS": CODED_ROWS,
        "COLUMNS": CODED_COLUMNS,
        "INTERPRETED": interpreted(),
        "num_warps": CODED_WARPS,
    }


def _grid(rows: int, size: int) -> tuple[int]:
    """Return a one-dimensional grid, because a second dimension ends at 65,535; neighbors are adjacent in memory."""
    return (triton.cdiv(rows, ROWS) * triton.cdiv(size, COLUMNS),)
