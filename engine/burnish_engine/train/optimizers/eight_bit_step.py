"""Take steps of 8-bit AdamW, whose moments only bitsandbytes has: codes, with one scale for each block of 256.

It launches, and waits, once for each tensor, so neighboring segments join, with the same bits, since no block meets
two segments. Small matrices stay alone, because bitsandbytes keeps their state in fp32.
"""

from __future__ import annotations

import torch
from typing_extensions import override

from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.train.optimizers.library_step import DirectStep, UpdateStep
from burnish_engine.train.optimizers.optimizer import Optimizers
from burnish_engine.train.optimizers.optimizer_state import momentum_8_bit
from burnish_engine.train.optimizers.trained_segments import SegmentGroup, TrainedSegments

_LEAST_8_BIT = 4096  # numbers; bitsandbytes keeps moments of smaller tensors in fp32


class EightBitStep(DirectStep):
    """Step without masks: the library changes the weights."""

    def __init__(self, section: TrainSection, segments: TrainedSegments) -> None:
        super().__init__(section, segments)
        self._padding = segments.padding()

    @override
    def _divide(self, segments: TrainedSegments) -> list[SegmentGroup]:
        return segments.joined(least=_LEAST_8_BIT, alike=True)

    @override
    def _move(self, step_scale: torch.Tensor | None) -> None:
        _step_on_default_stream(self._library, self.param.device)
        self.param.index_fill_(0, self._padding, 0.0)  # for which 8-bit moments, being coarse, may have a step
        self._finish()


class MaskedEightBitStep(UpdateStep):
    """Step with masks: the library leaves its update in a buffer, and its first moment is dequantized for the masks."""

    def __init__(self, section: TrainSection, segments: TrainedSegments) -> None:
        super().__init__(section, segments)
        self._momentum = self.new_flat()

    @override
    def _divide(self, segments: TrainedSegments) -> list[SegmentGroup]:
        return segments.joined(least=_LEAST_8_BIT)

    @property
    @override
    def momentum(self) -> torch.Tensor:
        """Momentum of all segments, dequantized at each call; 0 before the first step."""
        for piece, (_, value) in zip(self._pieces, self._named, strict=True):
            piece.view(self._momentum).copy_(momentum_8_bit(self._library, value))
        return self._momentum

    @override
    def _advance(self) -> None:
        _step_on_default_stream(self._library, self.param.device)


def _step_on_default_stream(library: Optimizers, device: torch.device) -> None:
    """Run the library's step in order with the current stream; bitsandbytes always launches on the default one."""
    if device.type != "cuda":
        library.step()
        return
    here, usual = torch.cuda.current_stream(device), torch.cuda.default_stream(device)
    usual.wait_stream(here)
    with torch.cuda.stream(usual):
        library.step()
    here.wait_stream(usual)
