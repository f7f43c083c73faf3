"""Even bars of row lengths, and the steps at which rows can be cut. Without Qt."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from burnish_engine.contract.recipe.recipe_data import SHORTEST_ROW

Steps = Sequence[tuple[int, int, int]]
"""(length in tokens, rows that are longer, tokens of them beyond it), as `DatasetReport.length_steps`."""


@dataclass(frozen=True)
class LengthBar:
    """The rows of a range of lengths.

    Attributes:
        lower: length that all of them are longer than, tokens.
        upper: length that none is longer than, tokens.
        rows: number of rows.
        left: left edge, as a share of the width.
        right: right edge, as a share of the width.
    """

    lower: int
    upper: int
    rows: int
    left: float
    right: float


class LengthBins:
    """Joins steps of length into even bars. Rows far beyond the others share a last bar, which is as wide as the rest.

    Args:
        steps: steps of length; empty: there are no bars.
        most: most even bars.
    """

    def __init__(self, steps: Steps, most: int) -> None:
        self.steps = list(steps)
        self._lengths = [length for length, _, _ in steps]
        self.bars: list[LengthBar] = []
        if len(steps) < 2:
            return
        step = self._lengths[1] - self._lengths[0]
        even = sum(at * step == length for at, length in enumerate(self._lengths))
        edges = self._lengths[: even : max(-(-even // most), 1)]
        if self._lengths[-1] > edges[-1]:
            edges.append(self._lengths[-1])
        beyond = {length: rows for length, rows, _ in steps}
        count = len(edges) - 1
        self._edges = edges
        self.bars = [
            LengthBar(low, high, beyond[low] - beyond[high], at / count, (at + 1) / count)
            for at, (low, high) in enumerate(pairwise(edges))
        ]

    def share_of(self, tokens: int) -> float:
        """Return where a length lies, as a share of the width, 0 to 1."""
        bar = self.bars[min(max(bisect_left(self._edges, tokens) - 1, 0), len(self.bars) - 1)]
        inside = min(max((tokens - bar.lower) / max(bar.upper - bar.lower, 1), 0.0), 1.0)
        return bar.left + inside * (bar.right - bar.left)

    def bar_at(self, share: float) -> LengthBar:
        """Return the bar at a share of the width."""
        return self.bars[min(max(int(share * len(self.bars)), 0), len(self.bars) - 1)]

    def step_at(self, share: float) -> int:
        """Return the length nearest to a share of the width at which rows can be cut, tokens."""
        bar = self.bar_at(share)
        tokens = bar.lower + (share - bar.left) / (bar.right - bar.left) * (bar.upper - bar.lower)
        return min(self._cuts(), key=lambda length: abs(length - tokens))

    def step_from(self, tokens: int, away: int) -> int:
        """Return the length some steps away from another, tokens."""
        cuts = self._cuts()
        at = bisect_right(cuts, tokens) - 1 + away if away > 0 else bisect_left(cuts, tokens) + away
        return cuts[min(max(at, 0), len(cuts) - 1)]

    def ticks(self, most: int) -> list[int]:
        """Return lengths for the axis: some of the bars' edges, from the left."""
        every = -(-len(self.bars) // most)
        return self._edges[every::every]

    def _cuts(self) -> list[int]:
        """Return the lengths at which rows can be cut, tokens; no row may be shorter than the recipe allows."""
        return [length for length in self._lengths if length >= SHORTEST_ROW] or [SHORTEST_ROW]
