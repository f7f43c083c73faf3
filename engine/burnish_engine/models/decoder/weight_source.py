"""The protocol of what a decoder reads its frozen weights from."""

from __future__ import annotations

from typing import Protocol

import torch


class WeightSource(Protocol):
    """A source of 16-bit or NF4 weights: a `Checkpoint`, or random values for a benchmark."""

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a tensor."""
        ...

    def names(self) -> list[str]:
        """Return the names of all tensors."""
        ...

    def read(self, name: str) -> torch.Tensor:
        """Return one small tensor."""
        ...

    def read_into(self, name: str, destination: torch.Tensor, rows: slice | None = None) -> None:
        """Fill a tensor with a stored one, or with some of its rows."""
        ...
