"""Growing columns and lists of which every view keeps what it showed. Pure: no Qt, no files."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from typing import Generic, TypeVar

T = TypeVar("T")


class Column:
    """A growing column of numbers of which this is the first `length`. Appending gives a new view."""

    __slots__ = ("_data", "length")

    def __init__(self, data: array[float] | None = None, length: int = 0) -> None:
        self._data: array[float] = array("d") if data is None else data
        self.length = length

    def __len__(self) -> int:
        return self.length

    @property
    def last(self) -> float:
        """The newest number, NaN where there is none."""
        return self._data[self.length - 1] if self.length else math.nan

    def values(self) -> array[float]:
        """A copy of the numbers; numpy reads it without another copy."""
        return self._data[: self.length]

    def append(self, value: float) -> Column:
        """A view that is one longer. Shares the data unless another view has grown it already."""
        data = self._data if len(self._data) == self.length else self._data[: self.length]
        data.append(value)
        return Column(data, self.length + 1)

    def cut(self, length: int) -> Column:
        """A view of the first `length` numbers at most."""
        return self if length >= self.length else Column(self._data, length)

    def count_up_to(self, limit: float) -> int:
        """How many of the numbers, which rise, are not above `limit`."""
        return bisect_right(self._data, limit, 0, self.length)


class Log(Generic[T]):
    """A growing list of which this is the first `length`; as `Column`, for anything."""

    __slots__ = ("_items", "length")

    def __init__(self, items: list[T] | None = None, length: int = 0) -> None:
        self._items: list[T] = [] if items is None else items
        self.length = length

    def __len__(self) -> int:
        return self.length

    def items(self) -> list[T]:
        """A copy of the items."""
        return self._items[: self.length]

    def append(self, item: T) -> Log[T]:
        """A view that is one longer."""
        items = self._items if len(self._items) == self.length else self._items[: self.length]
        items.append(item)
        return Log(items, self.length + 1)

    def keep(self, kept: list[T]) -> Log[T]:
        """A log of these items; itself where nothing is left out."""
        return self if len(kept) == self.length else Log(kept, len(kept))
