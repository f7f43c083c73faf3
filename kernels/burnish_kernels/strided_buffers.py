"""Strided tensors for the operations' test cases, which show whether a kernel wrote beside its rows."""

from __future__ import annotations

import math

import torch

_FAR = 1 << 20
_FAR_ELEMENTS = 1 << 16


class StridedBuffers:
    """Makes strided tensors, each with another row stride, with NaN wherever nothing has been written.

    Args:
        rows: number of rows of a tensor.
        padding: elements between two rows, and 8 more for each further tensor; 0: none. From 2^20 on it is the stride
            of all rows instead, and the tensors share one storage, because each would fill gigabytes.
        dtype: type of the tensors.
        device: device that they lie on.
    """

    def __init__(self, rows: int, padding: int, dtype: torch.dtype, device: str) -> None:
        self._rows, self._padding, self._dtype, self._device = rows, padding, dtype, device
        self._far = padding > _FAR
        self._made: list[tuple[torch.Tensor, int]] = []

    def new(self, width: int, content: torch.Tensor | None = None, *, rows: int | None = None) -> torch.Tensor:
        """Make a tensor `[rows, width]`.

        Args:
            width: elements of a row.
            content: what the tensor holds, rows first; None: NaN.
            rows: number of rows; None: that of all tensors.
        """
        rows = self._rows if rows is None else rows
        if self._far:
            size = (rows - 1) * self._padding + _FAR_ELEMENTS
            whole = self._made[0][0] if self._made else torch.empty(size, dtype=self._dtype, device=self._device)
            start = sum(width for _, width in self._made)
            view = whole.as_strided((rows, width), (self._padding, 1), start)
        else:
            padding = self._padding and self._padding + 8 * len(self._made)
            whole = torch.full((rows, width + padding), math.nan, dtype=self._dtype, device=self._device)
            view = whole[:, :width]
        self._made.append((whole, width))
        return view.fill_(math.nan) if content is None else view.copy_(content.flatten(1))

    def spoiled(self) -> bool:
        """Whether anything between the rows was written."""
        return not self._far and any(bool(whole[:, width:].isfinite().any()) for whole, width in self._made)
