"""The half of a decoder layer around its mixer: from the residual stream to the mixer's output projection.

Shapes as in `layer_tensors`.
"""

from __future__ import annotations

import torch

from burnish_engine.models.decoder.layer_norms import norm, norm_backward, post_norm, post_norm_backward
from burnish_engine.models.decoder.layer_types import (
    DecoderLayerShape,
    LayerWeights,
    ResidualStream,
    SavedActivations,
    SequenceMetadata,
    Tensors,
    not_none,
)
from burnish_engine.models.decoder.mixers.mixer import Mixer, MixerPass, MixFunction


class MixerHalf:
    """The mixer's half of one decoder layer.

    Args:
        shape: constants of the layer.
        weights: parameters of the layer.
        mixer: what mixes tokens between the projections.
    """

    def __init__(self, shape: DecoderLayerShape, weights: LayerWeights, mixer: Mixer) -> None:
        self._shape, self._weights, self._mixer = shape, weights, mixer

    def forward(
        self,
        saved: SavedActivations,
        sequences: SequenceMetadata,
        mix: MixFunction | None = None,
        buffers: Tensors | None = None,
        stream: ResidualStream | None = None,
    ) -> None:
        """Compute the mixer's output from the layer's input; in the backward pass, compute only what is missing.

        Args:
            saved: activations of the layer; filled.
            sequences: packed documents of the micro-batch.
            mix: function that replaces the mixing of packed documents.
            buffers: tensors for the saved activations; None: new tensors are allocated.
            stream: residual stream before the layer, whose sum is added to the input and dropped; None in the backward
                pass, where the input is the sum already.
        """
        w, mixer, given = self._weights, self._mixer, buffers or {}
        tokens, residual = len(saved.start_TH), None
        if stream is not None:
            residual, stream.sum_TH = stream.sum_TH, None
        x_TE, codes = w.mixer_in.new_input(tokens, saved.start_TH), w.mixer_in.new_input_codes(tokens)
        saved.start_TH, saved.start_inverse_T = norm(
            self._shape, saved.start_TH, w.mixer_norm, x_TE, residual, in_place=True, codes_out=codes
        )
        del residual
        saved.projected_TC = w.mixer_in.forward(x_TE, given.get("projected_TC"), codes=codes)
        del codes
        saved.xa_mixer_TR = w.mixer_in.adapted_input(x_TE)
        saved.x_mixer_TE = x_TE
        mixer_pass = MixerPass(saved.projected_TC, saved.own, sequences, given)
        mixer.prepare(mixer_pass)
        if saved.mixed_TE is not None:  # in the backward pass, with the mixer's output
            return
        out_TE = given.get("mixed_TE")
        saved.mixed_TE = w.mixer_out.new_input(len(x_TE), x_TE) if out_TE is None else out_TE
        mixed_TK = saved.mixed_TE[:, : w.mixer_out.inputs]
        inputs = mixer.inputs(mixer_pass)
        if mix is not None:
            mix(mixer, inputs, mixed_TK)
        else:
            mixer.mix(inputs, mixed_TK, mixer_pass)

    def project(self, saved: SavedActivations, buffers: Tensors | None = None) -> torch.Tensor:
        """Apply the output projection, and the norm that some families have after it."""
        w, given = self._weights, buffers or {}
        assert saved.mixed_TE is not None
        middle = given.get("middle_TH")
        if w.mixer_post_norm is None:
            return w.mixer_out.forward(saved.mixed_TE, middle)
        out = saved.mixer_out_TH = w.mixer_out.forward(saved.mixed_TE, given.get("mixer_out_TH"))
        y, saved.mixer_out_inverse_T = post_norm(self._shape, out, w.mixer_post_norm, middle)
        return y

    def backward(
        self, saved: SavedActivations, gradient_TE: torch.Tensor, sequences: SequenceMetadata, wanted: bool
    ) -> None:
        """Differentiate the half; arguments as for `DecoderLayer.backward`."""
        w, s = self._weights, self._shape
        assert saved.mixed_TE is not None
        assert saved.projected_TC is not None
        dy_TE, codes = post_norm_backward(
            s,
            gradient_TE,
            w.mixer_post_norm,
            saved.mixer_out_TH,
            saved.mixer_out_inverse_T,
            w.mixer_out,
            saved.middle_gradient_codes,
        )
        saved.middle_gradient_codes = None
        dmixed_TK = not_none(w.mixer_out.input_gradient(dy_TE, codes=codes))
        del codes
        mixed_TK = saved.mixed_TE[:, : w.mixer_out.inputs]
        w.mixer_out.accumulate(dy_TE, mixed_TK, w.mixer_out.adapted_input(saved.mixed_TE))
        saved.mixer_out_TH = None
        del dy_TE
        dprojected_TE = w.mixer_in.new_gradient(len(dmixed_TK), dmixed_TK)
        dprojected_TC = dprojected_TE[:, : w.mixer_in.outputs]
        mixer_pass = MixerPass(saved.projected_TC, saved.own, sequences)
        self._mixer.backward(dmixed_TK, mixed_TK, dprojected_TC, mixer_pass)
        saved.mixed_TE = saved.projected_TC = None
        saved.own.clear()
        del dmixed_TK, mixed_TK, mixer_pass
        dx = w.mixer_in.input_gradient(dprojected_TE, wanted=wanted)
        hidden = gradient_TE[:, : saved.start_TH.shape[1]]
        x = norm_backward(s, dx, saved.start_TH, w.mixer_norm, saved.start_inverse_T, hidden, saved.x_mixer_TE)
        xa_TR = w.mixer_in.adapted_input(x) if saved.xa_mixer_TR is None else saved.xa_mixer_TR
        w.mixer_in.accumulate(dprojected_TE, x[:, : w.mixer_in.inputs], xa_TR)
        saved.x_mixer_TE = saved.xa_mixer_TR = None
