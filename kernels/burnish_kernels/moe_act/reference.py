"""The experts' activation in plain PyTorch: the definition of the kernels' result, and the path without a GPU.

Computed in at least fp32 and rounded once. `forward` can be differentiated by autograd, `backward` is the same gradient
written out. A clamped value at its bound passes its gradient on, as `torch.clamp` does.

Shapes: P sorted rows, I intermediate size, J = 2I.
"""

from __future__ import annotations

import math

import torch

from burnish_kernels.moe_act.activation import ExpertActivation


def forward(gate_up_PJ: torch.Tensor, activation: ExpertActivation) -> torch.Tensor:
    """Compute the activation `[P, I]`; see `op.forward`."""
    gate_PI, up_PI = _halves(_wide(gate_up_PJ), activation)
    if activation.name == "clamped":
        gate_PI, up_PI = gate_PI.clamp(max=activation.limit), up_PI.clamp(-activation.limit, activation.limit)
        act_PI = (up_PI + 1) * (gate_PI * torch.sigmoid(activation.alpha * gate_PI))
    else:
        act_PI = _activated(gate_PI, activation) * up_PI
    return act_PI.to(gate_up_PJ.dtype)


def backward(
    dact_PI: torch.Tensor, gate_up_PJ: torch.Tensor, weights_P: torch.Tensor, activation: ExpertActivation
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of gate and up `[P, J]` and of the weights `[P]`, for the unweighted gradient of the output.

    See `op.backward`.
    """
    gate_PI, up_PI = _halves(_wide(gate_up_PJ), activation)
    dact_PI = _wide(dact_PI)
    alpha = activation.alpha if activation.name == "clamped" else 1.0
    passed_gate, passed_up = torch.ones_like(gate_PI), torch.ones_like(up_PI)
    if activation.name == "clamped":
        passed_gate = (gate_PI <= activation.limit).to(gate_PI.dtype)
        passed_up = (up_PI.abs() <= activation.limit).to(up_PI.dtype)
        gate_PI = gate_PI.clamp(max=activation.limit)
        up_PI = up_PI.clamp(-activation.limit, activation.limit) + 1
    if activation.name == "gelu_tanh":
        activated_PI, slope_PI = _activated(gate_PI, activation), gelu_slope(gate_PI)
    else:
        share_PI = torch.sigmoid(alpha * gate_PI)
        activated_PI, slope_PI = gate_PI * share_PI, share_PI * (1 + alpha * gate_PI * (1 - share_PI))
    dweights_P = (activated_PI * up_PI * dact_PI).sum(dim=1)
    weighted_PI = dact_PI * _wide(weights_P)[:, None]
    dgate_PI = weighted_PI * up_PI * slope_PI * passed_gate
    dup_PI = weighted_PI * activated_PI * passed_up
    dim = 2 if activation.interleaved else 1
    joined = torch.stack((dgate_PI, dup_PI), dim=dim) if dim == 2 else torch.cat((dgate_PI, dup_PI), dim=dim)
    return joined.flatten(1).to(gate_up_PJ.dtype), dweights_P


def gelu_slope(x: torch.Tensor) -> torch.Tensor:
    """Return the derivative of GELU's tanh formula."""
    root, cubic = math.sqrt(2 / math.pi), 0.044715
    tanh = torch.tanh(root * (x + cubic * x**3))
    return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * root * (1 + 3 * cubic * x**2)


def _activated(gate_PI: torch.Tensor, activation: ExpertActivation) -> torch.Tensor:
    if activation.name == "gelu_tanh":
        return torch.nn.functional.gelu(gate_PI, approximate="tanh")
    return torch.nn.functional.silu(gate_PI)


def _halves(gate_up_PJ: torch.Tensor, activation: ExpertActivation) -> tuple[torch.Tensor, torch.Tensor]:
    if activation.interleaved:
        return gate_up_PJ[:, ::2], gate_up_PJ[:, 1::2]
    gate_PI, up_PI = gate_up_PJ.chunk(2, dim=1)
    return gate_PI, up_PI


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
