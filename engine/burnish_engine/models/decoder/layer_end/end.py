"""The end of a decoder layer behind its feed-forward: an input of the layer's own, and a number that scales the output.

The stream gates the layer's own input, and a normalized projection of the product is added to the stream; then a number
multiplies it. All of this is frozen and narrow. It runs in the feed-forward's chunks of tokens, so that what it needs
meanwhile is less than what the feed-forward needs.

Shapes as in `layer_tensors`, and P numbers of a layer's own input.
"""

from __future__ import annotations

import torch
from torch.nn.functional import linear

from burnish_engine.models.decoder.layer_norms import post_norm
from burnish_engine.models.decoder.layer_types import (
    DecoderLayerShape,
    EndWeights,
    ResidualStream,
    SavedActivations,
    SequenceMetadata,
    Tensors,
    chunk_of,
    chunks_of,
    not_none,
)
from burnish_kernels.rms_norm import op as rms_norm
from burnish_kernels.swiglu import op as swiglu


class LayerEnd:
    """The end of one decoder layer.

    Args:
        shape: constants of the layer.
        weights: parameters of the end.
        mlp_post_norm: weight of the norm after the feed-forward; None: there is none.
    """

    def __init__(self, shape: DecoderLayerShape, weights: EndWeights, mlp_post_norm: torch.Tensor | None) -> None:
        self._shape, self._weights, self._mlp_post_norm = shape, weights, mlp_post_norm

    def forward(
        self,
        saved: SavedActivations,
        stream: ResidualStream,
        sequences: SequenceMetadata,
        buffers: Tensors | None,
        chunk_tokens: int,
    ) -> None:
        """Change the stream.

        Args:
            saved: activations of the layer; filled.
            stream: residual stream behind the feed-forward, whose output is pending; nothing is pending afterwards.
            sequences: packed documents of the micro-batch.
            buffers: tensors for the saved activations; None: nothing will be differentiated.
            chunk_tokens: tokens that pass at once; 0: all.
        """
        w, total_TH = self._weights, stream.pending_TH.add_(not_none(stream.sum_TH))
        stream.sum_TH = None
        if w.gate_PH is not None:
            inverses, given = list[torch.Tensor](), (buffers or {}).get("own_input_TJ")
            for tokens in chunks_of(len(total_TH), chunk_tokens):
                own_TH = total_TH[tokens]
                gated_TJ = self._gated(own_TH, tokens, sequences, None if given is None else given[tokens])
                added_TH, inverse_T = post_norm(self._shape, self._projected(gated_TJ), not_none(w.norm_H), None)
                own_TH += added_TH
                inverses.append(inverse_T)
                del gated_TJ, added_TH
            if buffers is not None:
                saved.own_input_TJ = given
                saved.own_input_inverse_T = inverses[0] if len(inverses) == 1 else torch.cat(inverses)
        total_TH *= w.scale_1

    def backward(
        self, saved: SavedActivations, gradient_TE: torch.Tensor, sequences: SequenceMetadata, chunk_tokens: int
    ) -> None:
        """Turn the gradient of the stream behind the layer into that behind its feed-forward.

        Args:
            saved: activations of the layer, `middle_TH` among them; those of the end are dropped.
            gradient_TE: gradient, in its first H columns; changed.
            sequences: same as in `forward`.
            chunk_tokens: same as in `forward`.
        """
        w, gradient_TH = self._weights, gradient_TE[:, : saved.start_TH.shape[1]]
        gradient_TH *= w.scale_1
        if w.gate_PH is None:
            return
        size = len(w.gate_PH)
        for tokens in chunks_of(len(gradient_TH), chunk_tokens):
            gated_TJ, dadded_TH = chunk_of(saved.own_input_TJ, tokens), gradient_TH[tokens]
            if gated_TJ is None:
                gated_TJ = self._gated(self._stream_again(saved, tokens), tokens, sequences, None)
            projected_TH = self._projected(gated_TJ)
            dprojected_TH = torch.empty_like(projected_TH)
            rms_norm.backward(
                dadded_TH,
                projected_TH,
                not_none(w.norm_H),
                not_none(saved.own_input_inverse_T)[tokens],
                one_plus_weight=self._shape.one_plus,
                out=dprojected_TH,
            )
            del projected_TH
            dgated_TJ = torch.empty_like(gated_TJ)
            dactivated_TP = dprojected_TH @ not_none(w.projection_HP)
            swiglu.backward(dactivated_TP, gated_TJ, activation=self._shape.activation, out=dgated_TJ)
            dadded_TH.addmm_(dgated_TJ[:, :size], w.gate_PH)
        saved.own_input_TJ = saved.own_input_inverse_T = None

    def _stream_again(self, saved: SavedActivations, tokens: slice) -> torch.Tensor:
        """Compute the stream behind the feed-forward once more."""
        out_TH, middle_TH = not_none(saved.mlp_out_TH)[tokens], not_none(saved.middle_TH)[tokens]
        return post_norm(self._shape, out_TH, not_none(self._mlp_post_norm), None)[0].add_(middle_TH)

    def _gated(
        self, stream_TH: torch.Tensor, tokens: slice, sequences: SequenceMetadata, out_TJ: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the gate's logits beside the layer's own input, `[T, 2 P]`."""
        gate_PH = not_none(self._weights.gate_PH)
        size = len(gate_PH)
        if out_TJ is None:
            out_TJ = stream_TH.new_empty(len(stream_TH), 2 * size)
        out_TJ[:, :size] = linear(stream_TH, gate_PH)
        inputs = not_none(not_none(sequences.state).inputs)
        inputs.fill(self._shape.index, tokens, out_TJ[:, size:])
        return out_TJ

    def _projected(self, gated_TJ: torch.Tensor) -> torch.Tensor:
        activated_TP = gated_TJ.new_empty(len(gated_TJ), gated_TJ.shape[1] // 2)
        swiglu.forward(gated_TJ, activation=self._shape.activation, out=activated_TP)
        return linear(activated_TP, not_none(self._weights.projection_HP))
