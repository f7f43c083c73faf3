"""Attention with normalized values, whose keys and values later layers may use too.

A layer that lends its keys and values keeps them until its own gradient, and takes the gradients that the borrowing
layers left. One that borrows projects queries alone: C = N D. Where keys are values too, C = N D + M D, and both are
made from the same part of the projection, by different norms.

Shapes as in `attention.mixer`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from typing_extensions import override

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.decoder.layer_types import LentKeys, Tensors, not_none
from burnish_engine.models.decoder.mixers.attention.mixer import AttentionMixer, build_attention
from burnish_engine.models.decoder.mixers.mixer import MixerPass
from burnish_engine.models.decoder.rope_tables import PositionTables
from burnish_kernels.attention import op as attention
from burnish_kernels.rope import op as rope

_MADE = ("q_TND", "k_TMD", "v_TMD")


@dataclass(frozen=True)
class ValueNormAttention(AttentionMixer):
    """The attention of one layer.

    Attributes:
        unit_D: ones, the weight of the values' norm.
        keys: whose keys and values it attends to, as `LayerSpec.keys`.
        lender: number of the layer that they are of.
        projects_values: whether the projection has values beside keys.
    """

    name: ClassVar[str] = "value_norm_attention"

    unit_D: torch.Tensor | None = None
    keys: Literal["own", "lent", "borrowed"] = "own"
    lender: int = 0
    projects_values: bool = True

    @property
    @override
    def keys_layer(self) -> int:
        return self.lender

    @property
    @override
    def key_heads(self) -> int:
        return 0 if self.keys == "borrowed" else self.shape.kv_heads

    @override
    def prepare(self, mixer_pass: MixerPass) -> None:
        own = mixer_pass.own
        given = mixer_pass.buffers | {name: own[name] for name in _MADE if name in own}
        q_TND, k_TMD = self._rotate(mixer_pass, given.get("q_TND"), given.get("k_TMD"))
        own["q_TND"] = q_TND
        if self.keys == "borrowed":
            return
        own["k_TMD"], own["v_TMD"] = k_TMD, self._normalize(mixer_pass.projected_TC, given.get("v_TMD"))
        if self.keys == "lent":
            not_none(mixer_pass.sequences.state).lent.setdefault(self.index, LentKeys(k_TMD, own["v_TMD"]))

    @override
    def inputs(self, mixer_pass: MixerPass) -> tuple[torch.Tensor, ...]:
        own = mixer_pass.own
        if "q_TND" not in own:
            self.prepare(replace(mixer_pass, buffers={}))
        if self.keys == "borrowed":
            lent = self._lent(mixer_pass)
            return own["q_TND"], lent.k_TMD, lent.v_TMD
        return own["q_TND"], own["k_TMD"], own["v_TMD"]

    @override
    def differentiate(
        self,
        gradient_TK: torch.Tensor,
        mixed_TK: torch.Tensor,
        out_TC: torch.Tensor,
        mixer_pass: MixerPass,
        dq_TND: torch.Tensor,
    ) -> None:
        s = self.shape
        q_TND, k_TMD, v_TMD = self.inputs(mixer_pass)
        dk_TMD, dv_TMD = self._gradient_places(out_TC, k_TMD)
        attention.backward(
            self.by_head(gradient_TK),
            q_TND,
            k_TMD,
            v_TMD,
            self.by_head(mixed_TK),
            mixer_pass.own["lse_NT"],
            mixer_pass.sequences.documents,
            scale=s.scale,
            window=s.window,
            softcap=s.softcap,
            dq_out=dq_TND,
            dk_out=dk_TMD,
            dv_out=dv_TMD,
        )
        if self.keys == "borrowed":
            self._lent(mixer_pass).add_gradient(dk_TMD, dv_TMD)
        if self.keys == "lent":
            lent = not_none(mixer_pass.sequences.state).lent.pop(self.index)
            if lent.gradient is not None:  # None: no layer between this one and the top was differentiated
                dk_TMD += lent.gradient[0]
                dv_TMD += lent.gradient[1]
        self._rotate_back(dq_TND, out_TC, mixer_pass)
        if self.keys != "borrowed":
            self._values_gradient(dv_TMD, out_TC, mixer_pass.projected_TC)

    def _gradient_places(self, out_TC: torch.Tensor, like_TMD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return memory for the gradients of keys and values, in the projection's gradient where they have a place."""
        if self.keys == "borrowed":
            both_2TMD = like_TMD.new_empty(2, *like_TMD.shape)
            return both_2TMD[0], both_2TMD[1]
        _, dk_TMD, dv_TMD = self._heads(out_TC)
        return dk_TMD, dv_TMD if self.projects_values else like_TMD.new_empty(like_TMD.shape)

    def _values_gradient(self, dv_TMD: torch.Tensor, out_TC: torch.Tensor, projected_TC: torch.Tensor) -> None:
        """Turn the gradient of normalized values into that of what was projected for them."""
        s, first = self.shape, self._first_value
        width = s.kv_heads * s.head_dim
        part_TX = out_TC[:, first : first + width]
        place_TX = part_TX if self.projects_values else part_TX.new_empty(part_TX.shape)
        rope.backward(
            dv_TMD,
            dv_TMD[:, :0],
            projected_TC[:, first : first + width],
            None,
            None,
            num_heads=s.kv_heads,
            num_kv_heads=0,
            head_dim=s.head_dim,
            q_weight_D=self.unit_D,
            k_weight_D=self.unit_D,
            eps=s.eps,
            dqkv_out=place_TX,
        )
        if not self.projects_values:
            part_TX += place_TX

    def _normalize(self, projected_TC: torch.Tensor, out_TMD: torch.Tensor | None) -> torch.Tensor:
        """Normalize what was projected for the values."""
        s = self.shape
        return rope.forward(
            projected_TC[:, self._first_value :],
            None,
            None,
            num_heads=s.kv_heads,
            num_kv_heads=0,
            head_dim=s.head_dim,
            q_weight_D=self.unit_D,
            k_weight_D=self.unit_D,
            eps=s.eps,
            q_out=out_TMD,
        )[0]

    @property
    def _first_value(self) -> int:
        """Column of the projection where that begins."""
        s = self.shape
        return (s.heads + (s.kv_heads if self.projects_values else 0)) * s.head_dim

    def _lent(self, mixer_pass: MixerPass) -> LentKeys:
        return not_none(mixer_pass.sequences.state).lent[self.lender]

    @override
    def _heads(self, projected_TC: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        s, count = self.shape, self.key_heads
        all_TXD = projected_TC.unflatten(1, (-1, s.head_dim))
        first = s.heads + (count if self.projects_values else 0)
        return all_TXD[:, : s.heads], all_TXD[:, s.heads : s.heads + count], all_TXD[:, first : first + count]


def build_value_norm_attention(
    spec: DecoderSpec, index: int, own: Tensors, tables: PositionTables
) -> ValueNormAttention:
    """Build the attention of a layer; arguments as for `mixers.build.build_mixer`."""
    plain, layer = build_attention(spec, index, own, tables), spec.layers[index]
    unit_D = torch.ones_like(not_none(plain.q_norm))
    return ValueNormAttention(
        index,
        plain.shape,
        plain.q_norm,
        unit_D if plain.k_norm is None else plain.k_norm,
        plain.table_PR,
        unit_D=unit_D,
        keys=layer.keys,
        lender=spec.keys_layer(index),
        projects_values=layer.projects_values,
    )
