"""Muon for many small matrices: torch's, with the matrices of one shape orthogonalized together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

_BATCH_ELEMENTS = 2**22
"""Matrices taken together have so many numbers at most, to bound what the work takes beside them: some 80 MB."""
_MATCHING_ADAMW = 0.2
"""Times the root of the longer side: the usual size of AdamW's steps (Liu et al. 2025, arXiv 2502.16982)."""


class BatchedMuon(torch.optim.Muon):
    """`torch.optim.Muon(adjust_lr_fn="match_rms_adamw")`, up to rounding, with the same state.

    torch takes one matrix after the other, in some twenty launches each; the adapter of a small model has hundreds, for
    which that is half a second on any GPU.
    """

    def __init__(self, params: Any, **options: Any) -> None:
        super().__init__(params, adjust_lr_fn="match_rms_adamw", **options)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Take a step.

        Raises:
            ValueError: There is a closure, which nothing here would call.
        """
        if closure is not None:
            raise ValueError("a step takes the gradients that there are, and no closure")
        for group in self.param_groups:
            moving = [matrix for matrix in group["params"] if matrix.grad is not None]
            for batch in batches([matrix.shape for matrix in moving]):
                self._step([moving[index] for index in batch], group)

    def _step(self, matrices: list[torch.Tensor], group: dict[str, Any]) -> None:
        """One for matrices of one shape."""
        momenta = [self._momentum(matrix) for matrix in matrices]
        gradients = [matrix.grad for matrix in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        directions = torch._foreach_lerp(gradients, momenta, group["momentum"]) if group["nesterov"] else momenta
        stack_NRC = torch.stack(directions).bfloat16()
        moved_NRC = orthogonalized(stack_NRC, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rate = group["lr"] * size_of_step(matrices[0].shape)
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
    """Each matrix with its singular values brought near 1, by Newton and Schulz's iteration (Jordan 2024).

    Args:
        stack_NRC: Matrices, bf16.
        coefficients: Of the quintic.
        steps: Of the iteration.
        epsilon: The least norm that a matrix is divided by.
    """
    linear, cubic, quintic = coefficients
    wide = stack_NRC.shape[1] <= stack_NRC.shape[2]
    found = stack_NRC if wide else stack_NRC.mT
    found = found / torch.linalg.matrix_norm(found, keepdim=True).clamp(min=epsilon)
    for _ in range(steps):
        gram = found @ found.mT
        found = torch.baddbmm(found, torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic), found, beta=linear)
    return found if wide else found.mT


def size_of_step(shape: Sequence[int]) -> float:
    """Times the learning rate, of a matrix of this shape."""
    return _MATCHING_ADAMW * math.sqrt(max(shape))


def batches(shapes: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Which matrices go together, by their numbers: those of one shape, as many as shall be."""
    by_shape = defaultdict(list)
    for index, shape in enumerate(shapes):
        by_shape[tuple(shape)].append(index)
    for shape, alike in by_shape.items():
        count = max(1, _BATCH_ELEMENTS // math.prod(shape))
        yield from (alike[first : first + count] for first in range(0, len(alike), count))
