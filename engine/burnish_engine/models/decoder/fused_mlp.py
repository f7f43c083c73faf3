"""The feed-forward's activation fused with the adapter products around it, where the kernels can do so.

The tensors between the up and the down projection are the widest of a layer, and everything done to them is bound by
memory bandwidth: each pass over them that is saved counts. Without a GPU, with dropout or DoRA, with large ranks or
with few tokens the operations run one after the other; the results are the same up to rounding.

Shapes: T tokens, I width of the feed-forward, J = 2I, E a width extended by adapter columns (see `stacked_linear`).
"""

from __future__ import annotations

import torch

from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_kernels.dispatch import use_kernels
from burnish_kernels.swiglu.adapted import op as adapted


def forward(
    down: StackedLinear, gate_up_TJ: torch.Tensor, activated_TE: torch.Tensor, *, activation: str, out: torch.Tensor
) -> bool:
    """Apply the activation, and project down.

    Args:
        down: stack that reads the activation.
        gate_up_TJ: output of the gate and up projections.
        activated_TE: tensor from `down.new_input`; filled with the activation and its XAᵀ.
        activation: "silu", "gelu_tanh" or "gelu".
        out: tensor `[T, H]` for the output of `down`.

    Returns:
        Whether the kernels did it; False: nothing was done.
    """
    fits = down.stack.fused and adapted.can_fuse([down.rank], gate_up_TJ.dtype)
    if not (fits and use_kernels(gate_up_TJ) and adapted.fills(len(gate_up_TJ))) or _goes_alone(down):
        return False

    def fill(a_RK: torch.Tensor) -> None:
        adapted.forward_adapted(
            gate_up_TJ,
            a_RK,
            activation=activation,
            out=activated_TE[:, : down.inputs],
            xa_out=activated_TE[:, down.inputs :],
        )

    down.forward_filled(activated_TE, fill, out)
    return True


def backward(
    down: StackedLinear,
    gate_up: StackedLinear,
    dy_TE: torch.Tensor,
    dact_TI: torch.Tensor,
    gate_up_TJ: torch.Tensor,
    xa_TR: torch.Tensor,
    *,
    activation: str,
    out: torch.Tensor,
    largest_out: torch.Tensor | None = None,
) -> bool:
    """Differentiate the activation, and accumulate down's gradients of A and gate_up's of B.

    Args:
        down: stack that reads the activation.
        gate_up: stack that makes the activation's input.
        dy_TE: gradient as `down.input_gradient` left it.
        dact_TI: gradient that `down.input_gradient` returned.
        gate_up_TJ: output of `gate_up`.
        xa_TR: XAᵀ of `gate_up`'s input.
        activation: "silu", "gelu_tanh" or "gelu".
        out: tensor `[T, J]` for the gradient of `gate_up_TJ`.
        largest_out: tensor from `gate_up.new_largest` to fill; None: none.

    Returns:
        Whether the kernels did it; False: nothing was done.
    """
    if not use_kernels(dact_TI) or _goes_alone(down) or _goes_alone(gate_up) or len(down.stack.adapters) > 1:
        return False
    halves = _halves(gate_up, xa_TR)
    if halves is None:
        return False
    act = None
    if down.rank:
        act = adapted.OuterProduct(dy_TE[:, down.outputs :], down.gradients.a[0])  # the scale is in dY·sB already
    ranks = [0 if outer is None else outer.factor_TR.shape[1] for outer in (act, *halves)]
    if not adapted.can_fuse(ranks, dact_TI.dtype):
        return False
    adapted.backward_adapted(
        dact_TI,
        gate_up_TJ,
        activation=activation,
        act=act,
        gate=halves[0],
        up=halves[1],
        out=out,
        largest_out=largest_out,
        factor_J=gate_up.frozen.gradient_factor_N,
    )
    return True


def _halves(gate_up: StackedLinear, xa_TR: torch.Tensor) -> list[adapted.OuterProduct | None] | None:
    """Return the factors of B's gradients for gate and for up; None where an adapter fits neither.

    An adapter of both at once (Phi's) is in both.
    """
    stack, size = gate_up.stack, gate_up.outputs // 2
    found: list[adapted.OuterProduct | None] = [None, None]
    for adapter, first, b in zip(stack.adapters, stack.firsts, gate_up.gradients.b, strict=True):
        if adapter.first_row % size or adapter.rows % size:
            return None
        for half in range(adapter.first_row // size, (adapter.first_row + adapter.rows) // size):
            row = half * size - adapter.first_row
            factor = xa_TR[:, first : first + adapter.padded]
            found[half] = adapted.OuterProduct(factor, b[row : row + size].t(), adapter.scale)
    return found


def _goes_alone(stack: StackedLinear) -> bool:
    """Return whether a stack drops out parts of its input or scales its outputs, which is not fused."""
    return stack.is_dora or (stack.drop is not None and stack.drop.probability > 0)
