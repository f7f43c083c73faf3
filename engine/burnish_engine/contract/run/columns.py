"""Append-only columns and lists with cheap immutable views: appending never changes an older view."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Generic, TypeVar

T = TypeVar("T")
N = TypeVar("N", int, float)


class GrowingColumn(Generic[N]):
    """An immutable view of the first `length` numbers of a growing column. Appending returns a new view."""

    __slots__ = ("_data", "length")

    def __init__(self, data: array[N], length: int = 0) -> None:
        self._data: array[N] = data
        self.length = length

    def __len__(self) -> int:
        return self.length

    @property
    def last(self) -> N | None:
        """The newest number; None if the column is empty."""
        return self._data[self.length - 1] if self.length else None

    @property
    def first(self) -> N | None:
        """The oldest number; None if the column is empty."""
        return self._data[0] if self.length else None

    def values(self) -> array[N]:
        """Return a copy of the numbers; numpy reads it without another copy."""
        return self._data[: self.length]

    def append(self, value: N) -> GrowingColumn[N]:
        """Return a view that is one longer. It shares the data unless another view has already grown it."""
        data = self._data if len(self._data) == self.length else self._data[: self.length]
        data.append(value)
        return GrowingColumn(data, self.length + 1)

    def cut(self, length: int) -> GrowingColumn[N]:
        """Return a view of at most the first `length` numbers."""
        return self if length >= self.length else GrowingColumn(self._data, length)

    def without_first(self, count: int) -> GrowingColumn[N]:
        """Return a copy without the first `count` numbers; this view itself where there is nothing to leave out."""
        if count <= 0:
            return self
        return GrowingColumn(self._data[count : self.length], max(0, self.length - count))

    def count_up_to(self, limit: float) -> int:
        """Count the numbers that are at most `limit`. The numbers must rise."""
        return bisect_right(self._data, limit, 0, self.length)


def numbers() -> GrowingColumn[float]:
    """Return an empty column of floating-point numbers."""
    return GrowingColumn(array("d"))


def whole_numbers() -> GrowingColumn[int]:
    """Return an empty column of whole numbers below 2^63."""
    return GrowingColumn(array("q"))


class GrowingList(Generic[T]):
    """An immutable view of the first `length` items of a growing list. Appending returns a new view."""

    __slots__ = ("_items", "length")

    def __init__(self, items: list[T] | None = None, length: int = 0) -> None:
        self._items: list[T] = [] if items is None else items
        self.length = length

    def __len__(self) -> int:
        return self.length

    @property
    def last(self) -> T | None:
        """The newest item; None if the list is empty."""
        return self._items[self.length - 1] if self.length else None

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
