"""Gated activation together with the adapters' products that read or make its wide tensors: fewer memory passes.

Between the up and the down projection of T tokens lie tensors of `[T, I]` and `[T, 2I]`, and everything done to them
is bound by memory. `forward_adapted` is `op.forward` that also makes the narrow xAᵀ of the down projection, without
the activation being read again: 3 instead of 4 passes of `[T, I]`. `backward_adapted` is `op.backward` that also sums
the gradients of the down projection's A and of the gate and up projections' B, without the activation being written or
the gradients read back: 5 instead of 9 passes. The results are those of the operations one after the other, up to the
order of sums.

Shapes: T tokens, I intermediate size, J = 2I (gate, then up), R ranks of an adapter as padded, r its true rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.lora_linear.skinny import outer_accumulate, project
from burnish_kernels.swiglu import op
from burnish_kernels.swiglu.adapted.tiles import backward_plan, can_fuse, fills

__all__ = ["OuterProduct", "backward_adapted", "can_fuse", "fills", "forward_adapted"]


class OuterProduct(NamedTuple):
    """A product over the tokens to accumulate: out += scale · factorᵀ · (a tensor of [T, I]).

    Attributes:
        factor_TR: narrow factor `[T, R]`, rows may be strided.
        out_rI: sum `[r <= R, I]` fp32, any strides; the ranks past r are padding.
        scale: factor of the product.
    """

    factor_TR: torch.Tensor
    out_rI: torch.Tensor
    scale: float = 1.0


def forward_adapted(
    gate_up_TJ: torch.Tensor, a_RI: torch.Tensor, *, activation: str, out: torch.Tensor, xa_out: torch.Tensor
) -> None:
    """Compute the activated gate times up, and its product with A.

    Args:
        gate_up_TJ: input `[T, 2I]`, fp32, fp16 or bf16: gate, then up.
        a_RI: stacked A `[R, I]`, rows may be strided.
        activation: name "silu", "gelu_tanh" or "gelu".
        out: tensor `[T, I]` to write the result to; may be the gate half of `gate_up_TJ`.
        xa_out: tensor `[T, R]` to write out · Aᵀ to, rows may be strided.

    Raises:
        ValueError: Shapes, dtypes, layout or the activation's name do not fit, or `can_fuse` says no.
    """
    op.validate(gate_up_TJ, activation, act_TI=(("out", out),))
    (tokens, size), ranks = out.shape, len(a_RI)
    for name, tensor, shape in (("a", a_RI, (ranks, size)), ("xa_out", xa_out, (tokens, ranks))):
        if tensor.shape != shape or tensor.dtype != gate_up_TJ.dtype or tensor.stride(1) != 1:
            raise ValueError(
                f"{name} must be {shape} {gate_up_TJ.dtype}, its columns side by side, "
                f"not {tuple(tensor.shape)} {tensor.dtype} strided {tensor.stride()}"
            )
    if not use_kernels(gate_up_TJ):
        op.forward(gate_up_TJ, activation=activation, out=out)
        project(out, a_RI, xa_out)
        return
    if not can_fuse([ranks], gate_up_TJ.dtype):
        raise ValueError(f"rank {ranks} in {gate_up_TJ.dtype} is not done in one kernel")
    from burnish_kernels.swiglu.adapted.kernel import launch_forward

    if tokens:
        launch_forward(gate_up_TJ, a_RI, out, xa_out, activation)


def backward_adapted(
    dact_TI: torch.Tensor,
    gate_up_TJ: torch.Tensor,
    *,
    activation: str,
    act: OuterProduct | None = None,
    gate: OuterProduct | None = None,
    up: OuterProduct | None = None,
    out: torch.Tensor | None = None,
    largest_out: torch.Tensor | None = None,
    factor_J: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the gradient of the stacked gate and up, and sums over the tokens with it and with the activation.

    Args:
        dact_TI: gradient `[T, I]` of the activation's result.
        gate_up_TJ: input `[T, 2I]` given to `op.forward`.
        activation: same as in `op.forward`.
        act: product with the recomputed activation (the gradient of the down projection's A).
        gate: product with the gradient of gate (the gradient of its B, transposed).
        up: product with the gradient of up (the gradient of its B, transposed).
        out: tensor `[T, 2I]` to write the gradient to; may be `gate_up_TJ` itself.
        largest_out: tensor `[T]` fp32 to write the largest magnitude of each row of the gradient times `factor_J` to,
            with which `eight_bit_linear.projected.op.project_codes` quantizes it; None: none.
        factor_J: factor of each column `[2I]` fp32; None: none.

    Returns:
        The gradient `[T, 2I]` of gate, then of up.

    Raises:
        ValueError: Shapes, dtypes, layout or the activation's name do not fit, or `can_fuse` says no.
    """
    op.validate(gate_up_TJ, activation, act_TI=(("dact", dact_TI),), stacked_TJ=(("out", out),))
    outers = [act, gate, up]
    for name, outer in zip(("act", "gate", "up"), outers, strict=True):
        _validate(name, outer, dact_TI)
    there = [outer for outer in outers if outer is not None]
    _validate_largest(largest_out, factor_J, gate_up_TJ)
    if not use_kernels(gate_up_TJ):
        dgate_up_TJ = _backward_plain(dact_TI, gate_up_TJ, activation, outers, out)
        if largest_out is not None:
            wide_TJ = dgate_up_TJ.float() if factor_J is None else dgate_up_TJ.float() * factor_J
            largest_out.copy_(wide_TJ.abs().amax(dim=1))
        return dgate_up_TJ
    ranks = [0 if outer is None else outer.factor_TR.shape[1] for outer in outers]
    if not can_fuse(ranks, gate_up_TJ.dtype):
        raise ValueError(f"ranks {ranks} in {gate_up_TJ.dtype} are not done in one kernel")
    from burnish_kernels.lora_linear.launch_kernels import launch_join_outers
    from burnish_kernels.swiglu.adapted.kernel import launch_backward

    dgate_up_TJ = torch.empty_like(gate_up_TJ, memory_format=torch.contiguous_format) if out is None else out
    tokens, size = dact_TI.shape
    if not tokens:
        return dgate_up_TJ
    plan = backward_plan(tokens, size, gate_up_TJ.dtype.itemsize, ranks, largest=largest_out is not None)
    parts = torch.empty((plan.splits, sum(ranks), size), dtype=torch.float32, device=gate_up_TJ.device)
    factors = [None if outer is None else outer.factor_TR for outer in outers]
    launch_backward(
        dact_TI=dact_TI,
        gate_up_TJ=gate_up_TJ,
        dgate_up_TJ=dgate_up_TJ,
        factors=factors,
        plan=plan,
        parts=parts,
        activation=activation,
        largest_T=largest_out,
        factor_J=factor_J,
    )
    first_rows = [sum(ranks[:index]) for index, rank in enumerate(ranks) if rank]
    launch_join_outers(
        parts,
        [outer.out_rI for outer in there],
        [outer.scale for outer in there],
        first_columns=[0] * len(there),
        first_rows=first_rows,
    )
    return dgate_up_TJ


