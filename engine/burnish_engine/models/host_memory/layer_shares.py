"""Frozen weights of layers that the ranks of a run share: each holds a part of every layer, and reads the others'.

A rank is one process with a device of its own. Weights never change, so a rank may read at any time without the others
doing anything: passes, evaluations and trials need not be the same on all ranks, and what fails on one leaves the
others alone. Only loading takes all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import torch

PART_ALIGNMENT = 256
"""Bytes at whose multiples the parts of a layer begin."""


class RankMemory(Protocol):
    """Memory of the ranks' devices, of which each rank writes its own and reads all.

    Attributes:
        rank: number of this rank, from 0.
        size: number of ranks.
    """

    rank: int
    size: int

    def allocate(self, count: int) -> Sequence[torch.Tensor]:
        """Allocate memory on every rank, and wait until all have; every rank must do so alike.

        Args:
            count: bytes of each rank.

        Returns:
            Every rank's, in order, as uint8 of one dimension on this rank's device; the own is to be filled.

        Raises:
            MemoryError: A rank has no room for it.
            SetupError: One rank's device cannot read another's memory.
        """
        ...

    def wait_until_filled(self) -> None:
        """Wait until every rank has filled its own.

        Raises:
            MemoryError: A rank ran out of memory meanwhile.
        """
        ...


class LayerShares:
    """Holds this rank's part of some layers' weights, and knows where those of the others are.

    A layer is one block of bytes (`weight_ring.carve`). Rank r holds the r-th of equal parts, the last of which may be
    shorter or empty.

    Args:
        sizes: number of bytes of each such layer, by the layer's number; empty: none are shared.
        memory: memory of all ranks; needed where a layer is shared.
    """

    def __init__(self, sizes: Mapping[int, int], memory: RankMemory | None) -> None:
        assert memory is not None or not sizes
        self._memory, self._sizes, self._starts = memory, sizes, dict[int, int]()
        total = 0
        for layer in sorted(sizes):
            self._starts[layer] = total
            total += self._part(layer)
        self._parts: Sequence[torch.Tensor] = memory.allocate(total) if memory and sizes else ()

    @property
    def bytes(self) -> int:
        """Number of bytes that this rank holds."""
        return self._parts[self._memory.rank].nbytes if self._parts and self._memory else 0

    @property
    def own(self) -> dict[int, torch.Tensor]:
        """This rank's part of each layer, by the layer's number, uint8 of one dimension."""
        return {layer: self._place(layer, self._memory.rank)[0] for layer in self._starts} if self._memory else {}

    def __contains__(self, layer: object) -> bool:
        """Return whether a layer is shared."""
        return layer in self._starts

    def keep(self, layer: int, block: torch.Tensor) -> None:
        """Keep this rank's part of a layer.

        Args:
            layer: number of the layer.
            block: all of its bytes, uint8 of one dimension.
        """
        assert self._memory is not None
        stored, own = self._place(layer, self._memory.rank)
        stored.copy_(block[own])

    def pieces(self, layer: int, target: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the parts of a layer, and where each belongs in the target; ranks begin with different ones.

        Args:
            layer: number of the layer.
            target: memory for all of its bytes, uint8 of one dimension.
        """
        assert self._memory is not None
        for turn in range(1, self._memory.size + 1):
            stored, span = self._place(layer, (self._memory.rank + turn) % self._memory.size)
            if len(stored):
                yield stored, target[span]

    def wait_until_kept(self) -> None:
        """Wait until every rank has kept its part of every layer."""
        if self._memory is not None and self._sizes:
            self._memory.wait_until_filled()

    def _part(self, layer: int) -> int:
        """Return the bytes of a layer that each rank has room for."""
        assert self._memory is not None
        return part_bytes(self._sizes[layer], self._memory.size)

    def _place(self, layer: int, rank: int) -> tuple[torch.Tensor, slice]:
        """Return a rank's part of a layer, and which bytes of the layer these are."""
        part, size, start = self._part(layer), self._sizes[layer], self._starts[layer]
        span = slice(min(rank * part, size), min((rank + 1) * part, size))
        return self._parts[rank][start : start + span.stop - span.start], span


def part_bytes(size: int, ranks: int) -> int:
    """Return the bytes that each of so many ranks holds of a layer of `size` bytes."""
    return -(-size // (ranks * PART_ALIGNMENT)) * PART_ALIGNMENT
