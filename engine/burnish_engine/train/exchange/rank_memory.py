"""Memory of all ranks, made while they load the model together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from typing_extensions import override

from burnish_engine.models.host_memory.layer_shares import RankMemory
from burnish_engine.train.exchange.collectives import Collectives
from burnish_engine.train.exchange.windows import SharedWindow


class RankWindows(RankMemory):
    """Memory of all ranks of a run: one window on each.

    Args:
        rank: number of this rank.
        size: number of ranks.
        collectives: operations over all ranks.
        agree: function that waits until all ranks have come here, and raises where one ran out of memory.
    """

    def __init__(self, rank: int, size: int, collectives: Collectives, agree: Callable[[], None]) -> None:
        self.rank, self.size = rank, size
        self._collectives, self._agree = collectives, agree
        self._window: SharedWindow | None = None

    @override
    def allocate(self, count: int) -> Sequence[torch.Tensor]:
        self._agree()  # all have let go of what they had before
        self._window = self._collectives.window(count)
        self._agree()  # all have room
        return self._window.open_all()

    @override
    def wait_until_filled(self) -> None:
        assert self._window is not None
        if self._window.own.is_cuda:
            torch.cuda.synchronize(self._window.own.device)
        self._agree()
