"""Which cases of a test the quick suite runs: those that `@pytest.mark.quick_cases(n)` leaves it."""

from __future__ import annotations

from collections import defaultdict

LEFT_OUT = ("gpu", "long")
"""Marks of cases that are not counted."""


def evenly(count: int, wanted: int) -> list[int]:
    """Return the indices of `wanted` of `count` things, spread evenly from the first on."""
    return [number * count // wanted for number in range(min(wanted, count))] if wanted <= count else list(range(count))


def mark_cases(items) -> None:
    """Mark `full` the cases that the quick suite leaves out of tests with `quick_cases`."""
    import pytest

    by_test = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("quick_cases")
        if mark and not any(item.get_closest_marker(name) for name in LEFT_OUT):
            by_test[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    for (_, wanted), cases in by_test.items():
        kept = set(evenly(len(cases), wanted))
        for at, item in enumerate(cases):
            if at not in kept:
                item.add_marker(pytest.mark.full)
