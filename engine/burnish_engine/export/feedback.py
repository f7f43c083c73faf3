"""Choose the codes of quantized weights anew, so that the errors of a row's columns make up for one another.

llama.cpp rounds every weight by itself, or by how strong its column is. What counts is the error of the layer's output:
for a row w, codes' values v and inputs x it is the mean of ((w - v) x)², which is (w - v) H (w - v)ᵀ with the second
moment H = mean of x xᵀ over tokens. With H = T Tᵀ, T upper triangular, it is |(w - v) T|², whose column k knows only
the errors up to k; so columns are rounded in order, each where it makes up best for those before it. That is GPTQ
(Frantar et al. 2022, arXiv 2210.17323) written as Babai's nearest plane (Chen et al. 2025, arXiv 2507.18553). Scales
stay llama.cpp's.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from burnish_engine.export.gguf.codes import Codes, Floats, Grid, dequantize, grid, pack

DAMPING: Final = 0.01
"""Share of the columns' mean square that is added to each, as GPTQ does."""
PIECE: Final = 4 * 1024 * 1024
"""Weights to refine at a time; each takes 48 bytes."""
_COLUMNS = 128  # rounded between two large products


def root(moment: Floats) -> Floats:
    """The upper triangular T [in, in], fp32, with T Tᵀ = H + damping.

    Args:
        moment: H, the mean of x xᵀ over tokens [in, in].

    Raises:
        LinAlgError: It is no second moment.
    """
    damped = moment[::-1, ::-1].astype(np.float64)
    mean = max(float(np.diagonal(damped).mean()), 1e-30)  # inputs that were never used weigh all alike
    damped[np.diag_indices_from(damped)] += DAMPING * mean
    upper = np.ascontiguousarray(np.linalg.cholesky(damped)[::-1, ::-1].astype(np.float32))
    if not np.isfinite(upper).all():
        raise np.linalg.LinAlgError("the second moment is not finite")
    return upper


def refine(weights: Floats, data: Codes, kind: str, upper: Floats) -> Codes:
    """The bytes of a quantized tensor with codes chosen anew, in rows that come nearer by it.

    Args:
        weights: The tensor before [rows, columns], fp32.
        data: Its bytes as llama.cpp quantized it [rows, bytes of a row].
        kind: Its type, one of `codes.LAYOUTS`.
        upper: T of its inputs [columns, columns].
    """
    chosen = pack(choose(weights, grid(data, kind), upper), data, kind)
    errors = [output_error(weights, dequantize(one, kind), upper) for one in (data, chosen)]
    return np.where((errors[1] < errors[0])[:, None], chosen, data)


def output_error(weights: Floats, values: Floats, upper: Floats) -> Floats:
    """Mean squared error of the layer's output, by row [rows]; in units of the output, squared."""
    return np.asarray(np.square((weights - values) @ upper).sum(axis=1))


def choose(weights: Floats, allowed: Grid, upper: Floats) -> Codes:
    """Round columns in order, each with what the ones before it left.

    Args:
        weights: [rows, columns], fp32.
        allowed: The values they can take.
        upper: T [columns, columns].

    Returns:
        Codes [rows, columns].
    """
    target = np.ascontiguousarray(weights.T)  # a column's rows side by side
    scale, offset = np.ascontiguousarray(allowed.scale.T), np.ascontiguousarray(allowed.offset.T)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    middles = (allowed.levels[1:] + allowed.levels[:-1]) / 2
    even = bool((np.diff(allowed.levels) == 1).all())
    columns = len(target)
    errors, codes = np.zeros_like(target), np.empty(target.shape, dtype=np.uint8)
    for first in range(0, columns, _COLUMNS):
        last = min(first + _COLUMNS, columns)
        left = upper[:first, first:last].T @ errors[:first]
        for column in range(first, last):
            group = column // allowed.group
            left[column - first] += upper[first:column, column] @ errors[first:column]
            wanted = target[column] + left[column - first] / upper[column, column]
            place = (wanted - offset[group]) * inverse[group]
            if even:
                code = np.clip(np.rint(place), 0, len(middles)).astype(np.uint8)
            else:
                code = np.searchsorted(middles, place).astype(np.uint8)
            codes[column] = code
            errors[column] = target[column] - (allowed.levels[code] * scale[group] + offset[group])
    return np.ascontiguousarray(codes.T)
