"""The protocol of what a decoder reads its frozen weights from."""

from __future__ import annotations

from typing import Protocol

import torch

from burnish_kernels.gguf_blocks.blocks import GgufBlocks


class WeightSource(Protocol):
    """A source of weights in 16 bits, NF4 or blocks of GGUF: a `Checkpoint`, or random values for a benchmark."""

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

    def block_type(self, name: str) -> str:
        """Return the GGUF type of a weight that is stored in its blocks; empty for other tensors."""
        ...

    def read_blocks(self, name: str) -> GgufBlocks:
        """Return a weight that is stored in blocks, on the CPU."""
        ...
