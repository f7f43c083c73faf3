"""The data types of a decoder layer: its weights, the batch's metadata, and the activations it saves.

Shapes as in `layer_tensors`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import torch

from burnish_engine.models.decoder.experts.expert_linear import ExpertLinear
from burnish_engine.models.decoder.layer_end.inputs import PassInputs
from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_engine.models.families.matrices import STACK_NAMES, StackName
from burnish_engine.models.host_memory.offloader import OffloadedTensor
from burnish_kernels.attention.documents import Documents
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.moe_act.activation import ExpertActivation
from burnish_kernels.moe_route.router import Router
from burnish_kernels.moe_sort.order import ExpertOrder

_T = TypeVar("_T")

Tensors: TypeAlias = "dict[str, torch.Tensor]"
"""Tensors by the names that `layer_tensors` declares."""


@dataclass
class LentKeys:
    """Keys and values that several layers of one pass attend to.

    Attributes:
        k_TMD: keys, rotated.
        v_TMD: values.
        gradient: gradients of both, summed over the layers that borrow them in at least fp32, as there may be many;
            None: there are none yet.
    """

    k_TMD: torch.Tensor
    v_TMD: torch.Tensor
    gradient: tuple[torch.Tensor, torch.Tensor] | None = None

    def add_gradient(self, dk_TMD: torch.Tensor, dv_TMD: torch.Tensor) -> None:
        """Add the gradients of one layer."""
        if self.gradient is None:
            wide = torch.promote_types(dk_TMD.dtype, torch.float32)
            self.gradient = dk_TMD.to(wide), dv_TMD.to(wide)
            return
        self.gradient[0].add_(dk_TMD)
        self.gradient[1].add_(dv_TMD)


@dataclass
class PassState:
    """The things that layers of one pass leave for others, from its forward to its backward pass.

    Attributes:
        lent: keys and values that later layers use too, by the number of their layer.
        inputs: inputs of the layers' own; None where they have none.
    """

    lent: dict[int, LentKeys] = field(default_factory=dict)
    inputs: PassInputs | None = None


@dataclass(frozen=True)
class SequenceMetadata:
    """The packed documents of one micro-batch, as every layer reads them; on the device.

    Attributes:
        table_index_T: row of the rope table, per token.
        documents: boundaries of the documents.
        state: what layers leave for others; the decoder gives it.
    """

    table_index_T: torch.Tensor
    documents: Documents
    state: PassState | None = None


@dataclass
class ResidualStream:
    """The residual stream between two layers.

    The caller of a layer holds no tensor of it, so that each is freed after use.

    Attributes:
        sum_TH: sum of the outputs so far; None before the first layer.
        pending_TH: output that is still to be added.
    """

    sum_TH: torch.Tensor | None
    pending_TH: torch.Tensor


@dataclass(frozen=True)
class DecoderLayerShape:
    """The constants of a layer beside those of its mixer.

    Attributes:
        index: number of the layer.
        eps: epsilon of all norms, for the stream as the decoder scales it.
        one_plus: whether norms scale by 1 + weight.
        activation: activation of the feed-forward: "silu", "gelu_tanh" or "gelu" with a gate, "xielu" without.
    """

    index: int
    eps: float
    one_plus: bool
    activation: str


@dataclass
class ExpertWeights:
    """The parameters of a layer's experts.

    Attributes:
        router: how the experts of a token are chosen and weighed.
        activation: activation of an expert.
        gate_up: first map of the experts.
        down: second map of the experts.
        router_EH: weight of the router.
        router_bias_E: bias of the router's logits, or None.
        selection_bias_E: fp32 bias on the selection alone, or None.
        shared_gate_1H: projection to the logit whose sigmoid scales the expert that sees every token, or None.
        normed: parameters of a mixture whose shared expert has norms of its own by role (`NORMED_ROLES`); empty where
            it has none.
    """

    router: Router
    activation: ExpertActivation
    gate_up: ExpertLinear
    down: ExpertLinear
    router_EH: torch.Tensor
    router_bias_E: torch.Tensor | None = None
    selection_bias_E: torch.Tensor | None = None
    shared_gate_1H: torch.Tensor | None = None
    normed: Tensors = field(default_factory=dict)

    @property
    def stacks(self) -> dict[str, ExpertLinear]:
        """The experts' maps, in the order they are used."""
        return {"gate_up": self.gate_up, "down": self.down}

    @property
    def vectors(self) -> Tensors:
        """The parameters outside the maps by role."""
        found = {
            "router_weight": self.router_EH,
            "router_bias": self.router_bias_E,
            "selection_bias": self.selection_bias_E,
            "shared_gate": self.shared_gate_1H,
            "gate_up_bias": self.gate_up.bias_EN,
            "down_bias": self.down.bias_EN,
        }
        return {name: tensor for name, tensor in found.items() if tensor is not None} | self.normed


@dataclass(frozen=True)
class EndWeights:
    """The parameters of a layer behind its feed-forward.

    Attributes:
        scale_1: factor of the layer's output.
        gate_PH: map from the stream to the gate of the layer's own input; None: there is no such input.
        projection_HP: map from the gated input to the stream.
        norm_H: weight of the norm of what that map gives.
    """

    scale_1: torch.Tensor
    gate_PH: torch.Tensor | None = None
    projection_HP: torch.Tensor | None = None
    norm_H: torch.Tensor | None = None

    @property
    def vectors(self) -> Tensors:
        """The parameters by role."""
        found = {
            "layer_scale": self.scale_1, "per_layer_gate": self.gate_PH, "per_layer_projection": self.projection_HP,
            "per_layer_norm": self.norm_H,
        }  # fmt: skip
        return {name: tensor for name, tensor in found.items() if tensor is not None}


