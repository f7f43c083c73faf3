"""Append-only columns and lists with cheap immutable views: appending never changes an older view. No Qt, no files."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from typing import Generic, TypeVar

T = TypeVar("T")


class GrowingColumn:
    """An immutable view of the first `length` numbers of a growing column. Appending returns a new view."""

    __slots__ = ("_data", "length")

    def __init__(self, data: array[float] | None = None, length: int = 0) -> None:
        self._data: array[float] = array("d") if data is None else data
        self.length = length

    def __len__(self) -> int:
        return self.length

    @property
    def last(self) -> float:
        """The newest number; NaN if the column is empty."""
        return self._data[self.length - 1] if self.length else math.nan

    def values(self) -> array[float]:
        """Return a copy of the numbers; numpy reads it without another copy."""
        return self._data[: self.length]

    def append(self, value: float) -> GrowingColumn:
        """Return a view that is one longer. It shares the data unless another view has already grown it."""
        data = self._data if len(self._data) == self.length else self._data[: self.length]
        data.append(value)
        return GrowingColumn(data, self.length + 1)

    def cut(self, length: int) -> GrowingColumn:
        """Return a view of at most the first `length` numbers."""
        return self if length >= self.length else GrowingColumn(self._data, length)

    def count_up_to(self, limit: float) -> int:
        """Count the numbers that are at most `limit`. The numbers must rise."""
        return bisect_right(self._data, limit, 0, self.length)


class GrowingList(Generic[T]):
    """An immutable view of the first `length` items of a growing list. Appending returns a new view."""

    __slots__ = ("_items", "length")

    def __init__(self, items: list[T] | None = None, length: int = 0) -> None:
        self._items: list[T] = [] if items is None else items
        self.length = length

    def __len__(self) -> int:
        return self.length

    def items(self) -> list[T]:
        """Return a copy of the items."""
        return self._items[: self.length]

    def append(self, item: T) -> GrowingList[T]:
        """Return a view that is one longer."""
        items = self._items if len(self._items) == self.length else self._items[: self.length]
        items.append(item)
        return GrowingList(items, self.length + 1)

    def keep(self, kept: list[T]) -> GrowingList[T]:
        """Return a list of the kept items; this view itself if every item is kept."""
        return self if len(kept) == self.length else GrowingList(kept, len(kept))
