"""Tiles of the grouped product, as data. Their height is the order's, usually `moe_sort.order.TILE_ROWS`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from burnish_kernels.tuning import choose, device_of

Storage = Literal["dense", "nf4", "mxfp4"]

STORAGES: tuple[Storage, ...] = ("dense", "nf4", "mxfp4")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class LinearTile:
    """The configuration of one grouped product.

    Attributes:
        outputs: outputs of a tile.
        reduction: columns multiplied at a time, at least 64 where they are packed.
        warps: warps of a program.
        stages: depth of the software pipeline.
        group: tiles of rows that share their weights through the second-level cache.
        swap: 1: the transposed product is computed, with the weight as the left operand.
    """

    outputs: int
    reduction: int
    warps: int
    stages: int
    group: int = 8
    swap: int = 0


INTERPRETED = LinearTile(64, 64, 4, 1, 2)
FULL = LinearTile(64, 64, 8, 1)
"""fp32, without tensor cores."""
HOPPERS = (90,)
"""Compute capabilities that have the shared memory for tiles of 256 outputs."""
_HOPPER: dict[Storage, tuple[LinearTile, ...]] = {
    "dense": (LinearTile(256, 64, 8, 3),),
    "nf4": (LinearTile(128, 64, 4, 3),),
    "mxfp4": (LinearTile(128, 64, 4, 3),),
}
_OTHERS: dict[Storage, tuple[LinearTile, ...]] = dict.fromkeys(
    STORAGES, (LinearTile(128, 64, 8, 3), LinearTile(64, 64, 4, 3))
)
"""Tiles of 16-bit types by storage, the default first and what tuning tries after it, within the 99 KiB of RTX cards.

`_HOPPER` is the fastest measured on an H100; these are not measured on other cards."""


def half_tiles(storage: Storage, capability: int) -> tuple[LinearTile, ...]:
    """Return the tiles of 16-bit types on a compute capability, the default first."""
    return (_HOPPER if capability in HOPPERS else _OTHERS)[storage]


UNPACK_ROWS: dict[Storage, int] = {"nf4": 192, "mxfp4": 320}
"""Rows of an expert from which unpacking pays, interpolated between products measured on an H100."""


def unpack_key(storage: Storage) -> str:
    """Return the name of the choice of `UNPACK_ROWS` in tuning tables."""
    return f"unpack-{storage}"


def key(storage: Storage, *, transposed: bool) -> str:
    """Return the name of the choice in tuning tables."""
    return f"{storage}-{'transposed' if transposed else 'forward'}"


def choose_tile(storage: Storage, dtype: torch.dtype, *, transposed: bool, device: torch.device) -> LinearTile:
    """Return the configuration of a product.

    Args:
        storage: form of the weights.
        dtype: type of the operands.
        transposed: whether the weights are multiplied from their outputs' side, as for the input's gradient.
        device: device that it runs on.
    """
    if device.type != "cuda":
        return INTERPRETED
    if dtype == torch.float32:
        return FULL
    found = device_of(device)
    allowed = half_tiles(storage, found.capability if found else 0)
    return choose("grouped_linear", key(storage, transposed=transposed), allowed[0], allowed=allowed, device=device)


def unpacking_pays(storage: Storage, rows_an_expert: float, device: torch.device) -> bool:
    """Return whether packed weights are better unpacked group by group than decoded in the product.

    Args:
        storage: form of the weights.
        rows_an_expert: mean number of sorted rows of an expert.
        device: device that it runs on.
    """
    if storage == "dense":
        return False
    chosen = choose("grouped_linear", unpack_key(storage), {"rows": UNPACK_ROWS[storage]}, device=device)
    return rows_an_expert >= chosen["rows"]


def rank_block(ranks: int) -> int:
    """Return the adapter's columns multiplied at a time: a power of two, 16 to 64."""
    return min(64, max(16, 1 << max(ranks - 1, 0).bit_length()))
