"""The inputs that layers get beside the stream: rows of a second table of the vocabulary, mixed with the embeddings.

The table has P numbers of each layer for every token of the vocabulary; on a GPU it stays in page-locked host memory,
from which a layer gathers its own numbers of the tokens of a pass. Nothing here is trained, and no gradient passes
(transformers' `Gemma4TextModel.project_per_layer_inputs`).

Shapes: T tokens, L layers, P numbers of a layer, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import linear

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

    def of_pass(self, ids_T: torch.Tensor, embedded_TH: torch.Tensor) -> PassInputs:
        """Return the inputs for the tokens of a pass, from their ids and scaled embeddings."""
        return PassInputs(self, ids_T, embedded_TH)


@dataclass(frozen=True)
class PassInputs:
    """The inputs of all layers in one pass, made when a layer asks.

    Attributes:
        weights: what they are made with.
        ids_T: ids of the tokens.
        embedded_TH: embeddings of the tokens, scaled.
    """

    weights: LayerInputs
    ids_T: torch.Tensor
    embedded_TH: torch.Tensor

    def fill(self, layer: int, tokens: slice, out_TP: torch.Tensor) -> None:
        """Write a layer's inputs of some tokens, with the roundings of transformers."""
        w, size = self.weights, self.weights.norm_P.numel()
        own, embedded_TH = slice(layer * size, (layer + 1) * size), self.embedded_TH[tokens]
        mixed_TP = linear(embedded_TH, w.projection_XH[own]).mul_(embedded_TH.shape[1] ** -0.5)
        normed_TP = rms_norm.forward(mixed_TP, w.norm_P, eps=w.eps)[0]
        rows_TP = gather_rows(w.table_VX[:, own], self.ids_T[tokens])
        rows_TP.mul_(float(torch.tensor(size**0.5, dtype=rows_TP.dtype)))
        torch.add(normed_TP, rows_TP, out=rows_TP)
        torch.mul(rows_TP, _HALF, out=out_TP)
