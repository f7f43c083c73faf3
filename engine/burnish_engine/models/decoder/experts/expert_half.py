"""The feed-forward half of a decoder layer that is a mixture of experts.

A router chooses k experts for each token and weighs them; the tokens are sorted by expert, pass the experts' two maps
in that order, and each token's outputs are summed. An expert that sees every token comes before, and its output begins
that sum. The router is frozen, but the gradient reaches the hidden state
through its weights too. No step waits for the device and all sizes follow from the number of tokens, so that the half
can be captured.

Shapes as in `declared`: T tokens, H hidden size, P = T·k sorted rows, J = 2 I.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch.nn.functional import linear

from burnish_engine.models.decoder.experts.shared_expert import SharedExpert
from burnish_engine.models.decoder.feed_forward import FeedForwardMaps
from burnish_engine.models.decoder.layer_norms import norm, norm_backward, post_norm, post_norm_gradient
from burnish_engine.models.decoder.layer_types import (
    DecoderLayerShape,
    ExpertWeights,
    LayerWeights,
    SavedActivations,
    Tensors,
    chunk_of,
    chunks_of,
    not_none,
)
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.moe_act import op as moe_act
from burnish_kernels.moe_combine.op import combine
from burnish_kernels.moe_route import op as moe_route
from burnish_kernels.moe_sort.op import ExpertOrder, empty_order, sort_by_expert
from burnish_kernels.moe_sort.order import TILE_ROWS


class ExpertHalf:
    """The expert half of one decoder layer; the same interface as `FeedForward`.

    Args:
        shape: constants of the layer.
        weights: parameters of the layer, experts among them.

    Attributes:
        mlp_chunk_tokens: tokens that pass it at once, which bounds the memory of its wide tensors; 0: all.
    """

    def __init__(self, shape: DecoderLayerShape, weights: LayerWeights) -> None:
        self._shape, self._weights = shape, weights
        self._experts: ExpertWeights = not_none(weights.experts)
        self._shared: SharedExpert | None = None
        if weights.gate_up is not None:
            maps = FeedForwardMaps(weights.gate_up, not_none(weights.down), shape.activation)
            self._shared = SharedExpert(maps, self._experts.shared_gate_1H)
        self.mlp_chunk_tokens = 0

    def new_input(self, tokens: int, like: torch.Tensor) -> tuple[torch.Tensor, EightBitRows | None]:
        """Allocate an uninitialized tensor whose first H columns take the normalized stream, and its 8-bit codes.

        The expert that sees every token reads these; the others quantize the stream themselves.
        """
        if self._shared is None:
            return like.new_empty(tokens, like.shape[1]), None
        gate_up = self._shared.maps.gate_up
        return gate_up.new_input(tokens, like), gate_up.new_input_codes(tokens)

    def forward(self, saved: SavedActivations, mixer_out_TH: torch.Tensor, buffers: Tensors | None) -> torch.Tensor:
        """Compute the output that is to be added to the stream from the mixer's half.

        Args:
            saved: activations of the layer; filled.
            mixer_out_TH: output of the mixer's half, which is added to the stream; becomes their sum.
            buffers: tensors for the saved activations; None: nothing will be differentiated.
        """
        w, experts = self._weights, self._experts
        last = buffers["next_TH"] if buffers else None
        given = last if w.mlp_post_norm is None or buffers is None else buffers["mlp_out_TH"]
        out = torch.empty_like(mixer_out_TH) if given is None else given
        chunks, inverses = chunks_of(len(mixer_out_TH), self.mlp_chunk_tokens), list[torch.Tensor]()
        if buffers is not None:
            self._take_buffers(saved, buffers)
        with self._prepared():
            for number, tokens in enumerate(chunks):
                own = mixer_out_TH[tokens]
                x_TE, codes = self.new_input(len(own), own)
                _, inverse = norm(
                    self._shape, own, w.mlp_norm, x_TE, saved.start_TH[tokens], in_place=True, codes_out=codes
                )
                scale_T = self._share(saved, x_TE, codes, tokens, number, out[tokens])
                del codes
                x_TH = x_TE[:, : own.shape[1]]
                order, weights_Tk = self._route(saved, x_TH, tokens)
                gate_up, xa_gate_up, xa_out = self._places(saved, tokens, order)
                gate_up_PJ, _ = experts.gate_up.forward(x_TH, order, by_token=True, out=gate_up, xa_out=xa_gate_up)
                activated_PI = moe_act.forward(gate_up_PJ, experts.activation)
                y_PH, _ = experts.down.forward(activated_PI, order, by_token=False, xa_out=xa_out)
                begun_TH = None if scale_T is None else out[tokens]
                combine(y_PH, order, weights_Tk=weights_Tk, add_TH=begun_TH, scale_T=scale_T, out=out[tokens])
                if buffers is not None:
                    if len(chunks) == 1:
                        saved.x_mlp_TE, saved.activated_TE = x_TE, activated_PI.view(len(own), -1)
                    if inverse is not None:
                        inverses.append(inverse)
                    not_none(saved.expert_orders).append(order)
                del x_TE, x_TH, gate_up_PJ, activated_PI, y_PH  # before the next chunk's are allocated
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
        with self._prepared():
            for number, tokens in enumerate(chunks_of(len(gradient_TE), self.mlp_chunk_tokens)):
                self._chunk_backward(saved, gradient_TE[tokens], tokens, number)
        for name in _KEPT:
            saved.drop(name)
        saved.expert_orders = saved.activated_TE = saved.mlp_out_TH = saved.mlp_out_inverse_T = None
        saved.middle_TH = saved.middle_inverse_T = saved.x_mlp_TE = None

    def _route(self, saved: SavedActivations, x_TH: torch.Tensor, tokens: slice) -> tuple[ExpertOrder, torch.Tensor]:
        """Choose the experts of a chunk's tokens; return their order and the routing weights, saved where asked."""
        own = self._experts
        logits_TE = linear(x_TH, own.router_EH, own.router_bias_E)
        ids_Tk, weights_Tk = moe_route.forward(logits_TE, own.router, bias_E=own.selection_bias_E)
        self._scale_weights_(weights_Tk, ids_Tk)
        order = empty_order(
            ids_Tk.numel(), own.gate_up.experts, own.router.slots, tile_rows=TILE_ROWS, device=x_TH.device
        )
        if saved.router_logits_TE is not None:
            saved.router_logits_TE[tokens].copy_(logits_TE)
            not_none(saved.expert_ids_Tk)[tokens].copy_(ids_Tk)
            not_none(saved.routing_weights_Tk)[tokens].copy_(weights_Tk)
            order = replace(
                order,
                order=not_none(saved.expert_order_Tk)[tokens].view(-1),
                inverse=not_none(saved.expert_inverse_Tk)[tokens].view(-1),
            )
        return sort_by_expert(ids_Tk, own.gate_up.experts, out=order), weights_Tk

    def _take_buffers(self, saved: SavedActivations, buffers: Tensors) -> None:
        """Let saved tensors be written into memory allocated for them."""
        for name in _KEPT:
            setattr(saved, name, buffers.get(name))
        saved.expert_orders = []

    def _scale_weights_(self, weights_Tk: torch.Tensor, ids_Tk: torch.Tensor) -> None:
        """Multiply routing weights, or their gradients, by the numbers of their experts, where these have some."""
        scale_E = self._experts.normed.get("expert_scale")
        if scale_E is not None:
            weights_Tk *= scale_E.index_select(0, ids_Tk.flatten()).view(ids_Tk.shape)

    def _prepared(self) -> AbstractContextManager[None]:
        """Unpack the frozen weights of the expert that sees every token at most once in the block."""
        return nullcontext() if self._shared is None else self._shared.maps.prepared()

    def _share(
        self,
        saved: SavedActivations,
        x_TE: torch.Tensor,
        codes: EightBitRows | None,
        tokens: slice,
        chunk: int,
        out: torch.Tensor,
    ) -> torch.Tensor | None:
        """Compute a chunk's output of the expert that sees every token, and return its factor, saved where asked.

        Without such an expert nothing is done, and None returned.
        """
        if self._shared is None:
            return None
        gate_up, xa_gate_up, xa_down = (part for _, part in self._parts(saved, tokens))
        scale_T = self._shared.forward(
            x_TE, codes, gate_up=gate_up, xa_gate_up=xa_gate_up, xa_down=xa_down, out=out, chunk=chunk
        )
        if saved.shared_scale_T is not None:
            saved.shared_scale_T[tokens].copy_(scale_T)
        return scale_T

    def _parts(self, saved: SavedActivations, tokens: slice) -> list[tuple[torch.Tensor | None, torch.Tensor | None]]:
        """Return a chunk's part of `gate_up_TJ`, `xa_gate_up_TR` and `xa_down_TR`.

        Each as the experts' numbers `[T, ...]` and those of the expert that sees every token; None where not saved.
        """
        first, second, slots = self._experts.gate_up, self._experts.down, self._experts.router.slots
        return [
            _split(saved.gate_up_TJ, slots * first.outputs, tokens),
            _split(saved.xa_gate_up_TR, slots * first.rank, tokens),
            _split(saved.xa_down_TR, slots * second.rank, tokens),
        ]

    def _places(
        self, saved: SavedActivations, tokens: slice, order: ExpertOrder
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Return the experts' parts of the same, a row for each sorted one; None where they are not saved or empty."""
        first, second = self._experts.gate_up, self._experts.down
        gate_up, xa_gate_up, xa_down = (part for part, _ in self._parts(saved, tokens))
        return (
            _sorted_rows(gate_up, order, first.outputs),
            _sorted_rows(xa_gate_up, order, first.rank),
            _sorted_rows(xa_down, order, second.rank),
        )

    def _chunk_backward(self, saved: SavedActivations, gradient_TE: torch.Tensor, tokens: slice, chunk: int) -> None:
        """Differentiate the half for one chunk of tokens; its gradient is changed."""
        w, own, shape, order = self._weights, self._experts, self._shape, not_none(saved.expert_orders)[chunk]
        middle_TH, x_TE = not_none(saved.middle_TH)[tokens], chunk_of(saved.x_mlp_TE, tokens)
        inverse_T = chunk_of(saved.middle_inverse_T, tokens)
        hidden, codes = middle_TH.shape[1], saved.x_mlp_codes
        if x_TE is None and (saved.gate_up_TJ is None or self._shared is not None):
            x_TE, codes = self.new_input(len(middle_TH), middle_TH)
            _, inverse_T = norm(shape, middle_TH, w.mlp_norm, x_TE, codes_out=codes)
        dout_TH = post_norm_gradient(
            shape,
            gradient_TE[:, :hidden],
            w.mlp_post_norm,
            chunk_of(saved.mlp_out_TH, tokens),
            chunk_of(saved.mlp_out_inverse_T, tokens),
        )
        begun_TH = self._share_backward(saved, x_TE, codes, dout_TH, tokens, chunk)
        saved.x_mlp_codes = codes = None
        x_TH = None if x_TE is None else x_TE[:, :hidden]
        dx_PH, dgate_up_b_PR, dweights_Tk = self._experts_backward(saved, x_TH, dout_TH, tokens, order)
        del dout_TH
        logits_TE, ids_Tk = not_none(saved.router_logits_TE)[tokens], not_none(saved.expert_ids_Tk)[tokens]
        dlogits_TE = moe_route.backward(dweights_Tk, logits_TE, ids_Tk, own.router)
        if begun_TH is None:
            begun_TH = dlogits_TE @ own.router_EH
        else:
            begun_TH.addmm_(dlogits_TE, own.router_EH)
        dx_TH = combine(dx_PH, order, add_TH=begun_TH, out=begun_TH)
        del dx_PH
        x_TH = norm_backward(shape, dx_TH, middle_TH, w.mlp_norm, inverse_T, gradient_TE[:, :hidden], x_TH)
        own.gate_up.accumulate_a(dgate_up_b_PR, x_TH, order, by_token=True)

    def _experts_backward(
        self,
        saved: SavedActivations,
        x_TH: torch.Tensor | None,
        dout_TH: torch.Tensor,
        tokens: slice,
        order: ExpertOrder,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Differentiate the experts' two maps for a chunk of tokens.

        Args:
            saved: activations of the layer.
            x_TH: input of the experts; None where the first map's output was saved.
            dout_TH: gradient of the experts' summed outputs.
            tokens: tokens of the chunk.
            order: their sorted rows.

        Returns:
            The gradient of each sorted row's input `[P, H]`, what the first map's adapters need beside it, and the
            gradient of the routing weights `[T, k]`.
        """
        own, weights_Tk = self._experts, not_none(saved.routing_weights_Tk)[tokens]
        gate_up_PJ, xa_gate_up_PR, xa_down_PR = self._places(saved, tokens, order)
        if gate_up_PJ is None:
            gate_up_PJ, xa_gate_up_PR = own.gate_up.forward(not_none(x_TH), order, by_token=True)
        dactivated_PI, dyb_PR = own.down.input_gradient(dout_TH, order, by_token=True)
        activated, act_out = chunk_of(saved.activated_TE, tokens), None
        if activated is not None:
            activated = activated.view(order.positions, own.down.inputs)
        elif own.down.rank:
            activated = act_out = torch.empty_like(dactivated_PI)
        bias_EH = own.down.bias_EN
        dgate_up_PJ, dweights_Tk = moe_act.backward(
            dactivated_PI,
            gate_up_PJ,
            weights_Tk,
            order,
            own.activation,
            act_out=act_out,
            dout_TH=None if bias_EH is None else dout_TH,
            bias_EH=bias_EH,
            ids_Tk=None if bias_EH is None else not_none(saved.expert_ids_Tk)[tokens],
        )
        if len(dout_TH) == len(not_none(saved.middle_TH)):  # the only chunk
            saved.gate_up_TJ = saved.activated_TE = None
        del dactivated_PI, gate_up_PJ
        if activated is not None:
            own.down.accumulate_a(dyb_PR, activated, order, by_token=False, weights_Tk=weights_Tk)
        del activated, act_out
        own.down.accumulate_b(xa_down_PR, dout_TH, order, by_token=True, weights_Tk=weights_Tk)
        dx_PH, dgate_up_b_PR = own.gate_up.input_gradient(dgate_up_PJ, order, by_token=False)
        own.gate_up.accumulate_b(xa_gate_up_PR, dgate_up_PJ, order, by_token=False)
        return dx_PH, dgate_up_b_PR, dweights_Tk

    def _share_backward(
        self,
        saved: SavedActivations,
        x_TE: torch.Tensor | None,
        codes: EightBitRows | None,
        dout_TH: torch.Tensor,
        tokens: slice,
        chunk: int,
    ) -> torch.Tensor | None:
        """Differentiate the expert that sees every token; return the normalized stream's gradient, None without one."""
        if self._shared is None:
            return None
        gate_up, xa_gate_up, xa_down = (part for _, part in self._parts(saved, tokens))
        return self._shared.backward(
            not_none(x_TE),
            codes,
            dout_TH,
            chunk_of(saved.shared_scale_T, tokens),
            gate_up=gate_up,
            xa_gate_up=xa_gate_up,
            xa_down=not_none(xa_down),
            chunk=chunk,
        )


_KEPT = (
    "router_logits_TE", "expert_ids_Tk", "routing_weights_Tk", "expert_order_Tk", "expert_inverse_Tk",
    "shared_scale_T", "gate_up_TJ", "xa_gate_up_TR", "xa_down_TR",
)  # fmt: skip
"""Fields of `SavedActivations` that the forward pass writes into memory allocated for them."""


def _split(saved_TW: torch.Tensor | None, width: int, tokens: slice) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return a chunk's tokens of a saved tensor: of its first part, `width` wide, and of the second one behind it."""
    if saved_TW is None:
        return None, None
    count, both = saved_TW.shape
    first, second = saved_TW.view(-1).split((count * width, count * (both - width)))
    return first.view(count, width)[tokens], second.view(count, both - width)[tokens]


def _sorted_rows(part_TW: torch.Tensor | None, order: ExpertOrder, width: int) -> torch.Tensor | None:
    """Return a part with a row for each sorted one, `width` wide; None where there is none or it is empty."""
    return None if part_TW is None or not width else part_TW.view(order.positions, width)
