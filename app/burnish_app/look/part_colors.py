"""Colors of the parts of a memory plan (weights, activations, optimizer and so on). No Qt.

Parts that depend on the recipe are one ramp of blue, from dark to light in the order of the bar; what the process takes
besides is gray. Amber stays with live values. Every color has a contrast of 3 to 1 or more with the surface that it is
drawn on, and the names in the legend say which part is which.
"""

from __future__ import annotations

from collections.abc import Sequence

OVERHEAD = frozenset({"graph pools", "fragmentation", "cuda context", "allocator", "libraries"})
"""Parts that no setting of the recipe makes smaller, as the engine names them, in lower case."""
_BLUE = {False: ("#0b2f56", "#5896d0"), True: ("#3b78b5", "#d3e7fb")}  # by whether the theme is dark
_GRAY = {False: ("#5d564f", "#918a82"), True: ("#7d766e", "#c9c2b9")}


def part_colors(names: Sequence[str], *, dark: bool) -> list[str]:
    """Return the color of each part of a memory plan, as #rrggbb.

    Args:
        names: names of the parts, in the order of the bar, as the engine writes them (case does not matter).
        dark: whether the theme is dark.
    """
    is_overhead = [name.lower() in OVERHEAD for name in names]
    blues, grays = (iter(_ramp(*ramp[dark], is_overhead.count(gray))) for gray, ramp in ((False, _BLUE), (True, _GRAY)))
    return [next(grays if overhead else blues) for overhead in is_overhead]


def _ramp(first: str, last: str, count: int) -> list[str]:
    """Return so many colors from the first to the last, evenly spaced."""
    ends = [[int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in (first, last)]
    shares = [number / max(count - 1, 1) for number in range(count)]
    return ["#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(*ends, strict=True)) for share in shares]