def _backward_plain(
    dact_TI: torch.Tensor,
    gate_up_TJ: torch.Tensor,
    activation: str,
    outers: Sequence[OuterProduct | None],
    out: torch.Tensor | None,
) -> torch.Tensor:
    """Run the operations one after the other."""
    act_TI = None if outers[0] is None else torch.empty_like(dact_TI, memory_format=torch.contiguous_format)
    dgate_up_TJ = op.backward(dact_TI, gate_up_TJ, activation=activation, out=out, act_out=act_TI)
    for outer, wide_TI in zip(outers, (act_TI, *dgate_up_TJ.chunk(2, dim=1)), strict=True):
        if outer is not None and wide_TI is not None:
            outer_accumulate(outer.factor_TR, wide_TI, [outer.out_rI], [outer.scale])
    return dgate_up_TJ


def _validate_largest(largest_T: torch.Tensor | None, factor_J: torch.Tensor | None, gate_up_TJ: torch.Tensor) -> None:
    rows, columns = gate_up_TJ.shape
    for name, tensor, size in (("largest_out", largest_T, rows), ("factor", factor_J, columns)):
        if tensor is None:
            continue
        if tensor.shape != (size,) or tensor.dtype != torch.float32 or not tensor.is_contiguous():
            raise ValueError(f"{name} must be [{size}] fp32, not {tuple(tensor.shape)} {tensor.dtype}")


def _validate(name: str, outer: OuterProduct | None, dact_TI: torch.Tensor) -> None:
    if outer is None:
        return
    (tokens, size), (factor, sums) = dact_TI.shape, outer[:2]
    if factor.ndim != 2 or factor.shape[0] != tokens or factor.dtype != dact_TI.dtype or factor.stride(1) != 1:
        raise ValueError(
            f"the factor of {name} must be [{tokens}, R] {dact_TI.dtype}, its columns side by side, "
            f"not {tuple(factor.shape)} {factor.dtype} strided {factor.stride()}"
        )
    if sums.ndim != 2 or sums.shape[0] > factor.shape[1] or sums.shape[1] != size:
        raise ValueError(f"the sums of {name} must be [at most {factor.shape[1]}, {size}], not {tuple(sums.shape)}")
    if sums.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"the sums of {name} are accumulated in fp32, not {sums.dtype}")
