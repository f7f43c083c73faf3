"""The feed-forward half of a decoder layer that is a mixture of experts.

A router chooses k experts for each token and weighs them; the tokens are sorted by expert, pass the experts' two maps
in that order, and each token's outputs are summed. The router is frozen, but the gradient reaches the hidden state
through its weights too. No step waits for the device and all sizes follow from the number of tokens, so that the half
can be captured.

Shapes as in `declared`: T tokens, H hidden size, P = T·k sorted rows, J = 2 I.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn.functional import linear

from burnish_engine.models.decoder.experts.expert_linear import ExpertLinear
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
        self.mlp_chunk_tokens = 0

    def new_input(self, tokens: int, like: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Allocate an uninitialized `[T, H]` for the normalized stream; experts quantize it themselves."""
        return like.new_empty(tokens, like.shape[1]), None

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
            for name in _KEPT:
                setattr(saved, name, buffers.get(name))
            saved.expert_orders = []
        for tokens in chunks:
            own = mixer_out_TH[tokens]
            x_TH = torch.empty_like(own)
            _, inverse = norm(self._shape, own, w.mlp_norm, x_TH, saved.start_TH[tokens], in_place=True)
            order, weights_Tk = self._route(saved, x_TH, tokens)
            gate_up_PJ, _ = self._gate_up(saved, x_TH, order, tokens)
            activated_PI = moe_act.forward(gate_up_PJ, experts.activation)
            xa_out = _sorted_rows(chunk_of(saved.xa_down_TR, tokens), order, experts.down)
            y_PH, _ = experts.down.forward(activated_PI, order, by_token=False, xa_out=xa_out)
            combine(y_PH, order, weights_Tk=weights_Tk, out=out[tokens])
            if buffers is not None:
                if len(chunks) == 1:
                    saved.x_mlp_TE, saved.activated_TE = x_TH, activated_PI.view(len(own), -1)
                if inverse is not None:
                    inverses.append(inverse)
                not_none(saved.expert_orders).append(order)
            del x_TH, gate_up_PJ, activated_PI, y_PH  # before the next chunk's are allocated
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
        orders = not_none(saved.expert_orders)
        chunks = chunks_of(len(gradient_TE), self.mlp_chunk_tokens)
        for tokens, order in zip(chunks, orders, strict=True):
            self._chunk_backward(saved, gradient_TE[tokens], tokens, order)
        for name in _KEPT:
            saved.drop(name)
        saved.expert_orders = saved.activated_TE = saved.mlp_out_TH = saved.mlp_out_inverse_T = None
        saved.middle_TH = saved.middle_inverse_T = saved.x_mlp_TE = None

    def _route(self, saved: SavedActivations, x_TH: torch.Tensor, tokens: slice) -> tuple[ExpertOrder, torch.Tensor]:
        """Choose the experts of a chunk's tokens; return their order and the routing weights, saved where asked."""
        own = self._experts
        logits_TE = linear(x_TH, own.router_EH, own.router_bias_E)
        ids_Tk, weights_Tk = moe_route.forward(logits_TE, own.router, bias_E=own.selection_bias_E)
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

    def _gate_up(
        self, saved: SavedActivations, x_TH: torch.Tensor, order: ExpertOrder, tokens: slice
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Apply the experts' first map to a chunk, into the saved tensors where there are some."""
        first = self._experts.gate_up
        place, xa_place = (chunk_of(one, tokens) for one in (saved.gate_up_TJ, saved.xa_gate_up_TR))
        out = None if place is None else place.view(order.positions, first.outputs)
        return first.forward(x_TH, order, by_token=True, out=out, xa_out=_sorted_rows(xa_place, order, first))

    def _chunk_backward(
        self, saved: SavedActivations, gradient_TE: torch.Tensor, tokens: slice, order: ExpertOrder
    ) -> None:
        """Differentiate the half for one chunk of tokens; its gradient is changed."""
        w, own = self._weights, self._experts
        middle_TH, x_TH = not_none(saved.middle_TH)[tokens], chunk_of(saved.x_mlp_TE, tokens)
        weights_Tk, inverse_T = not_none(saved.routing_weights_Tk)[tokens], chunk_of(saved.middle_inverse_T, tokens)
        gate_up, xa_gate_up = chunk_of(saved.gate_up_TJ, tokens), chunk_of(saved.xa_gate_up_TR, tokens)
        is_whole = len(middle_TH) == len(not_none(saved.middle_TH))
        if gate_up is None:
            if x_TH is None:
                x_TH = torch.empty_like(middle_TH)
                _, inverse_T = norm(self._shape, middle_TH, w.mlp_norm, x_TH)
            gate_up_PJ, xa_gate_up_PR = own.gate_up.forward(x_TH, order, by_token=True)
        else:
            gate_up_PJ = gate_up.view(order.positions, own.gate_up.outputs)
            xa_gate_up_PR = _sorted_rows(xa_gate_up, order, own.gate_up)
        hidden = middle_TH.shape[1]
        dout_TH = post_norm_gradient(
            self._shape,
            gradient_TE[:, :hidden],
            w.mlp_post_norm,
            chunk_of(saved.mlp_out_TH, tokens),
            chunk_of(saved.mlp_out_inverse_T, tokens),
        )
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
        if is_whole:
            saved.gate_up_TJ = saved.activated_TE = None
        del dactivated_PI, gate_up_PJ, gate_up
        if activated is not None:
            own.down.accumulate_a(dyb_PR, activated, order, by_token=False, weights_Tk=weights_Tk)
        del activated, act_out
        xa_down_PR = _sorted_rows(chunk_of(saved.xa_down_TR, tokens), order, own.down)
        own.down.accumulate_b(xa_down_PR, dout_TH, order, by_token=True, weights_Tk=weights_Tk)
        del dout_TH
        dx_PH, dgate_up_b_PR = own.gate_up.input_gradient(dgate_up_PJ, order, by_token=False)
        own.gate_up.accumulate_b(xa_gate_up_PR, dgate_up_PJ, order, by_token=False)
        del dgate_up_PJ
        logits_TE, ids_Tk = not_none(saved.router_logits_TE)[tokens], not_none(saved.expert_ids_Tk)[tokens]
        through_router_TH = moe_route.backward(dweights_Tk, logits_TE, ids_Tk, own.router) @ own.router_EH
        dx_TH = combine(dx_PH, order, add_TH=through_router_TH, out=through_router_TH)
        del dx_PH
        x_TH = norm_backward(self._shape, dx_TH, middle_TH, w.mlp_norm, inverse_T, gradient_TE[:, :hidden], x_TH)
        own.gate_up.accumulate_a(dgate_up_b_PR, x_TH, order, by_token=True)


_KEPT = (
    "router_logits_TE", "expert_ids_Tk", "routing_weights_Tk", "expert_order_Tk", "expert_inverse_Tk", "gate_up_TJ",
    "xa_gate_up_TR", "xa_down_TR",
)  # fmt: skip
"""Fields of `SavedActivations` that the forward pass writes into memory allocated for them."""


def _sorted_rows(saved_TR: torch.Tensor | None, order: ExpertOrder, stack: ExpertLinear) -> torch.Tensor | None:
    """Return the adapters' columns of a saved tensor, a row for each sorted one; None where there are none."""
    return None if saved_TR is None or not stack.rank else saved_TR.view(order.positions, stack.rank)