@dataclass
class LayerWeights:
    """The parameters of a layer; the norms are `[H]` vectors.

    Attributes:
        gate_up, down: stacks of a dense feed-forward, or of the expert that sees every token; None where the layer is a
            mixture of experts without one.
        experts: parameters of the experts; None where the feed-forward is dense.
        own: parameters of the mixer by role.
        xielu_4: constants of the activation, where it is xIELU.
        end: parameters behind the feed-forward; None where the layer ends with it.
    """

    mixer_in: StackedLinear
    mixer_out: StackedLinear
    gate_up: StackedLinear | None = None
    down: StackedLinear | None = None
    experts: ExpertWeights | None = None
    mixer_norm: torch.Tensor | None = None
    mlp_norm: torch.Tensor | None = None
    mixer_post_norm: torch.Tensor | None = None
    mlp_post_norm: torch.Tensor | None = None
    own: Tensors = field(default_factory=dict)
    xielu_4: torch.Tensor | None = None
    end: EndWeights | None = None

    @property
    def stacks(self) -> dict[StackName, StackedLinear]:
        """The linear stacks, in the order they are used."""
        stacks = {name: getattr(self, name) for name in STACK_NAMES}
        return {name: stack for name, stack in stacks.items() if stack is not None}

    @property
    def vectors(self) -> Tensors:
        """The parameters outside the stacks by role."""
        names = ("mixer_norm", "mlp_norm", "mixer_post_norm", "mlp_post_norm", "xielu_4")
        found = {name: vector for name in names if (vector := getattr(self, name)) is not None} | self.own
        found |= self.end.vectors if self.end else {}
        return found | (self.experts.vectors if self.experts else {})


@dataclass(kw_only=True)
class SavedActivations:
    """Tensors that a layer's forward pass saves for its backward pass.

    None: not saved, not computed yet, or in host memory (`offloaded`).

    Attributes:
        expert_orders: sorted rows of each chunk of tokens, in a mixture of experts.
        x_mlp_codes: 8-bit codes of `x_mlp_TE`, where it is computed again for a product.
        middle_gradient_codes: 8-bit codes of the gradient between the halves, from the feed-forward's backward pass to
            the mixer's.
        own: tensors that the mixer declares beside these, as far as they are saved.
        offloaded: tensors in host memory by name.
    """

    start_TH: torch.Tensor
    start_inverse_T: torch.Tensor | None = None
    x_mixer_TE: torch.Tensor | None = None
    xa_mixer_TR: torch.Tensor | None = None
    projected_TC: torch.Tensor | None = None
    mixed_TE: torch.Tensor | None = None
    mixer_out_TH: torch.Tensor | None = None
    mixer_out_inverse_T: torch.Tensor | None = None
    middle_TH: torch.Tensor | None = None
    middle_inverse_T: torch.Tensor | None = None
    x_mlp_TE: torch.Tensor | None = None
    gate_up_TJ: torch.Tensor | None = None
    xa_gate_up_TR: torch.Tensor | None = None
    activated_TE: torch.Tensor | None = None
    xa_down_TR: torch.Tensor | None = None
    mlp_out_TH: torch.Tensor | None = None
    mlp_out_inverse_T: torch.Tensor | None = None
    router_logits_TE: torch.Tensor | None = None
    expert_ids_Tk: torch.Tensor | None = None
    routing_weights_Tk: torch.Tensor | None = None
    expert_order_Tk: torch.Tensor | None = None
    expert_inverse_Tk: torch.Tensor | None = None
    shared_scale_T: torch.Tensor | None = None
    shared_out_TH: torch.Tensor | None = None
    shared_out_inverse_T: torch.Tensor | None = None
    both_inverse_T: torch.Tensor | None = None
    own_input_TJ: torch.Tensor | None = None
    own_input_inverse_T: torch.Tensor | None = None
    expert_orders: list[ExpertOrder] | None = None
    x_mlp_codes: EightBitRows | None = None
    middle_gradient_codes: EightBitRows | None = None
    own: Tensors = field(default_factory=dict)
    offloaded: dict[str, OffloadedTensor] = field(default_factory=dict)

    def drop(self, name: str) -> None:
        """Forget a tensor; nothing where it is not there."""
        if hasattr(self, name):
            setattr(self, name, None)
        else:
            self.own.pop(name, None)


def not_none(value: _T | None) -> _T:
    """Return the value, asserting that it is not None."""
    assert value is not None
    return value


def chunk_of(tensor: torch.Tensor | None, tokens: slice) -> torch.Tensor | None:
    """Return some tokens of a tensor, or None for None."""
    return None if tensor is None else tensor[tokens]


def chunks_of(tokens: int, chunk_tokens: int) -> list[slice]:
    """Return the ranges of tokens that pass at once.

    Args:
        tokens: number of all tokens.
        chunk_tokens: most tokens of a chunk; 0: all.
    """
    step = chunk_tokens or tokens
    return [slice(first, min(first + step, tokens)) for first in range(0, tokens, step)]
