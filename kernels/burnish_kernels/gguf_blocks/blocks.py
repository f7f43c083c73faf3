"""A weight in one of GGUF's block types, as its bytes lie in the file."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from burnish_kernels.gguf_blocks.types import BLOCK_TYPES, row_bytes


@dataclass(frozen=True)
class GgufBlocks:
    """One weight in blocks.

    Attributes:
        data: bytes of the rows `[N, K / values * bytes]` uint8, one behind the other.
        kind: name of the type, one of `BLOCK_TYPES`.
    """

    data: torch.Tensor
    kind: str

    @property
    def shape(self) -> tuple[int, int]:
        """Rows N and columns K of the weight."""
        own = BLOCK_TYPES[self.kind]
        return self.data.shape[0], self.data.shape[1] // own.bytes * own.values

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors by field name."""
        return {"data": self.data}

    def check(self) -> None:
        """Raise ValueError unless the bytes are rows of whole blocks."""
        if self.kind not in BLOCK_TYPES:
            raise ValueError(f"blocks must be of one of {sorted(BLOCK_TYPES)}, not {self.kind}")
        data, size = self.data, BLOCK_TYPES[self.kind].bytes
        if data.ndim != 2 or data.dtype != torch.uint8 or not data.is_contiguous() or data.shape[1] % size:
            raise ValueError(f"rows must be whole blocks of {size} bytes, not {tuple(data.shape)} {data.dtype}")


def empty(shape: tuple[int, int], kind: str, device: torch.device | str) -> GgufBlocks:
    """Allocate a weight `[N, K]`, uninitialized.

    Raises:
        ValueError: The columns do not fill whole blocks.
    """
    return GgufBlocks(torch.empty(shape[0], row_bytes(kind, shape[1]), dtype=torch.uint8, device=device), kind)
