"""xIELU in plain PyTorch: the definition that the kernel is compared with, and the path without a GPU.

Huang and Schlag 2024 (arXiv 2411.13010), as transformers has it (activations.py, `XIELUActivation`). Computed in at
least fp32 and rounded once, where transformers rounds each step.

`forward` can be differentiated by autograd, `backward` is the same gradient written out.

Shapes: T rows (tokens), I intermediate size.
"""

from __future__ import annotations

import torch
from torch.nn import functional


def constants(alpha_p: torch.Tensor, alpha_n: torch.Tensor, beta: torch.Tensor, eps: torch.Tensor) -> torch.Tensor:
    """Compute what the activation multiplies with, in the parameters' type as transformers does.

    Args:
        alpha_p: parameter of the quadratic part, one number.
        alpha_n: parameter of the exponential part, one number.
        beta: slope at 0, one number.
        eps: largest input of the exponential, one number.

    Returns:
        `[4]` in at least fp32: factor of the square, factor of the exponential, beta and eps.
    """
    square, exponential = functional.softplus(alpha_p), beta + functional.softplus(alpha_n)
    return _wide(torch.stack([one.reshape(()) for one in (square, exponential, beta, eps)]))


def forward(x_TI: torch.Tensor, constants_4: torch.Tensor) -> torch.Tensor:
    """Compute the activation; see `op.forward`."""
    wide_TI, (square, exponential, beta, eps) = _wide(x_TI), constants_4.unbind()
    curved_TI = torch.where(
        wide_TI > 0,
        square * wide_TI * wide_TI,
        exponential * (torch.expm1(torch.minimum(wide_TI, eps)) - wide_TI),
    )
    return (curved_TI + beta * wide_TI).to(x_TI.dtype)


def backward(dact_TI: torch.Tensor, x_TI: torch.Tensor, constants_4: torch.Tensor) -> torch.Tensor:
    """Compute the input's gradient; see `op.backward`."""
    wide_TI, (square, exponential, beta, eps) = _wide(x_TI), constants_4.unbind()
    slope_TI = torch.where(wide_TI < eps, torch.expm1(wide_TI), -1.0).mul_(exponential)
    slope_TI = torch.where(wide_TI > 0, 2.0 * square * wide_TI, slope_TI).add_(beta)
    return slope_TI.mul_(dact_TI).to(x_TI.dtype)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
