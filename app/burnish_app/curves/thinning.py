"""Reduces a long curve to the pixel columns that it is drawn in, so that no extreme value is lost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from burnish_app.curves.curve import Numbers


@dataclass(frozen=True)
class Columns:
    """A curve by pixel columns. Columns without a finite value are missing.

    Attributes:
        x: position of the middle of each column, [columns].
        lowest: lowest value in each column, [columns].
        highest: highest value in each column, [columns].
        mean: mean of the values in each column, [columns].
    """

    x: Numbers
    lowest: Numbers
    highest: Numbers
    mean: Numbers


def visible(x: Numbers, low: float, high: float) -> slice:
    """Return the points between two positions, with one more at each side, so that lines reach the edge.

    Args:
        x: rising positions, [points].
        low: left edge.
        high: right edge.
    """
    first, last = np.searchsorted(x, (low, high))
    return slice(max(int(first) - 1, 0), int(last) + 1)


def columns(x: Numbers, y: Numbers, width: float) -> Columns:
    """Reduce a curve to columns of a width.

    Columns begin at multiples of the width, so that they stay the same while a view is moved by whole columns.

    Args:
        x: rising positions, [points].
        y: values, [points]; those that are not finite are left out.
        width: width of a column, in the unit of `x`.
    """
    known = np.isfinite(y)
    if not known.all():
        x, y = x[known], y[known]
    if not len(x):
        return Columns(x, y, y, y)
    column = np.floor(x / width)
    starts = np.concatenate(([0], np.flatnonzero(column[1:] != column[:-1]) + 1))
    counts = np.diff(np.concatenate((starts, [len(x)])))
    return Columns(
        (column[starts] + 0.5) * width,
        np.minimum.reduceat(y, starts),
        np.maximum.reduceat(y, starts),
        np.add.reduceat(y, starts) / counts,
    )
