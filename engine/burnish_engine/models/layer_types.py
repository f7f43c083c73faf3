"""What a decoder layer is made of, what it is told, and what it leaves between its two passes.

Shapes as in `decoder_layer`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch

from burnish_engine.models.offload import Parked
from burnish_engine.models.stacked_linear import StackedLinear
from burnish_kernels.attention import op as attention

_Thing = TypeVar("_Thing")


@dataclass(frozen=True)
class Pack:
    """What every layer needs to know about the packed documents of one pass; on the device.

    Attributes:
        table_index_T: Row of the rope table, per token.
        documents: Where documents begin and end.
    """

    table_index_T: torch.Tensor
    documents: attention.Documents


@dataclass
class Stream:
    """The residual stream between two layers. Who calls a layer holds no tensor of it, so that each is freed after use.

    Attributes:
        sum_TH: What was added up so far; None before the first layer.
        pending_TH: What is still to be added.
    """

    sum_TH: torch.Tensor | None
    pending_TH: torch.Tensor


class Attend(Protocol):
    """Attention in another form than that of training, such as over a cache of keys and values."""

    def __call__(
        self, shape: Shape, q_TND: torch.Tensor, k_TMD: torch.Tensor, v_TMD: torch.Tensor, out_TND: torch.Tensor
    ) -> None:
        """Fill `out_TND`. Keys and values are views that are overwritten later."""
        ...


@dataclass(frozen=True)
class Shape:
    """Constants of a layer.

    Attributes:
        index: Number of the layer.
        heads, kv_heads, head_dim: N, M, D.
        eps: Of all norms.
        one_plus: Norms scale by 1 + weight.
        activation: "silu", "gelu_tanh" or "gelu".
        window: How far back a token sees, itself included; None: its whole document.
        scale: Of the attention scores.
        softcap: Of the attention scores, or None.
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
class Weights:
    """Parameters of a layer; the norms are `[H]` or `[D]` vectors.

    Attributes:
        table_PR: Rope table, or None for a layer without positions.
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
class Kept:
    """What a layer may keep on the device from its forward to its backward pass. None: not kept, or elsewhere."""

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
class Places(Kept):
    """Memory for what a layer keeps on the device, and for what it hands to the next one.

    It is taken before the layer's other tensors, so that what stays lies close together. Taken on the way, it would lie
    between tensors that come and go, and the wide ones found no place there any more: 3.6 GiB of a plan's 28.
    """

    next_TH: torch.Tensor


@dataclass(kw_only=True)
class Saved(Kept):
    """What a forward pass left for the backward pass. None: not kept, not there yet, or in host memory (`parked`)."""

    start_TH: torch.Tensor
    start_inverse_T: torch.Tensor
    x_attention_TE: torch.Tensor | None = None
    attention_out_inverse_T: torch.Tensor | None = None
    middle_inverse_T: torch.Tensor | None = None
    x_mlp_TE: torch.Tensor | None = None
    activated_TE: torch.Tensor | None = None
    mlp_out_inverse_T: torch.Tensor | None = None
    parked: dict[str, Parked] = field(default_factory=dict)


def there(thing: _Thing | None) -> _Thing:
    """It, which has to be there."""
    assert thing is not None
    return thing


def rows_of(tensor: torch.Tensor | None, rows: slice) -> torch.Tensor | None:
    """Some rows of what may not be there."""
    return None if tensor is None else tensor[rows]
