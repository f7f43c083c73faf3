"""Measure how much of training's change of the weights a file holds, of any type.

Rounding to few bits hides a small change in every single number, but not in the sum over millions of them. With the
base's weights B, the trained model's B + D and the file's F, least squares fit F - B = share * D + scale * B, with a
scale for each tensor, since some types make all numbers a little smaller. The share is 1 in a file of the trained
model, and 0 in one of the base or of a run that learned something else. What is left over is rounding, which is done
row by row; so the standard error is that of sums over rows (Liang and Zeger 1986, "Longitudinal data analysis using
generalized linear models").
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from burnish_engine.export.base.staging import Canceled, never, stop_if
from burnish_engine.export.checks.tensors import ExpectedTensor, expected_tensors
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.gguf.block_formats import Floats
from burnish_engine.export.gguf.tensor_data import row_pieces
from burnish_engine.models.checkpoint.gguf_file.header import GgufHeader, TensorShape

_Sums = npt.NDArray[np.float64]
_LEAST_ROWS: Final = 10  # fewer say nothing about their spread
_ERRORS: Final = 4.0  # standard errors by which a share has to miss a bound: 1 in 30,000 by chance
_LEAST, _MOST = 0.5, 1.5
"""Shares between which a file is nearer to the trained model than to the base, or to one that changed twice as much."""


@dataclass(frozen=True)
class HeldChange:
    """Share of training's change of the weights that a file holds."""

    share: float  # 1 in a file of the trained model, 0 in one of the base
    error: float  # standard error of the share

    @property
    def text(self) -> str:
        """Share and error in words."""
        return f"{self.share:.1%} (standard error {self.error:.1%})"

    @property
    def is_shown(self) -> bool:
        """Whether the file is one of the trained model, beyond chance."""
        return _LEAST + _ERRORS * self.error < self.share < _MOST - _ERRORS * self.error

    @property
    def is_refuted(self) -> bool:
        """Whether the file is none of the trained model, beyond chance."""
        return self.share < _LEAST - _ERRORS * self.error or self.share > _MOST + _ERRORS * self.error


def held_change(
    path: Path, header: GgufHeader, trained: Origin, base: Origin, canceled: Canceled = never
) -> HeldChange | None:
    """Measure the share of training's change that a file holds, over all tensors that training changed.

    Args:
        path: file whose tensors have the trained model's names and shapes.
        header: header of the file.
        trained: base and adapter, or the whole model, that the file claims to be made from.
        base: model before training.
        canceled: callback polled between tensors; True stops the work.

    Returns:
        Share with its error; None where training changed too few rows to tell, or the model's shape is not known in
        detail.

    Raises:
        UsageError: The base's family is not exported, or its weights are quantized.
        SetupError: A file is missing or damaged.
        StoppedError: Canceled.
    """
    spec = trained.source.spec
    if spec is None:
        return None
    after = expected_tensors(header.architecture, trained, spec)
    before = expected_tensors(header.architecture, base, spec)
    found = []
    for tensor in header.tensors:
        stop_if(canceled, "The verification")
        if tensor.name in after and tensor.name in before:
            found.append(_tensor_sums(path, header, tensor, after[tensor.name], before[tensor.name]))
    both, own = (np.concatenate(part) for part in zip(*found, strict=True)) if found else (np.empty(0), np.empty(0))
    total = own.sum()
    if np.count_nonzero(own) < _LEAST_ROWS or not np.isfinite(total):
        return None
    share = both.sum() / total
    return HeldChange(float(share), float(np.sqrt(np.square(both - share * own).sum()) / total))


def _tensor_sums(
    path: Path, header: GgufHeader, tensor: TensorShape, after: ExpectedTensor, before: ExpectedTensor
) -> tuple[_Sums, _Sums]:
    """Compute D·E and D·D of each row that training changed, where E = F - B, both without their part along B."""
    products: list[_Sums] = []
    done = 0
    for load_after, load_before in zip(after.loads, before.loads, strict=True):
        wanted, base = (load().numpy().reshape(-1, tensor.row) for load in (load_after, load_before))
        if wanted.shape != base.shape:  # tokens were added
            return np.empty(0), np.empty(0)
        first = done
        done += len(base)
        if not np.array_equal(wanted, base):
            place = 0
            for _, piece in row_pieces(path, header, tensor, range(first, done)):
                rows = slice(place, place + len(piece))
                products.append(_products(wanted[rows] - base[rows], piece - base[rows], base[rows]))
                place = rows.stop
    if not products:
        return np.empty(0), np.empty(0)
    change_error, change_change, change_base, base_error, base_base = np.concatenate(products, axis=1)
    length = max(base_base.sum(), 1e-300)
    of_change, of_error = change_base.sum() / length, base_error.sum() / length
    both = change_error - of_error * change_base - of_change * base_error + of_change * of_error * base_base
    return both, change_change - 2 * of_change * change_base + of_change**2 * base_base


def _products(change: Floats, error: Floats, base: Floats) -> _Sums:
    """Compute D·E, D·D, D·B, B·E and B·B of each row [5, rows]."""
    pairs = ((change, error), (change, change), (change, base), (base, error), (base, base))
    return np.stack([np.einsum("ij,ij->i", *pair, dtype=np.float64) for pair in pairs])
