"""The experts' activation in Triton: forward in flat tiles, backward a row at a time with the weight's gradient.

Everything is computed in fp32, read before it is written by the same program, and written once: outputs may be inputs.
Launchers assert and never allocate. Row offsets are int64.

Shapes: P sorted rows, I intermediate size, J = 2I, H hidden size, k slots of a token.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.moe_act.activation import ExpertActivation
from burnish_kernels.moe_sort.order import ExpertOrder
from burnish_kernels.swiglu.kernel import activation_share, activation_slope

ROWS, COLUMNS, ROW_COLUMNS, WARPS = 2, 512, 1024, 4
"""Tile of the forward kernel, columns of a row that the backward kernel takes together, warps of a program."""


@triton.jit
def _load_pair(pointer, inside, column, size, INTERLEAVED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Load gate and up `[ROWS, COLUMNS]` fp32 from the first column on; `pointer` is one of each row."""
    if INTERLEAVED:
        at = column * 2 + tl.arange(0, 2 * COLUMNS)[None, :]
        pair = tl.load(pointer + at, mask=inside & (at < 2 * size), other=0.0)
        gate, up = tl.split(tl.reshape(pair, [ROWS, COLUMNS, 2]))
    else:
        at = column + tl.arange(0, COLUMNS)[None, :]
        gate = tl.load(pointer + at, mask=inside & (at < size), other=0.0)
        up = tl.load(pointer + size + at, mask=inside & (at < size), other=0.0)
    return gate.to(tl.float32), up.to(tl.float32)


@triton.jit
def _bounded(gate, up, limit, CLAMPED: tl.constexpr):
    """Clamp gate and up, and add 1 to up; NaN stays NaN."""
    if CLAMPED:
        gate = tl.where(gate > limit, limit, gate)
        up = tl.where(up > limit, limit, up)
        up = tl.where(up < -limit, -limit, up) + 1.0
    return gate, up


@triton.jit
def _share(gate, alpha, GELU: tl.constexpr):
    """Return the share of the gate that the activation lets through."""
    return activation_share(gate, "gelu_tanh") if GELU else tl.sigmoid(gate * alpha)


@triton.jit
def _slope(gate, share, alpha, GELU: tl.constexpr):
    """Return the derivative of gate times share."""
    return activation_slope(gate, share, "gelu_tanh") if GELU else share * (1.0 + alpha * gate * (1.0 - share))


