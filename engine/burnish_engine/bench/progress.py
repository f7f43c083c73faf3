"""Report how far a measurement of several parts is."""

from __future__ import annotations

from collections.abc import Callable


def part_of(progress: Callable[[float], object], number: int, count: int) -> Callable[[float], None]:
    """Make the function that reports one part's share as a share of the whole.

    Args:
        progress: function that receives the share of the whole that is done, 0 to 1.
        number: number of the part, from 0.
        count: number of parts; each counts the same.
    """

    def report(share: float) -> None:
        progress((number + share) / count)

    return report
