"""Take masked steps of Adafactor, which scales them by the size of the weights."""

from __future__ import annotations

from math import sqrt

import torch
from typing_extensions import override

from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.train.optimizers.library_step import KEPT, KEPT_DECAY, UpdateStep
from burnish_engine.train.optimizers.optimizer import RATE
from burnish_engine.train.optimizers.trained_segments import TrainedSegments


class MaskedAdafactorStep(UpdateStep):
    """Step with masks: Adafactor sees a buffer of zeros as weights, so the size of the weights is passed as `eps[1]`.

    That is its least size, which it takes where the weights are smaller. Each tensor is a group of its own, which can
    hold the size of the tensor.
    """

    def __init__(self, section: TrainSection, segments: TrainedSegments) -> None:
        super().__init__(section, segments)
        self._flat_state = {KEPT: self.new_flat()}
        [part] = self._library.parts
        [group] = part.param_groups
        self._least_size = group["eps"][1]
        part.param_groups[:] = [
            {**group, "params": [value], RATE: rate}
            for (_, value), rate in zip(self._named, segments.rates, strict=True)
        ]

    @override
    def _advance(self) -> None:
        self.momentum.lerp_(self.grad, 1 - KEPT_DECAY)
        self._update_sizes()
        self._library.step()

    def _update_sizes(self) -> None:
        """Set each group's `eps[1]` to the root mean square of its weights.

        Adafactor's learning rate already has the segment's rate, by which `apply_update_` will multiply once more, so
        the size is divided by it.
        """
        [part] = self._library.parts
        weights = [piece.view(self.param) for piece in self._pieces]
        sizes = torch.stack(torch._foreach_norm(weights)).tolist()
        for group, view, size in zip(part.param_groups, weights, sizes, strict=True):
            wanted = max(self._least_size, size / sqrt(view.numel()))
            group["eps"] = (group["eps"][0], wanted / group[RATE])
