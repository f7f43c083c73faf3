"""The feed-forward half of a decoder layer, run for all tokens of a micro-batch at once or in chunks.

Shapes as in `layer_tensors`.
"""

from __future__ import annotations

import torch

from burnish_engine.models.decoder.feed_forward_maps import FeedForwardMaps
from burnish_engine.models.decoder.layer_norms import norm, norm_backward, post_norm, post_norm_backward
from burnish_engine.models.decoder.layer_types import (
    DecoderLayerShape,
    LayerWeights,
    SavedActivations,
    Tensors,
    chunk_of,
    chunks_of,
    not_none,
)
from burnish_kernels.eight_bit_linear.rows import EightBitRows


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
        self._maps = FeedForwardMaps(
            not_none(weights.gate_up), not_none(weights.down), shape.activation, weights.xielu_4
        )
        self.mlp_chunk_tokens = 0

    def new_input(self, tokens: int, like: torch.Tensor) -> tuple[torch.Tensor, EightBitRows | None]:
        """Allocate an uninitialized tensor whose first H columns take the normalized stream, and its 8-bit codes."""
        gate_up = self._maps.gate_up
        return gate_up.new_input(tokens, like), gate_up.new_input_codes(tokens)

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
        gate_up_stack, down = self._maps.gate_up, self._maps.down
        chunks, inverses = chunks_of(len(mixer_out_TH), self.mlp_chunk_tokens), list[torch.Tensor]()
        if buffers is not None:
            saved.xa_down_TR, saved.xa_gate_up_TR = buffers["xa_down_TR"], buffers.get("xa_gate_up_TR")
            saved.gate_up_TJ = buffers.get("gate_up_TJ")
        with self._maps.prepared():
            for number, tokens in enumerate(chunks):
                own = mixer_out_TH[tokens]
                x_TE, codes = self.new_input(len(own), own)
                start = saved.start_TH[tokens]
                _, inverse = norm(self._shape, own, w.mlp_norm, x_TE, start, in_place=True, codes_out=codes)
                place = None if saved.gate_up_TJ is None else saved.gate_up_TJ[tokens]
                gate_up = gate_up_stack.forward(x_TE, place, chunk=number, codes=codes)
                del codes
                activated = down.new_input(len(own), own)
                self._maps.project_down(gate_up, activated, out[tokens], number)
                if buffers is not None:
                    if len(chunks) == 1:
                        saved.x_mlp_TE, saved.activated_TE = x_TE, activated
                    if inverse is not None:
                        inverses.append(inverse)
                    not_none(saved.xa_down_TR)[tokens].copy_(down.adapted_input(activated))
                    if saved.xa_gate_up_TR is not None:
                        saved.xa_gate_up_TR[tokens].copy_(gate_up_stack.adapted_input(x_TE))
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
        with self._maps.prepared():
            for number, tokens in enumerate(chunks_of(len(gradient_TE), self.mlp_chunk_tokens)):
                self._chunk_backward(saved, gradient_TE[tokens], tokens, number)
        saved.gate_up_TJ = saved.activated_TE = saved.xa_down_TR = saved.mlp_out_TH = saved.mlp_out_inverse_T = None
        saved.middle_TH = saved.middle_inverse_T = saved.x_mlp_TE = saved.xa_gate_up_TR = None

    def _chunk_backward(self, saved: SavedActivations, gradient_TE: torch.Tensor, tokens: slice, chunk: int) -> None:
        """Differentiate the feed-forward of one chunk of tokens; its gradient is changed."""
        w, gate_up_stack, down = self._weights, self._maps.gate_up, self._maps.down
        middle, x = not_none(saved.middle_TH)[tokens], chunk_of(saved.x_mlp_TE, tokens)
        gate_up, xa_gate_up = chunk_of(saved.gate_up_TJ, tokens), chunk_of(saved.xa_gate_up_TR, tokens)
        inverse, codes = chunk_of(saved.middle_inverse_T, tokens), saved.x_mlp_codes
        if gate_up is None:
            if x is None:
                x, codes = self.new_input(len(middle), middle)
                _, inverse = norm(self._shape, middle, w.mlp_norm, x, codes_out=codes)
            gate_up, xa_gate_up = gate_up_stack.forward(x, chunk=chunk, codes=codes), gate_up_stack.adapted_input(x)
            saved.x_mlp_codes = None
        del codes
        mlp_out, mlp_inverse = chunk_of(saved.mlp_out_TH, tokens), chunk_of(saved.mlp_out_inverse_T, tokens)
        dy_TE, codes = post_norm_backward(self._shape, gradient_TE, w.mlp_post_norm, mlp_out, mlp_inverse, down)
        dact = not_none(down.input_gradient(dy_TE, chunk=chunk, codes=codes))
        del codes
        made = self._maps.gradient(
            dy_TE,
            dact,
            gate_up,
            not_none(xa_gate_up),
            not_none(saved.xa_down_TR)[tokens],
            activated_TE=chunk_of(saved.activated_TE, tokens),
            chunk=chunk,
        )
        if len(gradient_TE) == len(not_none(saved.middle_TH)):  # the only chunk
            saved.gate_up_TJ = None
        del dy_TE, dact, gate_up
        dx = gate_up_stack.input_gradient(made.gradient_TE, chunk=chunk, largest_T=made.largest_T)
        stream_gradient_TH = gradient_TE[:, : middle.shape[1]]
        x = norm_backward(
            self._shape,
            dx,
            middle,
            w.mlp_norm,
            inverse,
            stream_gradient_TH,
            x,
            codes_out=self._gradient_codes(saved, tokens),
            factor_H=w.mixer_out.frozen.gradient_factor_N,
        )
        xa_TR = None if made.is_fused else xa_gate_up
        gate_up_stack.accumulate(made.gradient_TE, x[:, : gate_up_stack.inputs], xa_TR, chunk=chunk, magnitudes=False)

    def _gradient_codes(self, saved: SavedActivations, tokens: slice) -> EightBitRows | None:
        """Return memory for a chunk's codes of the gradient that the mixer's projection reads; None: it needs none."""
        w = self._weights
        if w.mixer_post_norm is not None:
            return None
        if saved.middle_gradient_codes is None:
            saved.middle_gradient_codes = w.mixer_out.new_gradient_codes(len(not_none(saved.middle_TH)))
        codes = saved.middle_gradient_codes
        return None if codes is None else codes.at(tokens)
