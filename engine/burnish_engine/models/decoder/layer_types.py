"""The data types of a decoder layer: its weights, the batch's metadata, and the activations it saves.

Shapes as in `decoder_layer`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch

from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_engine.models.host_memory.offloader import OffloadedTensor
from burnish_kernels.attention.documents import Documents

_T = TypeVar("_T")


@dataclass(frozen=True)
class SequenceMetadata:
    """The packed documents of one micro-batch, as every layer reads them; on the device.

    Attributes:
        table_index_T: row of the rope table, per token.
        documents: boundaries of the documents.
    """

    table_index_T: torch.Tensor
    documents: Documents


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


class AttentionFunction(Protocol):
    """An attention other than that of training, such as one over a cache of keys and values."""

    def __call__(
        self,
        shape: DecoderLayerShape,
        q_TND: torch.Tensor,
        k_TMD: torch.Tensor,
        v_TMD: torch.Tensor,
        out_TND: torch.Tensor,
    ) -> None:
        """Fill `out_TND`. Keys and values are views that are overwritten later."""
        ...


@dataclass(frozen=True)
class DecoderLayerShape:
    """The constants of a layer.

    Attributes:
        index: number of the layer.
        heads, kv_heads, head_dim: sizes N, M, D.
        eps: epsilon of all norms.
        one_plus: whether norms scale by 1 + weight.
        activation: activation of the feed-forward: "silu", "gelu_tanh" or "gelu".
        window: number of tokens that a token sees, itself included; None: its whole document.
        scale: factor of the attention scores.
        softcap: soft cap of the attention scores, or None.
    """

    index: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    one_plus: bool
    activation: str
    window: int | None
    scale: float
    softcap: float | None


@dataclass
class LayerWeights:
    """The parameters of a layer; the norms are `[H]` or `[D]` vectors.

    Attributes:
        table_PR: rope table, or None for a layer without positions.
    """

    attention_norm: torch.Tensor
    mlp_norm: torch.Tensor
    qkv: StackedLinear
    o: StackedLinear
    gate_up: StackedLinear
    down: StackedLinear
    attention_post_norm: torch.Tensor | None = None
    mlp_post_norm: torch.Tensor | None = None
    q_norm: torch.Tensor | None = None
    k_norm: torch.Tensor | None = None
    table_PR: torch.Tensor | None = None


@dataclass(kw_only=True)
class DeviceActivations:
    """Activations that a layer may save on the device. None: not saved, or elsewhere."""

    xa_qkv_TR: torch.Tensor | None = None
    qkv_TC: torch.Tensor | None = None
    q_TND: torch.Tensor | None = None
    k_TMD: torch.Tensor | None = None
    o_TE: torch.Tensor | None = None
    lse_NT: torch.Tensor | None = None
    attention_out_TH: torch.Tensor | None = None
    middle_TH: torch.Tensor | None = None
    xa_gate_up_TR: torch.Tensor | None = None
    gate_up_TJ: torch.Tensor | None = None
    xa_down_TR: torch.Tensor | None = None
    mlp_out_TH: torch.Tensor | None = None


@dataclass(kw_only=True)
class OutputBuffers(DeviceActivations):
    """Memory for the activations that a layer saves on the device, and for its output.

    It is allocated before the layer's other tensors, so that the saved tensors lie next to each other. Allocated later,
    they lay between temporary tensors, and wide tensors found no gap any more: fragmentation took 3.6 GiB of 28.
    """

    next_TH: torch.Tensor


@dataclass(kw_only=True)
class SavedActivations(DeviceActivations):
    """Tensors that a layer's forward pass saves for its backward pass.

    None: not saved, not computed yet, or in host memory (`offloaded`).
    """

    start_TH: torch.Tensor
    start_inverse_T: torch.Tensor
    x_attention_TE: torch.Tensor | None = None
    attention_out_inverse_T: torch.Tensor | None = None
    middle_inverse_T: torch.Tensor | None = None
    x_mlp_TE: torch.Tensor | None = None
    activated_TE: torch.Tensor | None = None
    mlp_out_inverse_T: torch.Tensor | None = None
    offloaded: dict[str, OffloadedTensor] = field(default_factory=dict)


def not_none(value: _T | None) -> _T:
    """Return the value, asserting that it is not None."""
    assert value is not None
    return value


def chunk_of(tensor: torch.Tensor | None, tokens: slice) -> torch.Tensor | None:
    """Return some tokens of a tensor, or None for None."""
    return None if tensor is None else tensor[tokens]
