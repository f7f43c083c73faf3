"""How far each matrix goes: validate, allocate, launch. CUDA tensors use the kernels, others the reference.

Two launches before the update and no word from the host, so the whole step can be captured.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from burnish_kernels.adamw.layout import FlatLayout
from burnish_kernels.adamw.op import AdamW
from burnish_kernels.dispatch import use_kernels
from burnish_kernels.magma import reference
from burnish_kernels.magma.reference import NEVER, Options

__all__ = ["NEVER", "Magma", "Options"]


class Magma:
    """A modifier of `adamw.op.AdamW`: set it as the optimizer's `modifier`.

    Attributes:
        alignment: `[S]` fp32 on the device: s of each block. With the optimizer's counters it is all of the state.
        last: `[S]` fp32 on the device: how far each block went in the last step that was taken.

    Args:
        layout: Of the optimizer.
        draws: For each segment which draw it follows, from 0; equal numbers go together. `NEVER`: it is not masked.
        seed: Of all draws.
        options: Variants.

    Raises:
        ValueError: An option or a draw is impossible.
    """

    def __init__(self, layout: FlatLayout, draws: Sequence[int], seed: int, options: Options | None = None) -> None:
        options = options or Options()
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

    def displacement(self, optimizer: AdamW, factors: torch.Tensor) -> torch.Tensor:
        """See `adamw.op.Modifier`."""
        step = optimizer.counters[:1]
        rest = (self._draws, self._seed, step, factors, self.alignment, self.last, self.options)
        if use_kernels(self.last):
            from burnish_kernels.magma.kernel import launch_decide, launch_sums

            launch_sums(optimizer.grad, optimizer.exp_avg, self._sums)
            launch_decide(self._sums, self._blocks, *rest)
        else:
            reference.block_sums(self._layout, optimizer.grad, optimizer.exp_avg, self._sums)
            reference.decide(self._sums, *rest)
        return self.last


def _validate(options: Options) -> None:
    if not 0.0 < options.probability <= 1.0:
        raise ValueError(f"the probability must be above 0 and at most 1, not {options.probability}")
    if not options.temperature > 0.0:
        raise ValueError(f"the temperature must be above 0, not {options.temperature}")
    if not 0.0 <= options.decay <= 1.0:
        raise ValueError(f"the decay must be from 0 to 1, not {options.decay}")
    if not options.start > 0.0 or not options.rate > 0.0:
        raise ValueError(f"start and rate must be above 0, not {options.start} and {options.rate}")
