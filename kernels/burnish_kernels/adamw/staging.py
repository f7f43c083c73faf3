"""Upload settings from the host to the device without waiting."""

from __future__ import annotations

import time

import torch

_POLL_S = 0.0002  # while the device still has to read what the host wants to overwrite


class PinnedStaging:
    """A ring of pinned buffers, because the host may be steps ahead and must not overwrite unread settings."""

    TURNS = 8

    def __init__(self, elements: int) -> None:
        self._pinned = torch.zeros(self.TURNS, elements, dtype=torch.float64, pin_memory=True)
        self._read: list[torch.cuda.Event | None] = [None] * self.TURNS
        self._turn = 0

    def upload(self, values: list[float], target: torch.Tensor) -> None:
        """Copy `elements` numbers into `target` (fp64) behind what is queued on the current stream."""
        event = self._read[self._turn]
        if event is None:
            event = self._read[self._turn] = torch.cuda.Event()
        else:
            while not event.query():  # only a host that is many steps ahead comes here
                time.sleep(_POLL_S)
        staged = self._pinned[self._turn]
        staged.copy_(torch.tensor(values, dtype=torch.float64))
        target.copy_(staged, non_blocking=True)
        event.record()
        self._turn = (self._turn + 1) % self.TURNS
