"""Smooths noisy values without lagging behind them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]

WINDOWS = (1, 5, 11, 21, 51, 101, 201, 501, 1001)
"""Numbers of steps that the mean can be taken over; 1: no smoothing. Odd, so that a window has a middle."""


def default_window(steps: int) -> int:
    """Return the number of steps to average over by default: about a fiftieth of the run, 5 to 101.

    Args:
        steps: number of steps that the run will make.
    """
    wanted = min(max(steps / 50, WINDOWS[1]), 101)
    return min(WINDOWS, key=lambda window: abs(window - wanted))


def smoothed(values: ArrayLike, window: int) -> Numbers:
    """Compute the mean around each position.

    Inside it is the mean of the window with the position in its middle. Toward the ends, where half of the window is
    missing, it is the value at the position of the straight line that fits the rest best: a mean of one side would lag
    behind values that fall. It never leaves the range of the values that it was made of.

    Args:
        values: numbers in order, [points]; those that are not finite are left out.
        window: number of positions, at least 1.

    Returns:
        Means, [points]; not a number where the window has no finite number.
    """
    numbers = np.asarray(values, dtype=np.float64)
    count, half = len(numbers), max(window, 1) // 2
    if not half or not count:
        return np.where(np.isfinite(numbers), numbers, np.nan)
    finite = np.isfinite(numbers)
    kept = np.where(finite, numbers, 0.0)
    sums, counts = np.concatenate(([0.0], np.cumsum(kept))), np.concatenate(([0], np.cumsum(finite)))
    place = np.arange(count)
    start, end = np.maximum(place - half, 0), np.minimum(place + half + 1, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        means: Numbers = (sums[end] - sums[start]) / (counts[end] - counts[start])
    means[:half] = _edge_means(numbers[: 2 * half], half)[:count]
    right = min(half, count - half)
    if right > 0:
        means[-right:] = _edge_means(numbers[: -2 * half - 1 : -1], half)[:right][::-1]
    return means


def newest_mean(values: Sequence[float], window: int) -> float:
    """Return the newest value of the smoothed line, as the chart draws it; not a number if there is none.

    Args:
        values: numbers in order.
        window: number of values to average.
    """
    last = smoothed(values[-2 * window :], window)
    return float(last[-1]) if len(last) else float("nan")


def _edge_means(values: Numbers, half: int) -> Numbers:
    """Fit a straight line to the first `half` + 1, + 2 ... values and return its value at position 0, 1 ... of it.

    Args:
        values: values from the end inward, at most 2 * `half`.
        half: number of positions to return, if there are as many values.

    Returns:
        Values of the lines, each within the range of the values that its line was fitted to.
    """
    finite = np.isfinite(values)
    place, known = np.arange(len(values), dtype=np.float64), np.where(finite, values, 0.0)
    last = np.minimum(np.arange(min(half, len(values))) + half, len(values) - 1)
    count, sum_y, sum_x, sum_xx, sum_xy = (
        np.cumsum(terms)[last] for terms in (finite, known, place * finite, place * place * finite, place * known)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        center, mean = sum_x / count, sum_y / count
        spread = sum_xx - count * center * center
        slope = np.where((count > 1) & (spread > 0.25), (sum_xy - center * sum_y) / spread, 0.0)
        means = mean + slope * (place[: len(last)] - center)
    lowest = np.minimum.accumulate(np.where(finite, values, np.inf))[last]
    highest = np.maximum.accumulate(np.where(finite, values, -np.inf))[last]
    clipped: Numbers = np.where(count > 0, np.clip(means, lowest, highest), np.nan)
    return clipped
