"""Memory of the device that tensors use one after another, by the name of what they are."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch


@dataclass
class _Slot:
    memory: torch.Tensor
    tenant: torch.Tensor | None = None


class Slots:
    """As many places for each name as are needed at once.

    Args:
        device: Where.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._slots: dict[str, list[_Slot]] = {}
        self._sizes: dict[str, int] = {}

    @property
    def counts(self) -> dict[str, int]:
        """How many there are, by name."""
        return {name: len(slots) for name, slots in self._slots.items()}

    def reserve(self, name: str, count: int, size: int, dtype: torch.dtype) -> None:
        """Make places. Those that are made later, where they do not suffice or were given back, are as large.

        Args:
            name: For what.
            count: How many.
            size: Numbers of the largest tensor.
            dtype: Of these.
        """
        self._sizes[name] = size
        self._make(name, count, size, dtype)

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialized tensor in a place that is free and large enough, or else in a new one."""
        size = prod(shape)
        free = [one for one in self._slots.get(name, ()) if one.tenant is None and one.memory.numel() >= size]
        if not free:
            self._make(name, 1, max(size, self._sizes.get(name, 0)), dtype)
            free = self._slots[name][-1:]
        free[0].tenant = free[0].memory[:size].view(shape)
        return free[0].tenant

    def release(self, tensor: torch.Tensor) -> None:
        """The place of a tensor from `take` may be taken again; nothing happens to others."""
        for slot in (slot for slots in self._slots.values() for slot in slots):
            if slot.tenant is tensor:
                slot.tenant = None

    def clear(self) -> None:
        """Give all memory back."""
        self._slots.clear()

    def _make(self, name: str, count: int, size: int, dtype: torch.dtype) -> None:
        made = [_Slot(torch.empty(size, dtype=dtype, device=self._device)) for _ in range(count)]
        self._slots.setdefault(name, []).extend(made)
