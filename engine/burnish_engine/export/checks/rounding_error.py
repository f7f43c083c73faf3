"""Bound how far a row of a tensor may lie from the trained model's row, for each GGUF type.

F16 and BF16 round each number to the nearest they have. Quantized types store a scale, and for some an offset, for a
group of n neighbors, and for each number one of a few levels. A number is off by at most half the widest gap h between
two levels, and the group's norm is at least its largest number, so that the error's norm is at most sqrt(n) * h / 2 of
the group's norm, and no row is off by more than its worst group. Gaps, in units of the group's largest number, are
those of the `quantize_row_*_ref` functions in ggml-quants.c: 2 / 254 for Q8_0, 1 / 32 for Q6_K, and so on.

GPTQ (`gptq.py`) minimizes the error of the layer's output, not of single numbers, so that rows of such tensors get a
wider bound. Rows of types whose scales can be read are compared with the values that these allow as well
(`own_grid.py`).
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from burnish_engine.export.checks import own_grid
from burnish_engine.export.gguf.block_formats import Codes, Floats

CodeChoice = Literal["nearest", "weighted", "refined", "stored"]
"""Way in which codes were chosen: nearest to each number; perhaps with columns weighed (importance matrix); perhaps
anew by GPTQ after that; or in the checkpoint already, whose type the file has."""

_HALF_STEP: Final = {"F16": 2.0**-11, "BF16": 2.0**-8}
"""Largest relative rounding error of one number: half a unit in the last place of 11 and 8 significant bits (IEEE
754)."""
_SMALLEST: Final = {"F16": 2.0**-25, "BF16": 2.0**-134}
"""Half the smallest number above zero."""
_ROW_ERROR: Final = {
    "Q8_0": 0.023, "Q6_K": 0.13, "Q5_K": 0.20, "Q5_1": 0.19, "Q5_0": 0.20, "Q4_K": 0.38, "Q4_1": 0.38, "Q4_0": 0.38,
    "IQ4_NL": 0.5, "IQ4_XS": 0.5, "MXFP4": 0.38, "Q3_K": 0.6, "IQ3_S": 0.6, "IQ3_XXS": 0.7, "Q2_K": 0.89, "IQ2_S": 0.7,
}  # fmt: skip
"""Largest norm of a row's error, relative to the row's norm. Types of three bits and fewer are only distinguished from
zeros and from other rows: the worst case of their wide gaps would allow anything.

Q2_K has four levels for 16 numbers. Between -D and D the two inner ones are D/3 from zero, so that a group of these two
and 14 zeros is off by sqrt(14) D/3, and its norm is sqrt(2) D: 0.882 of it.

MXFP4 has 0, 0.5, 1, 1.5, 2, 3, 4 and 6 times a power of two by which the largest of 32 numbers is 4 to 8. The worst
group is one 4 among 31 numbers below 0.25, which become 0: 0.33 of its norm."""
_REFINED: Final = 3.0
"""Factor on the bound for codes that GPTQ may have changed. Measured on SmolLM2-135M with 8,192 tokens: the worst
row of Q8_0 is off by 0.020, of Q6_K by 0.095, of Q5_0 by 0.16, of Q4_0 by 0.47."""
_MOST: Final = 0.9
"""Upper limit of every bound: a row of zeros is off by 1, an unrelated row by about 1.4."""
_SCALE_STEP: Final = 3e-5
"""Largest error that rounding the scales to 16 bits adds to one number of very small weights: half the smallest F16,
times the 1023 levels that the two factors of a K-quant's scale and its codes span."""


def is_judged(kind: str) -> bool:
    """Whether this module knows the error bound of a GGUF type."""
    return kind == "F32" or kind in _HALF_STEP or kind in _ROW_ERROR


def largest_error(kind: str, choice: CodeChoice = "nearest") -> float:
    """Largest allowed error of a row, relative to the row's norm (16-bit types: to each number); 0 for F32.

    Args:
        kind: GGUF type.
        choice: way in which the codes may have been chosen.
    """
    if choice == "stored":
        return 0.0
    if kind in _ROW_ERROR and choice == "refined":
        return min(_REFINED * _ROW_ERROR[kind], _MOST)
    return _ROW_ERROR.get(kind) or _HALF_STEP.get(kind, 0.0)


def outside(
    data: Codes, found: Floats, wanted: Floats, kind: str, *, slack: float = 0.0, choice: CodeChoice = "nearest"
) -> Floats:
    """Compute the relative error of each row that is outside its type's bounds; 0 for rows inside.

    Args:
        data: bytes of the file's rows [rows, bytes of a row].
        found: the same, dequantized [rows, columns].
        wanted: rows of the trained model [rows, columns].
        kind: GGUF type of the file's tensor.
        slack: additional tolerance, as a share of a row's largest number.
        choice: way in which the codes may have been chosen.

    Returns:
        Norm of the error over the norm of the row [rows]; infinite where a number of the file is not finite.
    """
    distance = found - wanted
    error, norm = np.linalg.norm(distance, axis=1), np.linalg.norm(wanted, axis=1)
    if kind in _ROW_ERROR and choice != "stored":
        within = error <= largest_error(kind, choice) * norm + _SCALE_STEP * np.sqrt(found.shape[1])
        if own_grid.is_known(kind):
            within &= _fits_own_grid(data, found, wanted, kind, choice)
    else:
        allowed = _HALF_STEP.get(kind, 0.0) * np.abs(wanted) + _SMALLEST.get(kind, 0.0)
        allowed += slack * np.abs(wanted).max(axis=1, keepdims=True)
        within = (np.abs(distance) <= allowed).all(axis=1)
    relative = np.nan_to_num(error / np.maximum(norm, 1e-30), nan=np.inf)
    return np.where(within, 0.0, np.maximum(relative, np.finfo(np.float32).tiny)).astype(np.float32)


def _fits_own_grid(data: Codes, found: Floats, wanted: Floats, kind: str, choice: CodeChoice) -> npt.NDArray[np.bool_]:
    """Whether a row can come from rounding by its own scales [rows]."""
    if choice == "nearest":
        return own_grid.is_nearest(data, found, wanted, kind)
    fits = own_grid.is_unscaled(data, found, wanted, kind)
    odd = np.flatnonzero(~fits)
    if len(odd):  # rows of few different numbers are off to one side at their nearest values too
        fits[odd] = own_grid.is_nearest(data[odd], found[odd], wanted[odd], kind)
    return fits
