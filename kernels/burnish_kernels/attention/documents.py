"""The boundaries of the documents in a packed batch, shared by all attention kernels of one micro-batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from burnish_kernels.attention.tiles import document_rows, document_tiles


@dataclass(frozen=True)
class Documents:
    """The boundaries of the documents in a pack, on the device of the tensors.

    Attributes:
        start_T: first row of each row's document, int32 `[T]`.
        end_T: one past the last row of each row's document, int32 `[T]`.
        tiles_G4: tiles from `tiles.document_tiles`, int32 `[tile_capacity(T, tile_rows), 4]`.
        tile_rows: most rows of a tile.
    """

    start_T: torch.Tensor
    end_T: torch.Tensor
    tiles_G4: torch.Tensor
    tile_rows: int

    @classmethod
    def from_boundaries(
        cls, boundaries: NDArray[np.integer], total_rows: int, tile_rows: int, device: torch.device | str
    ) -> Self:
        """Describe documents on the device.

        Args:
            boundaries: first row of each document, then `total_rows`.
            total_rows: rows of the pack, padding included.
            tile_rows: most rows of a tile, usually `tile_rows(head_dim, dtype, device)`.
            device: device that the tensors are put on.

        Raises:
            ValueError: The boundaries do not rise from 0 to `total_rows`.
        """
        start_T, end_T = document_rows(boundaries, total_rows)
        tiles_G4 = document_tiles(boundaries, tile_rows, total_rows)
        on_device = [torch.from_numpy(array).to(device) for array in (start_T, end_T, tiles_G4)]
        return cls(on_device[0], on_device[1], on_device[2], tile_rows)

    def from_row(self, first: int) -> Documents:
        """Return the same documents, of which kernels compute the output from this row on; before, it is undefined."""
        is_wanted_G1 = (self.tiles_G4[:, 0] + self.tiles_G4[:, 1] > first)[:, None]
        return replace(self, tiles_G4=self.tiles_G4 * is_wanted_G1)
