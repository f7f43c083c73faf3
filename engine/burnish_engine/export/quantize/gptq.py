"""Choose the codes of quantized weights with GPTQ, so that the errors of a row's columns compensate each other.

llama.cpp rounds every weight by itself, at most weighted by its column. The error that matters is that of the layer's
output: for a row w, its codes' values v and inputs x, the mean of ((w - v) x)², which is (w - v) H (w - v)ᵀ with the
Hessian H = mean of x xᵀ over tokens. With H = T Tᵀ, T upper triangular, it is |(w - v) T|², whose column k depends
only on the errors up to k; so columns are rounded in order, each to compensate best for those before it. This is GPTQ
(Frantar et al. 2022, arXiv 2210.17323) written as Babai's nearest plane (Chen et al. 2025, arXiv 2507.18553). Scales
stay llama.cpp's.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from burnish_engine.export.gguf.block_formats import Codes, Floats, Grid, dequantize, grid, pack

DAMPING: Final = 0.01
"""Share of the mean of the Hessian's diagonal that is added to the diagonal, as GPTQ does."""
PIECE: Final = 4 * 1024 * 1024
"""Number of weights that are refined at a time; each takes 48 bytes."""
_COLUMNS = 128  # columns that are rounded between two large products


def upper_cholesky(hessian: Floats) -> Floats:
    """Compute the upper triangular T [in, in], fp32, with T Tᵀ = H + damping.

    Args:
        hessian: H, the mean of x xᵀ over tokens [in, in].

    Raises:
        LinAlgError: The matrix is not positive definite, or not finite.
    """
    damped = hessian[::-1, ::-1].astype(np.float64)
    mean = max(float(np.diagonal(damped).mean()), 1e-30)  # inputs that were never used weigh all columns equally
    damped[np.diag_indices_from(damped)] += DAMPING * mean
    upper = np.ascontiguousarray(np.linalg.cholesky(damped)[::-1, ::-1].astype(np.float32))
    if not np.isfinite(upper).all():
        raise np.linalg.LinAlgError("the Hessian is not finite")
    return upper


def refine(weights: Floats, data: Codes, kind: str, upper: Floats) -> Codes:
    """Choose new codes for a quantized tensor, and keep them in the rows whose output error they reduce.

    Args:
        weights: unquantized tensor [rows, columns], fp32.
        data: bytes of the tensor as llama.cpp quantized it [rows, bytes of a row].
        kind: GGUF type, one of `block_formats.BLOCK_FORMATS`.
        upper: T of the tensor's inputs [columns, columns].
    """
    chosen = pack(round_columns(weights, grid(data, kind), upper), data, kind)
    errors = [output_error(weights, dequantize(one, kind), upper) for one in (data, chosen)]
    return np.where((errors[1] < errors[0])[:, None], chosen, data)


def output_error(weights: Floats, values: Floats, upper: Floats) -> Floats:
    """Compute the mean squared error of the layer's output for each row [rows], in squared units of the output."""
    return np.asarray(np.square((weights - values) @ upper).sum(axis=1))


def round_columns(weights: Floats, allowed: Grid, upper: Floats) -> Codes:
    """Round columns in order, each corrected for the errors of the columns before it.

    Args:
        weights: unquantized tensor [rows, columns], fp32.
        allowed: values that the weights can take.
        upper: T of the tensor's inputs [columns, columns].

    Returns:
        Codes [rows, columns].
    """
    target = np.ascontiguousarray(weights.T)  # the rows' values of a column lie side by side
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
