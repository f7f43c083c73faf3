"""The feed-forward half of a decoder layer, run for all tokens of a micro-batch at once or in chunks, and its maps.

Shapes as in `layer_tensors`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from burnish_engine.models.decoder import fused_mlp
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
from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.swiglu import op as swiglu
from burnish_kernels.xielu import op as xielu


@dataclass
class GateUpGradient:
    """The gradient of the first map's output.

    Attributes:
        gradient_TE: tensor from `StackedLinear.new_gradient`, its first J columns filled.
        largest_T: each row's largest magnitude, where a kernel found it for the product in 8 bits.
        is_fused: whether a kernel accumulated the gradients of the first map's B already.
    """

    gradient_TE: torch.Tensor
    largest_T: torch.Tensor | None
    is_fused: bool


@dataclass(frozen=True)
class FeedForwardMaps:
    """The maps of a dense feed-forward, or of an expert that sees every token.

    Attributes:
        gate_up: first map, whose outputs are gate and up, or up alone.
        down: map back to the hidden size.
        activation: activation between them, as in `DecoderLayerShape`.
        xielu_4: constants of the activation, where it is xIELU.
    """

    gate_up: StackedLinear
    down: StackedLinear
    activation: str
    xielu_4: torch.Tensor | None = None

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Unpack the frozen weights at most once in the block, where they are packed."""
        with self.gate_up.frozen.prepared(), self.down.frozen.prepared():
            yield

    def project_down(
        self, gate_up_TJ: torch.Tensor, activated_TE: torch.Tensor, out_TH: torch.Tensor, chunk: int
    ) -> None:
        """Activate into `activated_TE`, a tensor from `down.new_input`, and project down into `out_TH`."""
        down, activation = self.down, self.activation
        act_TI = activated_TE[:, : down.inputs]
        if self.xielu_4 is not None:
            xielu.forward(gate_up_TJ, self.xielu_4, out=act_TI)
            down.forward(activated_TE, out_TH, chunk=chunk)
        elif not fused_mlp.forward(down, gate_up_TJ, activated_TE, activation=activation, out=out_TH):
            codes = down.new_input_codes(len(activated_TE))
            swiglu.forward(gate_up_TJ, activation=activation, out=act_TI, codes_out=codes)
            down.forward(activated_TE, out_TH, chunk=chunk, codes=codes)

    def gradient(
        self,
        dy_TE: torch.Tensor,
        dact_TI: torch.Tensor,
        gate_up_TJ: torch.Tensor,
        xa_gate_up_TR: torch.Tensor,
        xa_down_TR: torch.Tensor,
        *,
        activated_TE: torch.Tensor | None = None,
        chunk: int = 0,
    ) -> GateUpGradient:
        """Differentiate the activation, and accumulate the gradients of the second map's adapters.

        Those of the first map's follow (`StackedLinear.accumulate`), except B's where a kernel did it here.

        Args:
            dy_TE: gradient of the output as `down.input_gradient` left it.
            dact_TI: gradient of the activation, which that returned.
            gate_up_TJ: output of the first map.
            xa_gate_up_TR: XAᵀ of its input.
            xa_down_TR: XAᵀ of the activation.
            activated_TE: the activation, where it was saved.
            chunk: number of this chunk of tokens.
        """
        gate_up, down, activation = self.gate_up, self.down, self.activation
        dgate_up_TE = gate_up.new_gradient(len(dy_TE), dy_TE)
        dgate_up = dgate_up_TE[:, : gate_up.outputs]
        largest = gate_up.new_largest(dgate_up_TE)
        fused = self.xielu_4 is None and fused_mlp.backward(
            down,
            gate_up,
            dy_TE,
            dact_TI,
            gate_up_TJ,
            xa_gate_up_TR,
            activation=activation,
            out=dgate_up,
            largest_out=largest,
        )
        act_out = None
        if not fused:
            if activated_TE is None:
                activated_TE = act_out = dy_TE.new_empty(len(dy_TE), down.inputs)
            if self.xielu_4 is None:
                swiglu.backward(dact_TI, gate_up_TJ, activation=activation, out=dgate_up, act_out=act_out)
            else:
                xielu.backward(dact_TI, gate_up_TJ, self.xielu_4, out=dgate_up, act_out=act_out)
        if gate_up.magnitudes is not None:
            gate_up.magnitudes.accumulate(dgate_up, gate_up_TJ)
        act = None if fused else not_none(activated_TE)[:, : down.inputs]
        down.accumulate(dy_TE, act, xa_down_TR, chunk=chunk)
        return GateUpGradient(dgate_up_TE, largest if fused else None, fused)


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
