"""Muon for many small matrices: torch's optimizer, with the matrices of one shape orthogonalized together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

_BATCH_ELEMENTS = 2**22
"""Largest count of numbers in matrices that are orthogonalized together; it bounds the temporary memory to 80 MB."""
_MATCHING_ADAMW = 0.2
"""Factor on the root of the longer side that gives the usual size of AdamW's steps (Liu et al. 2025, arXiv
2502.16982)."""


class BatchedMuon(torch.optim.Muon):
    """`torch.optim.Muon(adjust_lr_fn="match_rms_adamw")`, up to rounding, with the same state.

    torch moves one matrix after the other, in some twenty launches each; the adapter of a small model has hundreds of
    matrices, which takes half a second on any GPU.
    """

    def __init__(self, params: Any, **options: Any) -> None:
        super().__init__(params, adjust_lr_fn="match_rms_adamw", **options)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Take a step.

        Raises:
            ValueError: A closure was given; it would never be called.
        """
        if closure is not None:
            raise ValueError("a step takes the gradients that there are, and no closure")
        for group in self.param_groups:
            moving = [matrix for matrix in group["params"] if matrix.grad is not None]
            for batch in same_shape_batches([matrix.shape for matrix in moving]):
                self._step([moving[index] for index in batch], group)

    def _step(self, matrices: list[torch.Tensor], group: dict[str, Any]) -> None:
        """Take a step with matrices of one shape."""
        momenta = [self._momentum(matrix) for matrix in matrices]
        gradients = [matrix.grad for matrix in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        directions = torch._foreach_lerp(gradients, momenta, group["momentum"]) if group["nesterov"] else momenta
        stack_NRC = torch.stack(directions).bfloat16()
        moved_NRC = orthogonalized(stack_NRC, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rate = group["lr"] * update_scale(matrices[0].shape)
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(matrices, list(moved_NRC.to(matrices[0].dtype).unbind()), alpha=-rate)

    def _momentum(self, matrix: torch.Tensor) -> torch.Tensor:
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix.grad)
        found: torch.Tensor = state["momentum_buffer"]
        return found


def orthogonalized(
    stack_NRC: torch.Tensor, coefficients: tuple[float, float, float], steps: int, epsilon: float
) -> torch.Tensor:
    """Bring each matrix's singular values near 1, by Newton and Schulz's iteration (Jordan 2024).

    Args:
        stack_NRC: matrices, bf16.
        coefficients: coefficients of the quintic polynomial.
        steps: number of iterations.
        epsilon: least norm that a matrix is divided by.
    """
    linear, cubic, quintic = coefficients
    wide = stack_NRC.shape[1] <= stack_NRC.shape[2]
    found = stack_NRC if wide else stack_NRC.mT
    found = found / torch.linalg.matrix_norm(found, keepdim=True).clamp(min=epsilon)
    for _ in range(steps):
        gram = found @ found.mT
        found = torch.baddbmm(found, torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic), found, beta=linear)
    return found if wide else found.mT


def update_scale(shape: Sequence[int]) -> float:
    """Return the factor on the learning rate of a matrix of this shape."""
    return _MATCHING_ADAMW * math.sqrt(max(shape))


def same_shape_batches(shapes: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Group the indices of matrices of one shape, up to the memory bound of one batch."""
    by_shape = defaultdict(list)
    for index, shape in enumerate(shapes):
        by_shape[tuple(shape)].append(index)
    for shape, alike in by_shape.items():
        count = max(1, _BATCH_ELEMENTS // math.prod(shape))
        yield from (alike[first : first + count] for first in range(0, len(alike), count))
