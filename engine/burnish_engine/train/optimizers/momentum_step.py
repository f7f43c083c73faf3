"""Take steps of Lion and Muon: optimizers with no state but a momentum, which is one of our flat buffers."""

from __future__ import annotations

import torch
from typing_extensions import override

from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.train.optimizers.library_step import UpdateStep
from burnish_engine.train.optimizers.optimizer import Optimizers
from burnish_engine.train.optimizers.trained_segments import SegmentGroup, TrainedSegments


class _MomentumStep(UpdateStep):
    """Step of an optimizer that finds its momentum as views of a flat buffer, so that masks can read it there.

    Attributes:
        key: library's name for the momentum.
    """

    key: str

    def __init__(self, section: TrainSection, segments: TrainedSegments) -> None:
        super().__init__(section, segments)
        momentum = self.new_flat()
        self._flat_state = {self.key: momentum}
        views = {value: piece.view(momentum) for piece, (_, value) in zip(self._pieces, self._named, strict=True)}
        # Muon leaves segments that are no matrices to AdamW, whose moments the library keeps.
        beside = [part for part in self._library.parts if isinstance(part, torch.optim.AdamW)]
        for part in self._library.parts:
            if part not in beside:
                values = [value for group in part.param_groups for value in group["params"]]
                part.state.update({value: {self.key: views[value]} for value in values})
        self._saved = Optimizers(beside)


class LionStep(_MomentumStep):
    """Step of Lion, which treats each number by itself: all segments are one vector."""

    key = "exp_avg"

    @override
    def _divide(self, segments: TrainedSegments) -> list[SegmentGroup]:
        return segments.joined()


class MuonStep(_MomentumStep):
    """Step of Muon where it leaves some segments to AdamW, whose moments are the library's; else see `flat_muon`."""

    key = "momentum_buffer"
