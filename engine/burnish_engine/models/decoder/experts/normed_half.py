"""The expert half of a layer whose shared expert has norms of its own, as has the router (Gemma 4).

Shared expert, experts and router each normalize the stream by a weight of their own. The outputs of both have a norm
each, and their sum the layer's. Numbers of the experts scale the routing weights.

Shapes as in `expert_half`.
"""

from __future__ import annotations

import torch
from typing_extensions import override

from burnish_engine.models.decoder.experts.expert_half import ExpertHalf
from burnish_engine.models.decoder.layer_norms import norm, norm_backward, post_norm
from burnish_engine.models.decoder.layer_types import (
    DecoderLayerShape,
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
from burnish_kernels.rms_norm import op as rms_norm

_OWN = ("shared_out_TH", "shared_out_inverse_T", "both_inverse_T")


class NormedExpertHalf(ExpertHalf):
    """The expert half of one decoder layer; arguments as for `ExpertHalf`."""

    def __init__(self, shape: DecoderLayerShape, weights: LayerWeights) -> None:
        super().__init__(shape, weights)
        normed = not_none(weights.experts).normed
        self._shared_post_norm_H, self._expert_norm_H = normed["shared_post_norm"], normed["expert_norm"]
        self._expert_post_norm_H = normed["expert_post_norm"]
        self._router_norm_H = normed["router_scale"] * len(normed["router_scale"]) ** -0.5

    @override
    def forward(self, saved: SavedActivations, mixer_out_TH: torch.Tensor, buffers: Tensors | None) -> torch.Tensor:
        w, given, experts, shared = self._weights, buffers or {}, self._experts, not_none(self._shared)
        out_TH, beside_TH = (
            torch.empty_like(mixer_out_TH) if given.get(name) is None else given[name]
            for name in ("mlp_out_TH", "shared_out_TH")
        )
        chunks, inverses = chunks_of(len(mixer_out_TH), self.mlp_chunk_tokens), list[torch.Tensor]()
        if buffers is not None:
            self._take_buffers(saved, buffers)
        with self._prepared():
            for number, tokens in enumerate(chunks):
                own_TH = mixer_out_TH[tokens]
                x_TE, codes = self.new_input(len(own_TH), own_TH)
                start_TH = saved.start_TH[tokens]
                _, inverse = norm(self._shape, own_TH, w.mlp_norm, x_TE, start_TH, in_place=True, codes_out=codes)
                gate_up, xa_gate_up, xa_down = (part for _, part in self._parts(saved, tokens))
                shared.forward(
                    x_TE,
                    codes,
                    gate_up=gate_up,
                    xa_gate_up=xa_gate_up,
                    xa_down=xa_down,
                    out=beside_TH[tokens],
                    chunk=number,
                )
                del codes, gate_up
                order, weights_Tk = self._route(saved, self._normed(own_TH, self._router_norm_H), tokens)
                gate_up, xa_gate_up, xa_out = self._places(saved, tokens, order)
                x_TH = self._normed(own_TH, self._expert_norm_H)
                gate_up_PJ, _ = experts.gate_up.forward(x_TH, order, by_token=True, out=gate_up, xa_out=xa_gate_up)
                activated_PI = moe_act.forward(gate_up_PJ, experts.activation)
                y_PH, _ = experts.down.forward(activated_PI, order, by_token=False, xa_out=xa_out)
                combine(y_PH, order, weights_Tk=weights_Tk, out=out_TH[tokens])
                if buffers is not None:
                    if len(chunks) == 1:
                        saved.x_mlp_TE, saved.activated_TE = x_TE, activated_PI.view(len(own_TH), -1)
                    inverses.append(not_none(inverse))
                    not_none(saved.expert_orders).append(order)
                del x_TE, x_TH, gate_up_PJ, activated_PI, y_PH  # before the next chunk's are allocated
        saved.middle_TH, saved.mlp_out_TH, saved.shared_out_TH = mixer_out_TH, out_TH, beside_TH
        if inverses:
            saved.middle_inverse_T = inverses[0] if len(inverses) == 1 else torch.cat(inverses)
        both_TH, saved.shared_out_inverse_T = post_norm(self._shape, beside_TH, self._shared_post_norm_H, None)
        added_TH, saved.mlp_out_inverse_T = post_norm(self._shape, out_TH, self._expert_post_norm_H, None)
        both_TH += added_TH
        del added_TH
        y_TH, saved.both_inverse_T = post_norm(self._shape, both_TH, not_none(w.mlp_post_norm), given.get("next_TH"))
        return y_TH

    @override
    def backward(self, saved: SavedActivations, gradient_TE: torch.Tensor) -> None:
        super().backward(saved, gradient_TE)
        for name in _OWN:
            saved.drop(name)

    @override
    def _chunk_backward(self, saved: SavedActivations, gradient_TE: torch.Tensor, tokens: slice, chunk: int) -> None:
        w, own, shape, order = self._weights, self._experts, self._shape, not_none(saved.expert_orders)[chunk]
        middle_TH, x_TE = not_none(saved.middle_TH)[tokens], chunk_of(saved.x_mlp_TE, tokens)
        inverse_T, codes = chunk_of(saved.middle_inverse_T, tokens), saved.x_mlp_codes
        gradient_TH = gradient_TE[:, : middle_TH.shape[1]]
        if x_TE is None:
            x_TE, codes = self.new_input(len(middle_TH), middle_TH)
            _, inverse_T = norm(shape, middle_TH, w.mlp_norm, x_TE, codes_out=codes)
        beside_TH, out_TH = not_none(saved.shared_out_TH)[tokens], not_none(saved.mlp_out_TH)[tokens]
        both_TH = self._normed(beside_TH, self._shared_post_norm_H).add_(self._normed(out_TH, self._expert_post_norm_H))
        dboth_TH = self._unnormed(
            gradient_TH, both_TH, not_none(w.mlp_post_norm), not_none(saved.both_inverse_T)[tokens]
        )
        del both_TH
        inverses = not_none(saved.shared_out_inverse_T)[tokens], not_none(saved.mlp_out_inverse_T)[tokens]
        dbeside_TH = self._unnormed(dboth_TH, beside_TH, self._shared_post_norm_H, inverses[0])
        dout_TH = self._unnormed(dboth_TH, out_TH, self._expert_post_norm_H, inverses[1])
        del dboth_TH
        dx_TH = self._share_backward(saved, x_TE, codes, dbeside_TH, tokens, chunk)
        saved.x_mlp_codes = codes = None
        norm_backward(shape, dx_TH, middle_TH, w.mlp_norm, inverse_T, gradient_TH, x_TE)
        del dx_TH, dbeside_TH, x_TE
        x_TH = self._normed(middle_TH, self._expert_norm_H)
        dx_PH, dgate_up_b_PR, dweights_Tk = self._experts_backward(saved, x_TH, dout_TH, tokens, order)
        del dout_TH
        norm_backward(shape, combine(dx_PH, order), middle_TH, self._expert_norm_H, inverse_T, gradient_TH, x_TH)
        del dx_PH
        own.gate_up.accumulate_a(dgate_up_b_PR, x_TH, order, by_token=True)
        logits_TE, ids_Tk = not_none(saved.router_logits_TE)[tokens], not_none(saved.expert_ids_Tk)[tokens]
        self._scale_weights_(dweights_Tk, ids_Tk)
        drouted_TH = moe_route.backward(dweights_Tk, logits_TE, ids_Tk, own.router) @ own.router_EH
        norm_backward(shape, drouted_TH, middle_TH, self._router_norm_H, inverse_T, gradient_TH, x_TH)

    def _normed(self, x_TH: torch.Tensor, weight_H: torch.Tensor) -> torch.Tensor:
        return rms_norm.forward(x_TH, weight_H, eps=self._shape.eps, one_plus_weight=self._shape.one_plus)[0]

    def _unnormed(
        self, dy_TH: torch.Tensor, x_TH: torch.Tensor, weight_H: torch.Tensor, inverse_T: torch.Tensor
    ) -> torch.Tensor:
        """Return the gradient of a norm's input."""
        dx_TH = torch.empty_like(x_TH)
        rms_norm.backward(dy_TH, x_TH, weight_H, inverse_T, one_plus_weight=self._shape.one_plus, out=dx_TH)
        return dx_TH
