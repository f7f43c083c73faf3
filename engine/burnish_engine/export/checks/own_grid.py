"""Compare a quantized row with the trained one by the values that the row's own scales allow.

Rounding takes the nearest of these values for every number. An importance matrix makes llama.cpp weigh columns, and
GPTQ compensates the errors of columns among each other, so that others are taken too; but the errors of such a row
still have no common direction. Where they follow the row, its scales are wrong: times 1.05, each number is off by 5 %
of itself, which is far within the error that a few bits may make.

The test of direction: errors of independent sign add up to no more than z times the root of their squares with a
probability of 2 exp(-z²/2), whatever their sizes (Hoeffding 1963). The scale that fits a row best makes it shorter by
the square of its error, as any projection does.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from burnish_engine.export.gguf.block_formats import BLOCK_FORMATS, Codes, Floats, Grid, grid

_TIE: Final = 0.05
"""Share of a step by which a value may be farther than the nearest, because llama.cpp rounds scales to 16 bits after it
chose the codes; measured up to 0.004."""
_SOURCE: Final = 2.0**-7
"""Twice the largest relative rounding of the 16-bit file (BF16) that a quantized file is made from."""
_OFFSET: Final = 2.0**-10
"""Twice the largest relative rounding of an offset to F16."""
_TINY: Final = 2.0**-24 * 4096
"""Twice half the smallest F16, times the 4,096 levels that the scales and codes of IQ4_XS span."""
_MOST_SIGMA: Final = 6.0
"""Measured on SmolLM2-135M in 19 types, up to 5.3 beside a number that is beyond the scales; the chance is 3e-8."""
_LEAST_SCALE: Final = 0.03
"""Largest error of a row's scale that is never reported."""


def is_known(kind: str) -> bool:
    """Whether this module can read the scales of a GGUF type."""
    return kind in BLOCK_FORMATS


def is_nearest(data: Codes, found: Floats, wanted: Floats, kind: str) -> npt.NDArray[np.bool_]:
    """Whether every number of a row is the nearest to the trained one that the row's scales allow [rows].

    Args:
        data: bytes of the rows [rows, bytes of a row].
        found: the same, dequantized [rows, columns].
        wanted: rows of the trained model [rows, columns].
        kind: GGUF type, for which `is_known` holds.
    """
    allowed = grid(data, kind)
    shape = (len(wanted), -1, allowed.group)
    truth, scale, offset = wanted.reshape(shape), allowed.scale[..., None], allowed.offset[..., None]
    place = np.divide(truth - offset, scale, out=np.zeros_like(truth), where=scale != 0)
    nearest = _nearest_level(place, allowed.levels) * scale + offset
    room = _TIE * np.abs(scale) * np.diff(allowed.levels).max()
    room = room + _SOURCE * np.abs(truth) + _OFFSET * np.abs(offset) + _TINY
    near = np.abs(found.reshape(shape) - truth) <= np.abs(nearest - truth) + room
    return np.asarray(near.all(axis=(1, 2)))


def _nearest_level(place: Floats, levels: Floats) -> Floats:
    """Return the level next to each place. Where levels are whole numbers, rounding takes a tenth of the time."""
    if np.array_equal(levels, np.arange(len(levels))):
        return np.clip(np.rint(place), levels[0], levels[-1])
    middles = (levels[1:] + levels[:-1]) / 2
    return np.asarray(levels[np.searchsorted(middles, place)])


def is_unscaled(data: Codes, found: Floats, wanted: Floats, kind: str) -> npt.NDArray[np.bool_]:
    """Whether a row's errors do not follow the row, as they would if its scales were wrong [rows].

    Rows whose errors follow them only with, or only without, the numbers beyond the largest value that the scales
    allow do not count: such numbers are off to one side, and GPTQ makes up for it in the others.

    Args:
        data: bytes of the rows [rows, bytes of a row].
        found: the same, dequantized [rows, columns].
        wanted: rows of the trained model [rows, columns].
        kind: GGUF type, for which `is_known` holds.
    """
    low, high = _range(grid(data, kind))
    distance, held = found - wanted, np.where((wanted >= low) & (wanted <= high), wanted, 0)
    total, products = _sum(distance * held), np.square(distance * held)
    most = np.sqrt(_sum(products))
    shorter = _sum(np.square(distance)) / _norms(wanted)
    by_chance = (total <= _MOST_SIGMA * most) & (total >= -(_MOST_SIGMA + np.sqrt(shorter * wanted.shape[1])) * most)
    shares = np.stack([total / _norms(held), _sum(distance * wanted) / _norms(wanted)])
    small = (shares <= _LEAST_SCALE) & (shares >= -_LEAST_SCALE - shorter)
    return np.asarray(by_chance | small.any(axis=0))


def _sum(products: Floats) -> npt.NDArray[np.float64]:
    return np.asarray(products.sum(axis=1, dtype=np.float64))


def _norms(rows: Floats) -> npt.NDArray[np.float64]:
    """Compute the square of each row's norm [rows]."""
    return np.maximum(_sum(np.square(rows)), 1e-30)


def _range(allowed: Grid) -> tuple[Floats, Floats]:
    """Compute the smallest and the largest value of each number [rows, columns]."""
    ends = [
        np.repeat(allowed.offset + allowed.scale * level, allowed.group, axis=1) for level in allowed.levels[[0, -1]]
    ]
    return np.minimum(*ends), np.maximum(*ends)
