"""Compute the step scale of each matrix: validate, allocate, launch. CUDA tensors use the kernels, else the reference.

Two launches before the update need nothing from the host, so the whole step can be captured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from typing_extensions import override

from burnish_kernels.adamw.layout import FlatLayout
from burnish_kernels.adamw.op import FlatOptimizer, StepModifier
from burnish_kernels.dispatch import use_kernels
from burnish_kernels.magma import reference
from burnish_kernels.magma.reference import NEVER, MagmaOptions

__all__ = ["NEVER", "Magma", "MagmaOptions"]

LEAST = 1e-6
"""Least probability and temperature: the kernel divides by them in fp32, and draws have 31 bits."""


class Magma(StepModifier):
    """A modifier of an `adamw.op.FlatOptimizer`: set it as the optimizer's `modifier`.

    Attributes:
        alignment: running mean s `[S]` fp32 of each block, on the device. With the optimizer's counters it is all of
            the state.
        last: step scale `[S]` fp32 of each block in the last step that was taken, on the device.

    Args:
        layout: layout of the optimizer.
        draws: number of the draw that each segment follows, from 0; equal numbers are masked together. `NEVER`: it is
            not masked.
        seed: seed of all draws.
        options: variant of the method.

    Raises:
        ValueError: An option or a draw is impossible.
    """

    def __init__(
        self, layout: FlatLayout, draws: Sequence[int], seed: int, options: MagmaOptions | None = None
    ) -> None:
        options = options or MagmaOptions()
        _validate(options)
        if len(draws) != len(layout.segments) or min(draws) < NEVER:
            raise ValueError(f"there must be a draw of {NEVER} or more for each of {len(layout.segments)} segments")
        device, count = layout.tables.scales.device, len(draws)
        self.options, self._layout = options, layout
        self.alignment = torch.full((count,), options.start, dtype=torch.float32, device=device)
        self.last = torch.ones(count, dtype=torch.float32, device=device)
        self._draws = torch.tensor(draws, dtype=torch.int32).to(device)
        self._seed = torch.tensor([seed], dtype=torch.int64).to(device)
        self._blocks = reference.blocks_of(layout).to(device)
        sums = (layout.blocks, 3) if use_kernels(self.last) else (count, 3)
        self._sums = torch.zeros(sums, dtype=torch.float32, device=device)

    @property
    @override
    def momentum_after(self) -> bool:
        return self.options.momentum_after

    @override
    def step_scale(self, optimizer: FlatOptimizer, factors: torch.Tensor) -> torch.Tensor:
        # Where the momentum has advanced already, it is taken as it is.
        options = replace(self.options, momentum_after=False) if optimizer.advanced else self.options
        decision: dict[str, Any] = {
            "draws_S": self._draws,
            "seed": self._seed,
            "step": optimizer.counters[:1],
            "factors": factors,
            "alignment_S": self.alignment,
            "step_scale_S": self.last,
            "options": options,
        }
        if use_kernels(self.last):
            from burnish_kernels.magma.kernel import launch_decide, launch_sums

            launch_sums(optimizer.grad, optimizer.momentum, self._sums)
            launch_decide(partials_N3=self._sums, blocks_S2=self._blocks, **decision)
        else:
            reference.block_sums(self._layout, optimizer.grad, optimizer.momentum, self._sums)
            reference.decide(self._sums, **decision)
        return self.last


def _validate(options: MagmaOptions) -> None:
    if not LEAST <= options.probability <= 1.0:
        raise ValueError(f"the probability must be from {LEAST} to 1, not {options.probability}")
    if not LEAST <= options.temperature < math.inf:
        raise ValueError(f"the temperature must be {LEAST} or more, not {options.temperature}")
    if not 0.0 <= options.decay <= 1.0:
        raise ValueError(f"the decay must be from 0 to 1, not {options.decay}")
    for name in ("start", "rate"):
        if not 0.0 < getattr(options, name) < math.inf:
            raise ValueError(f"the {name} must be above 0, not {getattr(options, name)}")
