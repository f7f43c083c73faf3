"""The order of token copies by expert, as tensors of fixed size that a captured graph can fill again.

A router that sends each of T tokens to k experts makes P = T·k positions; position t·k + s is slot s of token t. The
products of the experts read their rows in sorted order, tile by tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

TILE_ROWS = 128
"""Usual rows of a tile: the height of a product's program."""


@dataclass(frozen=True)
class ExpertOrder:
    """Positions sorted by expert.

    Attributes:
        order: position at each sorted row, `[P]` int32; ascending inside an expert.
        inverse: sorted row of each position, `[P]` int32.
        offsets: first sorted row of each expert, and P at the end, `[E + 1]` int32.
        tiles: expert and first sorted row of each tile, `[M, 2]` int32; -1 and 0 behind the last.
        tile_starts: first tile of each expert, and the number of tiles at the end, `[E + 1]` int32.
        tile_rows: most rows of a tile; a tile never reaches into another expert.
        slots: number of experts of a token, k.
    """

    order: torch.Tensor
    inverse: torch.Tensor
    offsets: torch.Tensor
    tiles: torch.Tensor
    tile_starts: torch.Tensor
    tile_rows: int
    slots: int

    @property
    def positions(self) -> int:
        """Number of sorted rows, P."""
        return self.order.shape[0]

    @property
    def experts(self) -> int:
        """Number of experts, E."""
        return self.offsets.shape[0] - 1


def most_tiles(positions: int, experts: int, tile_rows: int) -> int:
    """Return the most tiles that so many positions can make, however they are spread over the experts."""
    return positions // tile_rows + min(experts, positions)


def empty_order(positions: int, experts: int, slots: int, *, tile_rows: int, device: torch.device | str) -> ExpertOrder:
    """Allocate an order's tensors, uninitialized.

    Args:
        positions: number of positions, P.
        experts: number of experts, E.
        slots: number of experts of a token, k.
        tile_rows: most rows of a tile.
        device: device of the tensors.
    """

    def new(*size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.int32, device=device)

    tiles = most_tiles(positions, experts, tile_rows)
    return ExpertOrder(
        order=new(positions),
        inverse=new(positions),
        offsets=new(experts + 1),
        tiles=new(tiles, 2),
        tile_starts=new(experts + 1),
        tile_rows=tile_rows,
        slots=slots,
    )
