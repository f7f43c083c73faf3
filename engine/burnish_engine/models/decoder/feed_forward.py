"""The feed-forward half of a decoder layer, run for all tokens of a micro-batch at once or in chunks.

Shapes as in `layer_tensors`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from burnish_engine.models.decoder import fused_mlp
from burnish_engine.models.decoder.layer_norms import norm, norm_backward, post_norm, post_norm_backward
from burnish_engine.models.decoder.layer_types import (
    DecoderLayerShape,
    LayerWeights,
    SavedActivations,
    Tensors,
    chunk_of,
    not_none,
)
from burnish_kernels.swiglu import op as swiglu


class FeedForward:
    """The feed-forward half of one decoder layer.

    Args:
        shape: constants of the layer.
        weights: parameters of the layer.

    Attributes:
        mlp_chunk_tokens: tokens that pass it at once, which bounds the memory of its wide tensors; 0: all.
    """

    def __init__(self, shape: DecoderLayerShape, weights: LayerWeights) -> None:
        self._shape, self._weights = shape, weights
        self.mlp_chunk_tokens = 0

    def forward(self, saved: SavedActivations, mixer_out_TH: torch.Tensor, buffers: Tensors | None) -> torch.Tensor:
        """Compute the output that is to be added to the stream from the mixer's half.

        Args:
            saved: activations of the layer; filled.
            mixer_out_TH: output of the mixer's half, which is added to the stream; becomes their sum.
            buffers: tensors for the saved activations; None: nothing will be differentiated.
        """
        w = self._weights
        last = buffers["next_TH"] if buffers else None
        given = last if w.mlp_post_norm is None or buffers is None else buffers["mlp_out_TH"]
        out = torch.empty_like(mixer_out_TH) if given is None else given
        chunks, inverses = list(self._chunks(len(mixer_out_TH))), list[torch.Tensor]()
        if buffers is not None:
            saved.xa_down_TR, saved.xa_gate_up_TR = buffers["xa_down_TR"], buffers.get("xa_gate_up_TR")
            saved.gate_up_TJ = buffers.get("gate_up_TJ")
        with w.gate_up.frozen.prepared(), w.down.frozen.prepared():
            for number, tokens in enumerate(chunks):
                own = mixer_out_TH[tokens]
                x_TE = w.gate_up.new_input(len(own), own)
                _, inverse = norm(self._shape, own, w.mlp_norm, x_TE, saved.start_TH[tokens], in_place=True)
                place = None if saved.gate_up_TJ is None else saved.gate_up_TJ[tokens]
                gate_up = w.gate_up.forward(x_TE, place, chunk=number)
                activated = w.down.new_input(len(own), own)
                self._project_down(gate_up, activated, out[tokens], number)
                if buffers is not None:
                    if len(chunks) == 1:
                        saved.x_mlp_TE, saved.activated_TE = x_TE, activated
                    if inverse is not None:
                        inverses.append(inverse)
                    not_none(saved.xa_down_TR)[tokens].copy_(w.down.adapted_input(activated))
                    if saved.xa_gate_up_TR is not None:
                        saved.xa_gate_up_TR[tokens].copy_(w.gate_up.adapted_input(x_TE))
                del x_TE, gate_up, activated  # before the next tile's are allocated
        saved.middle_TH = mixer_out_TH
        if inverses:
            saved.middle_inverse_T = inverses[0] if len(inverses) == 1 else torch.cat(inverses)
        if w.mlp_post_norm is None:
            return out
        saved.mlp_out_TH = out
        y, saved.mlp_out_inverse_T = post_norm(self._shape, out, w.mlp_post_norm, last)
        return y

    def backward(self, saved: SavedActivations, gradient_TE: torch.Tensor) -> None:
        """Differentiate the half; arguments as for `DecoderLayer.backward`."""
        with self._weights.gate_up.frozen.prepared(), self._weights.down.frozen.prepared():
            for number, tokens in enumerate(self._chunks(len(gradient_TE))):
                self._chunk_backward(saved, gradient_TE[tokens], tokens, number)
        saved.gate_up_TJ = saved.activated_TE = saved.xa_down_TR = saved.mlp_out_TH = saved.mlp_out_inverse_T = None
        saved.middle_TH = saved.middle_inverse_T = saved.x_mlp_TE = saved.xa_gate_up_TR = None

    def _chunks(self, tokens: int) -> Iterator[slice]:
        """Yield the ranges of tokens that pass at once."""
        step = self.mlp_chunk_tokens or tokens
        return (slice(first, min(first + step, tokens)) for first in range(0, tokens, step))

    def _project_down(
        self, gate_up_TJ: torch.Tensor, activated_TE: torch.Tensor, out_TH: torch.Tensor, chunk: int
    ) -> None:
        """Activate into `activated_TE` and project down into `out_TH`."""
        w, activation = self._weights, self._shape.activation
        if not fused_mlp.forward(w.down, gate_up_TJ, activated_TE, activation=activation, out=out_TH):
            swiglu.forward(gate_up_TJ, activation=activation, out=activated_TE[:, : w.down.inputs])
            w.down.forward(activated_TE, out_TH, chunk=chunk)

    def _chunk_backward(self, saved: SavedActivations, gradient_TE: torch.Tensor, tokens: slice, chunk: int) -> None:
        """Differentiate the feed-forward of one chunk of tokens; its gradient is changed."""
        w = self._weights
        middle, x = not_none(saved.middle_TH)[tokens], chunk_of(saved.x_mlp_TE, tokens)
        gate_up, xa_gate_up = chunk_of(saved.gate_up_TJ, tokens), chunk_of(saved.xa_gate_up_TR, tokens)
        inverse = chunk_of(saved.middle_inverse_T, tokens)
        if gate_up is None:
            if x is None:
                x = w.gate_up.new_input(len(middle), middle)
                _, inverse = norm(self._shape, middle, w.mlp_norm, x)
            gate_up, xa_gate_up = w.gate_up.forward(x, chunk=chunk), w.gate_up.adapted_input(x)
        mlp_out, mlp_inverse = chunk_of(saved.mlp_out_TH, tokens), chunk_of(saved.mlp_out_inverse_T, tokens)
        dy_TE = post_norm_backward(self._shape, gradient_TE, w.mlp_post_norm, mlp_out, mlp_inverse, w.down)
        dact = not_none(w.down.input_gradient(dy_TE, chunk=chunk))
        dgate_up_TE = w.gate_up.new_gradient(len(dy_TE), dy_TE)
        dgate_up, xa_gate_up = dgate_up_TE[:, : w.gate_up.outputs], not_none(xa_gate_up)
        activation = self._shape.activation
        fused = fused_mlp.backward(
            w.down, w.gate_up, dy_TE, dact, gate_up, xa_gate_up, activation=activation, out=dgate_up
        )
        activated, act_out = chunk_of(saved.activated_TE, tokens), None
        if not fused:
            if activated is None:
                activated = act_out = dy_TE.new_empty(len(dy_TE), w.down.inputs)
            swiglu.backward(dact, gate_up, activation=activation, out=dgate_up, act_out=act_out)
        if w.gate_up.magnitudes is not None:
            w.gate_up.magnitudes.accumulate(dgate_up, gate_up)
        if len(gradient_TE) == len(not_none(saved.middle_TH)):  # the only chunk
            saved.gate_up_TJ = None
        del dact, gate_up
        act = None if fused else not_none(activated)[:, : w.down.inputs]
        w.down.accumulate(dy_TE, act, not_none(saved.xa_down_TR)[tokens], chunk=chunk)
        activated = act_out = act = None
        del dy_TE
        dx = w.gate_up.input_gradient(dgate_up_TE, chunk=chunk)
        stream_gradient_TH = gradient_TE[:, : middle.shape[1]]
        x = norm_backward(self._shape, dx, middle, w.mlp_norm, inverse, stream_gradient_TH, x)
        xa_TR = None if fused else xa_gate_up
        w.gate_up.accumulate(dgate_up_TE, x[:, : w.gate_up.inputs], xa_TR, chunk=chunk, magnitudes=False)
