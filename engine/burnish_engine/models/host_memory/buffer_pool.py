"""A pool of device buffers that tensors of one name use one after another."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch


@dataclass
class _Buffer:
    memory: torch.Tensor
    tensor: torch.Tensor | None = None


class BufferPool:
    """A pool of device buffers by name, as many of each as are needed at once.

    Args:
        device: device that holds the buffers.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._slots: dict[str, list[_Buffer]] = {}
        self._sizes: dict[str, int] = {}

    @property
    def counts(self) -> dict[str, int]:
        """Number of buffers by name."""
        return {name: len(slots) for name, slots in self._slots.items()}

    def reserve(self, name: str, count: int, size: int, dtype: torch.dtype) -> None:
        """Allocate buffers. Buffers that are added later, or again after `clear`, have the same size.

        Args:
            name: name of the tensors that will use them.
            count: number of buffers.
            size: elements of the largest tensor.
            dtype: dtype of the elements.
        """
        self._sizes[name] = size
        self._make(name, count, size, dtype)

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return an uninitialized tensor in a free buffer that is large enough, or else in a new one."""
        size = prod(shape)
        free = [one for one in self._slots.get(name, ()) if one.tensor is None and one.memory.numel() >= size]
        if not free:
            self._make(name, 1, max(size, self._sizes.get(name, 0)), dtype)
            free = self._slots[name][-1:]
        free[0].tensor = free[0].memory[:size].view(shape)
        return free[0].tensor

    def release(self, tensor: torch.Tensor) -> None:
        """Mark the buffer of a tensor from `take` as free; do nothing for other tensors."""
        for slot in (slot for slots in self._slots.values() for slot in slots):
            if slot.tensor is tensor:
                slot.tensor = None

    def clear(self) -> None:
        """Free all buffers."""
        self._slots.clear()

    def _make(self, name: str, count: int, size: int, dtype: torch.dtype) -> None:
        made = [_Buffer(torch.empty(size, dtype=dtype, device=self._device)) for _ in range(count)]
        self._slots.setdefault(name, []).extend(made)