@triton.jit(do_not_specialize=["P"])
def act_forward_kernel(
    gate_up_ptr,  # [P, J]
    act_ptr,  # [P, I]
    P,
    size,
    gate_up_stride,
    act_stride,
    alpha,
    limit,
    CLAMPED: tl.constexpr,
    GELU: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute one tile of the activation."""
    column_tiles = tl.cdiv(size, COLUMNS)
    row = (tl.program_id(0) // column_tiles) * ROWS + tl.arange(0, ROWS)[:, None]
    column = (tl.program_id(0) % column_tiles) * COLUMNS
    inside = row < P
    row = row.to(tl.int64)
    gate, up = _load_pair(gate_up_ptr + row * gate_up_stride, inside, column, size, INTERLEAVED, ROWS, COLUMNS)
    gate, up = _bounded(gate, up, limit, CLAMPED)
    act = gate * _share(gate, alpha, GELU) * up
    at = column + tl.arange(0, COLUMNS)[None, :]
    tl.store(act_ptr + row * act_stride + at, act.to(act_ptr.dtype.element_ty), mask=inside & (at < size))


@triton.jit
def act_backward_kernel(
    dact_ptr,  # [P, I], gradient before the routing weight
    gate_up_ptr,  # [P, J]
    weights_ptr,  # [T, k] fp32
    order_ptr,  # [P] int32
    ids_ptr,  # [T, k] int32, read only with HAS_BIAS
    dout_ptr,  # [T, H], read only with HAS_BIAS
    bias_ptr,  # [E, H], read only with HAS_BIAS
    dgate_up_ptr,  # [P, J]
    act_ptr,  # [P, I], written only with HAS_ACT
    dweights_ptr,  # [T, k] fp32
    size,
    H,
    slots,
    dact_stride,
    gate_up_stride,
    dout_stride,
    dgate_up_stride,
    act_stride,
    alpha,
    limit,
    CLAMPED: tl.constexpr,
    GELU: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_ACT: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute one sorted row's gradients of gate, up and routing weight, and with HAS_ACT the activation again."""
    row = tl.program_id(0).to(tl.int64)
    position = tl.load(order_ptr + row)
    weight = tl.load(weights_ptr + position)
    lane = tl.arange(0, COLUMNS)[None, :]
    every = tl.full([1, 1], 1, tl.int1)
    sums = tl.zeros([1, COLUMNS], tl.float32)
    for column in range(0, size, COLUMNS):
        at = column + lane
        inside = at < size
        gate_in, up_in = _load_pair(gate_up_ptr + row * gate_up_stride, every, column, size, INTERLEAVED, 1, COLUMNS)
        dact = tl.load(dact_ptr + row * dact_stride + at, mask=inside, other=0.0).to(tl.float32)
        gate, up = _bounded(gate_in, up_in, limit, CLAMPED)
        share = _share(gate, alpha, GELU)
        act = gate * share * up
        sums += tl.where(inside, act * dact, 0.0)
        dact *= weight
        dgate = dact * up * _slope(gate, share, alpha, GELU)
        dup = dact * gate * share
        if CLAMPED:
            dgate = tl.where(gate_in > limit, 0.0, dgate)
            dup = tl.where(tl.abs(up_in) > limit, 0.0, dup)
        out = dgate_up_ptr + row * dgate_up_stride
        if INTERLEAVED:
            pair = tl.reshape(tl.join(dgate, dup), [1, 2 * COLUMNS])
            at_pair = column * 2 + tl.arange(0, 2 * COLUMNS)[None, :]
            tl.store(out + at_pair, pair.to(dgate_up_ptr.dtype.element_ty), mask=at_pair < 2 * size)
        else:
            tl.store(out + at, dgate.to(dgate_up_ptr.dtype.element_ty), mask=inside)
            tl.store(out + size + at, dup.to(dgate_up_ptr.dtype.element_ty), mask=inside)
        if HAS_ACT:
            tl.store(act_ptr + row * act_stride + at, act.to(act_ptr.dtype.element_ty), mask=inside)
    if HAS_BIAS:
        dout_row = dout_ptr + (position // slots).to(tl.int64) * dout_stride
        bias_row = bias_ptr + tl.load(ids_ptr + position).to(tl.int64) * H
        for column in range(0, H, COLUMNS):
            at = column + lane
            dout = tl.load(dout_row + at, mask=at < H, other=0.0).to(tl.float32)
            sums += dout * tl.load(bias_row + at, mask=at < H, other=0.0).to(tl.float32)
    tl.store(dweights_ptr + position, tl.sum(sums))


def launch_forward(gate_up_PJ: torch.Tensor, act_PI: torch.Tensor, activation: ExpertActivation) -> None:
    """Fill `act_PI`."""
    rows, size = act_PI.shape
    assert gate_up_PJ.shape == (rows, 2 * size)
    act_forward_kernel[(triton.cdiv(rows, ROWS) * triton.cdiv(size, COLUMNS),)](
        gate_up_ptr=gate_up_PJ,
        act_ptr=act_PI,
        P=rows,
        size=size,
        gate_up_stride=gate_up_PJ.stride(0),
        act_stride=act_PI.stride(0),
        alpha=_alpha(activation),
        limit=activation.limit,
        CLAMPED=activation.name == "clamped",
        GELU=activation.name == "gelu_tanh",
        INTERLEAVED=activation.interleaved,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        num_warps=WARPS,
    )


def launch_backward(
    *,
    dact_PI: torch.Tensor,
    gate_up_PJ: torch.Tensor,
    weights_Tk: torch.Tensor,
    order: ExpertOrder,
    dgate_up_PJ: torch.Tensor,
    act_PI: torch.Tensor | None,
    dweights_Tk: torch.Tensor,
    ids_Tk: torch.Tensor | None,
    dout_TH: torch.Tensor | None,
    bias_EH: torch.Tensor | None,
    activation: ExpertActivation,
) -> None:
    """Fill `dgate_up_PJ`, `dweights_Tk` and, if given, `act_PI`."""
    rows, size = dact_PI.shape
    assert gate_up_PJ.shape == dgate_up_PJ.shape == (rows, 2 * size)
    assert weights_Tk.dtype == dweights_Tk.dtype == torch.float32
    assert (bias_EH is None) == (dout_TH is None) == (ids_Tk is None)
    act_backward_kernel[(rows,)](
        dact_ptr=dact_PI,
        gate_up_ptr=gate_up_PJ,
        weights_ptr=weights_Tk,
        order_ptr=order.order,
        ids_ptr=ids_Tk,
        dout_ptr=dout_TH,
        bias_ptr=bias_EH,
        dgate_up_ptr=dgate_up_PJ,
        act_ptr=act_PI,
        dweights_ptr=dweights_Tk,
        size=size,
        H=0 if bias_EH is None else bias_EH.shape[1],
        slots=order.slots,
        dact_stride=dact_PI.stride(0),
        gate_up_stride=gate_up_PJ.stride(0),
        dout_stride=0 if dout_TH is None else dout_TH.stride(0),
        dgate_up_stride=dgate_up_PJ.stride(0),
        act_stride=(dact_PI if act_PI is None else act_PI).stride(0),
        alpha=_alpha(activation),
        limit=activation.limit,
        CLAMPED=activation.name == "clamped",
        GELU=activation.name == "gelu_tanh",
        INTERLEAVED=activation.interleaved,
        HAS_BIAS=bias_EH is not None,
        HAS_ACT=act_PI is not None,
        COLUMNS=ROW_COLUMNS,
        num_warps=WARPS,
    )


def _alpha(activation: ExpertActivation) -> float:
    return activation.alpha if activation.name == "clamped" else 1.0
