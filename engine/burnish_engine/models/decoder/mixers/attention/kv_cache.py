"""The key-value cache of replies that grow together.

Rows are aligned on the right: the newest token of every row is in the same column, so that a token is added and a
sliding window is cut out by slicing. The columns before a row's first token are its padding: zeros, hidden by a mask.

Shapes: B rows (replies), M key and value heads, X = B M, C columns (capacity), L columns in use, D head dimension, T
tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from burnish_engine.contract.facts.facts import DecoderSpec

INITIAL_RESERVE = 512
"""Columns for new tokens to begin with: a reply that may be very long seldom is."""


class VisibleKeys(NamedTuple):
    """Cached keys and values that the newest token of every row may attend to.

    Attributes:
        keys_XLD: keys; fewer columns than L where a window hides the older ones.
        values_XLD: values, with the same columns.
        hidden_B1L: mask that is True where a row has no token; None where all rows have all.
    """

    keys_XLD: torch.Tensor
    values_XLD: torch.Tensor
    hidden_B1L: torch.Tensor | None


class KVCache:
    """Keys and values of layers, with room for `lengths` tokens; `write` fills it.

    Args:
        spec: specification of the decoder.
        lengths: number of tokens of each row.
        reserve: number of tokens that each row may grow by. Memory for them is allocated as it is needed.
        dtype: dtype of the model.
        device: device of the model.
        layers: numbers of the layers; None: all.

    Attributes:
        columns: number of columns in use, L.
        pads: number of columns before each row's first token.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        lengths: Sequence[int],
        reserve: int,
        dtype: torch.dtype,
        device: torch.device,
        layers: Sequence[int] | None = None,
    ) -> None:
        self.columns = max(lengths)
        self.pads = [self.columns - length for length in lengths]
        self._rows = len(lengths)
        self._most = self.columns + reserve
        self._capacity = self.columns + min(reserve, INITIAL_RESERVE)
        # Zeros, not uninitialized memory: a hidden NaN times a probability of 0 is NaN.
        self._layers = {}
        for layer in range(spec.num_layers) if layers is None else layers:
            own = spec.of_layer(spec.layers[layer])
            shape = (self._rows * own.num_kv_heads, self._capacity, own.head_dim)
            self._layers[layer] = (
                torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device)
            )  # fmt: skip
        self._device = device
        self._hidden_B1L: torch.Tensor | None = None

    def write(
        self, layer: int, k_TMD: torch.Tensor, v_TMD: torch.Tensor, *, row_T: torch.Tensor, column_T: torch.Tensor
    ) -> None:
        """Write tokens at any rows and columns.

        Args:
            layer: number of the layer.
            k_TMD: keys, rotated.
            v_TMD: values.
            row_T: row of each token.
            column_T: column of each token: its position after the row's padding.
        """
        for cached_XCD, new_TMD in zip(self._layers[layer], (k_TMD, v_TMD), strict=True):
            self._by_row(cached_XCD)[row_T, :, column_T] = new_TMD

    def add_column(self) -> None:
        """Make room for one more token of every row; `append` fills it, layer by layer."""
        if self.columns == self._capacity:
            self._grow()
        self.columns += 1
        self._hidden_B1L = None

    def append(self, layer: int, k_BMD: torch.Tensor, v_BMD: torch.Tensor) -> None:
        """Write the newest token of every row into the newest column."""
        keys_XCD, values_XCD = self._layers[layer]
        keys_XCD[:, self.columns - 1] = k_BMD.flatten(0, 1)
        values_XCD[:, self.columns - 1] = v_BMD.flatten(0, 1)

    def visible(self, layer: int, window: int | None) -> VisibleKeys:
        """Return the keys and values that the newest tokens attend to in a layer.

        Args:
            layer: number of the layer.
            window: number of tokens that a token sees, itself included; None: all.
        """
        first = min(self.pads)
        if window is not None:
            first = max(first, self.columns - window)
        keys_XCD, values_XCD = self._layers[layer]
        keys_XLD, values_XLD = keys_XCD[:, first : self.columns], values_XCD[:, first : self.columns]
        if max(self.pads) <= first:
            return VisibleKeys(keys_XLD, values_XLD, None)
        if self._hidden_B1L is None:
            pad_B11 = torch.tensor(self.pads, device=self._device)[:, None, None]
            self._hidden_B1L = torch.arange(self.columns, device=self._device) < pad_B11
        return VisibleKeys(keys_XLD, values_XLD, self._hidden_B1L[..., first:])

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all rows except these."""
        kept = torch.tensor(list(rows), device=self._device)
        self.pads = [self.pads[row] for row in rows]
        self._hidden_B1L = None
        for layer, (keys_XCD, values_XCD) in self._layers.items():  # one by one: no second copy of the whole
            self._layers[layer] = (
                self._by_row(keys_XCD).index_select(0, kept).flatten(0, 1),
                self._by_row(values_XCD).index_select(0, kept).flatten(0, 1),
            )
        self._rows = len(rows)

    def _by_row(self, cached_XCD: torch.Tensor) -> torch.Tensor:
        return cached_XCD.unflatten(0, (self._rows, -1))

    def _grow(self) -> None:
        self._capacity = max(self.columns + 1, min(self._most, self.columns + self.columns // 2))
        for layer, (keys_XCD, values_XCD) in self._layers.items():
            self._layers[layer] = (self._grown(keys_XCD), self._grown(values_XCD))

    def _grown(self, cached_XCD: torch.Tensor) -> torch.Tensor:
        heads, columns, width = cached_XCD.shape
        found_XCD = cached_XCD.new_zeros(heads, self._capacity, width)
        found_XCD[:, :columns] = cached_XCD
        return found_XCD
