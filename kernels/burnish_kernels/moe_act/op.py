"""The experts' activation: validate, allocate, choose. Triton on CUDA (or in its interpreter), else the reference.

A token's output is the sum of w · W_down act(gate, up) over its experts. `backward` takes the gradient g = W_downᵀ dout
without the weight: then dw = act · g, and gate and up get w · g. So the second map's outputs need not be kept.

Shapes: P sorted rows, I intermediate size, J = 2I, T tokens, k slots of a token, E experts, H hidden size.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.moe_act import reference
from burnish_kernels.moe_act.activation import GPT_OSS, ExpertActivation
from burnish_kernels.moe_sort.order import ExpertOrder

__all__ = ["GPT_OSS", "ExpertActivation", "backward", "forward"]


def forward(gate_up_PJ: torch.Tensor, activation: ExpertActivation, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Compute the activation.

    Args:
        gate_up_PJ: gate and up `[P, 2I]`, fp32, fp16 or bf16, rows may be strided.
        activation: function and layout.
        out: tensor `[P, I]` to write to, rows may be strided. Allocated if None.

    Returns:
        The activation `[P, I]`.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    size = _size(gate_up_PJ, activation)
    if out is None:
        out = gate_up_PJ.new_empty(len(gate_up_PJ), size)
    _check("out", out, (len(gate_up_PJ), size), gate_up_PJ.dtype)
    if not use_kernels(gate_up_PJ):
        return out.copy_(reference.forward(gate_up_PJ, activation))
    from burnish_kernels.moe_act.kernel import launch_forward

    if out.numel():
        launch_forward(gate_up_PJ, out, activation)
    return out


def backward(
    dact_PI: torch.Tensor,
    gate_up_PJ: torch.Tensor,
    weights_Tk: torch.Tensor,
    order: ExpertOrder,
    activation: ExpertActivation,
    *,
    out: torch.Tensor | None = None,
    act_out: torch.Tensor | None = None,
    dout_TH: torch.Tensor | None = None,
    bias_EH: torch.Tensor | None = None,
    ids_Tk: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gradients of gate and up, and of the routing weights.

    Args:
        dact_PI: gradient `[P, I]` of the activation before the routing weight: the token's gradient times W_down.
        gate_up_PJ: gate and up `[P, 2I]` given to `forward`.
        weights_Tk: routing weights `[T, k]` fp32.
        order: rows by expert.
        activation: same as in `forward`.
        out: tensor `[P, 2I]` to write to; may be `gate_up_PJ` itself. Allocated if None.
        act_out: tensor `[P, I]` that the activation is written to again, bit for bit; may be `dact_PI` itself. None:
            not wanted.
        dout_TH: gradient `[T, H]` of the layer's output, where the second map has a bias; rows may be strided.
        bias_EH: bias `[E, H]` of the second map, contiguous; None: none.
        ids_Tk: experts `[T, k]` int32, with a bias.

    Returns:
        The gradients `[P, 2I]` and `[T, k]` fp32.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    size = _size(gate_up_PJ, activation)
    rows, tokens = order.positions, order.positions // order.slots
    _check("gate_up", gate_up_PJ, (rows, 2 * size), gate_up_PJ.dtype)
    _check("dact", dact_PI, (rows, size), gate_up_PJ.dtype)
    _check("weights", weights_Tk, (tokens, order.slots), torch.promote_types(gate_up_PJ.dtype, torch.float32))
    if out is None:
        out = torch.empty_like(gate_up_PJ, memory_format=torch.contiguous_format)
    _check("out", out, (rows, 2 * size), gate_up_PJ.dtype)
    if act_out is not None:
        _check("act_out", act_out, (rows, size), gate_up_PJ.dtype)
    if not (dout_TH is None) == (bias_EH is None) == (ids_Tk is None):
        raise ValueError("a bias needs the gradient of the output and the experts, and they need a bias")
    if dout_TH is not None and bias_EH is not None and ids_Tk is not None:
        _check("dout", dout_TH, (tokens, bias_EH.shape[1]), gate_up_PJ.dtype)
        _check("bias", bias_EH, (order.experts, bias_EH.shape[1]), bias_EH.dtype)
        _check("ids", ids_Tk, (tokens, order.slots), torch.int32)
    dweights_Tk = torch.empty_like(weights_Tk, memory_format=torch.contiguous_format)
    if not use_kernels(gate_up_PJ):
        positions = order.order.long()
        act_PI = None if act_out is None else reference.forward(gate_up_PJ, activation)
        dgate_up_PJ, dweights_P = reference.backward(dact_PI, gate_up_PJ, weights_Tk.view(-1)[positions], activation)
        out.copy_(dgate_up_PJ)
        if act_out is not None and act_PI is not None:
            act_out.copy_(act_PI)
        dweights_Tk.view(-1)[positions] = dweights_P
        if dout_TH is not None and bias_EH is not None and ids_Tk is not None:
            wide = dweights_Tk.dtype
            dweights_Tk += torch.einsum("th,tkh->tk", dout_TH.to(wide), bias_EH.to(wide)[ids_Tk.long()])
        return out, dweights_Tk
    from burnish_kernels.moe_act.kernel import launch_backward

    if out.numel():
        launch_backward(
            dact_PI=dact_PI,
            gate_up_PJ=gate_up_PJ,
            weights_Tk=weights_Tk,
            order=order,
            dgate_up_PJ=out,
            act_PI=act_out,
            dweights_Tk=dweights_Tk,
            ids_Tk=ids_Tk,
            dout_TH=dout_TH,
            bias_EH=bias_EH,
            activation=activation,
        )
    return out, dweights_Tk


def _size(gate_up_PJ: torch.Tensor, activation: ExpertActivation) -> int:
    """Return the intermediate size I."""
    if activation.name not in {"silu", "gelu_tanh", "clamped"}:
        raise ValueError(f"the activation must be silu, gelu_tanh or clamped, not {activation.name!r}")
    if gate_up_PJ.ndim != 2 or gate_up_PJ.shape[1] % 2 or not gate_up_PJ.shape[1]:
        raise ValueError(f"gate_up must be [P, 2I], not {tuple(gate_up_PJ.shape)}")
    if gate_up_PJ.dtype not in {torch.float32, torch.float16, torch.bfloat16} and use_kernels(gate_up_PJ):
        raise ValueError(f"gate_up must be fp32, fp16 or bf16, not {gate_up_PJ.dtype}")
    return gate_up_PJ.shape[1] // 2


def _check(name: str, tensor: torch.Tensor, shape: tuple[int, int], dtype: torch.dtype) -> None:
    if tensor.shape != shape or tensor.dtype != dtype or (tensor.stride(1) != 1 and shape[1] > 1):
        raise ValueError(f"{name} must be {shape} {dtype}, rows contiguous, not {tuple(tensor.shape)} {tensor.dtype}")
    if name in {"weights", "bias", "ids"} and not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous")
