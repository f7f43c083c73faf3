"""The inputs that layers get beside the stream: rows of a second table of the vocabulary, mixed with the embeddings.

The table has P numbers of each layer for every token of the vocabulary; on a GPU it stays in page-locked host memory,
from which each layer's numbers of the tokens of a pass are gathered while the layer before computes. Nothing here is
trained, and no gradient passes (transformers' `Gemma4TextModel.project_per_layer_inputs`).

Shapes: T tokens, L layers, P numbers of a layer, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import linear

from burnish_engine.models.host_memory.copy_stream import CopyStream
from burnish_kernels.gather.op import gather_rows
from burnish_kernels.rms_norm import op as rms_norm

_HALF = 2.0**-0.5


@dataclass(frozen=True)
class LayerInputs:
    """The weights that the inputs of all layers are made with.

    Attributes:
        table_VX: rows of the vocabulary, L P wide; on a GPU they may lie in page-locked host memory.
        projection_XH: map from the embeddings to as many numbers.
        norm_P: weight of the norm of what that map gives each layer.
        eps: epsilon of that norm.
    """

    table_VX: torch.Tensor
    projection_XH: torch.Tensor
    norm_P: torch.Tensor
    eps: float

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The weights by what they are."""
        return {
            "layer inputs' table": self.table_VX, "layer inputs' map": self.projection_XH,
            "layer inputs' norm": self.norm_P,
        }  # fmt: skip

    def columns(self, layer: int) -> slice:
        """Return the columns of a layer."""
        size = self.norm_P.numel()
        return slice(layer * size, (layer + 1) * size)


class PassInputs:
    """The inputs of all layers in one pass, made when a layer asks.

    Args:
        weights: what they are made with.
        ids_T: ids of the tokens.
        embedded_TH: embeddings of the tokens, scaled.
        copies: stream that rows of the table are gathered on.
    """

    def __init__(
        self, weights: LayerInputs, ids_T: torch.Tensor, embedded_TH: torch.Tensor, copies: CopyStream
    ) -> None:
        self._weights, self._ids_T, self._embedded_TH, self._copies = weights, ids_T, embedded_TH, copies
        self._coming: dict[int, tuple[torch.Tensor, torch.cuda.Event | None]] = {}

    def fetch_rows(self, layer: int) -> None:
        """Start to gather a layer's rows of the table, unless that was done; `fill` follows for all tokens."""
        if layer in self._coming:
            return
        table_VP = self._weights.table_VX[:, self._weights.columns(layer)]
        rows_TP = self._embedded_TH.new_empty(len(self._ids_T), table_VP.shape[1])
        self._coming[layer] = rows_TP, self._copies.run(lambda: gather_rows(table_VP, self._ids_T, out=rows_TP))

    def fill(self, layer: int, tokens: slice, out_TP: torch.Tensor) -> None:
        """Write a layer's inputs of some tokens, with the roundings of transformers; the last tokens come last."""
        self.fetch_rows(layer)
        rows_TP, gathered = self._coming[layer]
        self._copies.wait(gathered)
        w, embedded_TH, size = self._weights, self._embedded_TH[tokens], rows_TP.shape[1]
        mixed_TP = linear(embedded_TH, w.projection_XH[w.columns(layer)]).mul_(embedded_TH.shape[1] ** -0.5)
        normed_TP = rms_norm.forward(mixed_TP, w.norm_P, eps=w.eps)[0]
        scaled_TP = rows_TP[tokens] * float(torch.tensor(size**0.5, dtype=rows_TP.dtype))
        torch.add(normed_TP, scaled_TP, out=scaled_TP)
        torch.mul(scaled_TP, _HALF, out=out_TP)
        if tokens.stop >= len(self._ids_T):
            del self._coming[layer]
