"""Packs rows into micro-batches by best-fit decreasing; training packs this way, and plans count with it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def best_fit_decreasing(rows: Sequence[int], lengths: Sequence[int], budget: int) -> list[tuple[int, ...]]:
    """Pack documents by best-fit decreasing: each, longest first, goes where it leaves the least room.

    Args:
        rows: indices of documents; documents of equal length are placed in this order.
        lengths: tokens of every document.
        budget: most tokens of a micro-batch.

    Returns:
        Indices of the documents of each micro-batch.
    """
    groups: list[list[int]] = []
    with_room: dict[int, list[int]] = {}  # free tokens -> groups with just that much room
    rooms: list[int] = []  # the keys of with_room, ascending
    for row in sorted(rows, key=lambda row: -lengths[row]):
        length = lengths[row]
        at = bisect_left(rooms, length)
        if at == len(rooms):
            group, room = len(groups), budget
            groups.append([])
        else:
            room = rooms[at]
            group = with_room[room].pop()
            if not with_room[room]:
                del with_room[room]
                rooms.pop(at)
        groups[group].append(row)
        left = room - length
        if left in with_room:
            with_room[left].append(group)
        elif left:
            with_room[left] = [group]
            rooms.insert(bisect_left(rooms, left), left)
    return [tuple(group) for group in groups]


def even_quantiles(ascending: Sequence[int], most: int) -> list[int]:
    """Thin numbers out to at most some, at even quantiles.

    Args:
        ascending: numbers in ascending order.
        most: most numbers that are kept, at least 1.
    """
    if len(ascending) <= most:
        return list(ascending)
    return [ascending[(2 * index + 1) * len(ascending) // (2 * most)] for index in range(most)]
