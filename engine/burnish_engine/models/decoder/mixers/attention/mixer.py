"""Attention within packed documents, with rotated queries and keys.

Shapes as in `layer_tensors`, and N query heads, M key and value heads, D head dimension, S numbers from one query head
to the next in the projection (D, unless gates lie between), C = N S + 2 M D.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from typing_extensions import override

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.decoder.layer_types import SequenceMetadata, Tensors, not_none
from burnish_engine.models.decoder.mixers.mixer import Mixer, MixerPass
from burnish_engine.models.decoder.rope_tables import PositionTables
from burnish_kernels.attention import op as attention
from burnish_kernels.rms_norm import op as rms_norm
from burnish_kernels.rope import op as rope

_INVERSES = ("q_inverse_T", "k_inverse_T")


@dataclass(frozen=True)
class AttentionShape:
    """The constants of an attention layer.

    Attributes:
        heads, kv_heads, head_dim: sizes N, M, D.
        window: number of tokens that a token sees, itself included; None: its whole document.
        scale: factor of the attention scores.
        softcap: soft cap of the attention scores, or None.
        eps: epsilon of the norms of queries and keys.
        one_plus: whether these norms scale by 1 + weight.
        clip: bound of queries, keys and values before rotation; None: none. With norms over the whole width only.
        interleaved: whether neighboring numbers of a head turn together (`RopeSpec.interleaved`).
        query_spacing: size S; None: D. With norms of each head only, which write the queries next to each other.
    """

    heads: int
    kv_heads: int
    head_dim: int
    window: int | None
    scale: float
    softcap: float | None
    eps: float = 0.0
    one_plus: bool = False
    clip: float | None = None
    interleaved: bool = False
    query_spacing: int | None = None


@dataclass(frozen=True)
class AttentionMixer(Mixer):
    """The attention of one layer.

    Attributes:
        index: number of the layer.
        shape: constants of the layer.
        q_norm, k_norm: weights `[D]` of the norms of queries and keys; None: there are none.
        table_PR: rope table, or None for a layer without positions.
        query_scale_P: factor of the queries at each position; None: it is 1.
        query_factor_D: factor of each number of a query, after rotation; None: it is 1.
        sinks_N: fp32 logit of each query head's sink, frozen; None: there are none.
    """

    name: ClassVar[str] = "attention"

    index: int
    shape: AttentionShape
    q_norm: torch.Tensor | None = None
    k_norm: torch.Tensor | None = None
    table_PR: torch.Tensor | None = None
    query_scale_P: torch.Tensor | None = None
    query_factor_D: torch.Tensor | None = None
    sinks_N: torch.Tensor | None = None

    @property
    def keys_layer(self) -> int:
        """Number of the layer whose keys and values it attends to."""
        return self.index

    @property
    def key_heads(self) -> int:
        """Number of key heads in its projection."""
        return self.shape.kv_heads

    @override
    def prepare(self, mixer_pass: MixerPass) -> None:
        own, buffers = mixer_pass.own, mixer_pass.buffers
        if self.q_norm is not None:
            own["q_TND"], own["k_TMD"] = self._rotate(mixer_pass, buffers.get("q_TND"), buffers.get("k_TMD"))
        elif self.table_PR is not None:  # in place: the backward pass does not need what was there before
            q_TND, k_TMD, _ = self._heads(mixer_pass.projected_TC)
            self._rotate(mixer_pass, q_TND, k_TMD)

    @override
    def inputs(self, mixer_pass: MixerPass) -> tuple[torch.Tensor, ...]:
        own, (q_TND, k_TMD, v_TMD) = mixer_pass.own, self._heads(mixer_pass.projected_TC)
        if self.q_norm is None:
            return q_TND, k_TMD, v_TMD
        if "q_TND" not in own:
            own["q_TND"], own["k_TMD"] = self._rotate(mixer_pass, None, None)
        return own["q_TND"], own["k_TMD"], v_TMD

    @override
    def mix(self, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor, mixer_pass: MixerPass) -> None:
        s, (q_TND, k_TMD, v_TMD) = self.shape, inputs
        _, mixer_pass.own["lse_NT"] = attention.forward(
            q_TND,
            k_TMD,
            v_TMD,
            mixer_pass.sequences.documents,
            scale=s.scale,
            window=s.window,
            softcap=s.softcap,
            sinks_N=self.sinks_N,
            out=self.by_head(out_TK),
            lse_out=mixer_pass.buffers.get("lse_NT"),
        )

    @override
    def backward(
        self, gradient_TK: torch.Tensor, mixed_TK: torch.Tensor, out_TC: torch.Tensor, mixer_pass: MixerPass
    ) -> None:
        self.differentiate(gradient_TK, mixed_TK, out_TC, mixer_pass, self._heads(out_TC)[0])

    def differentiate(
        self,
        gradient_TK: torch.Tensor,
        mixed_TK: torch.Tensor,
        out_TC: torch.Tensor,
        mixer_pass: MixerPass,
        dq_TND: torch.Tensor,
    ) -> None:
        """Do what `backward` does, with memory for the gradients of rotated queries, their heads next to each other."""
        s = self.shape
        q_TND, k_TMD, v_TMD = self.inputs(mixer_pass)
        _, dk_TMD, dv_TMD = self._heads(out_TC)
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
            sinks_N=self.sinks_N,
            dq_out=dq_TND,
            dk_out=dk_TMD,
            dv_out=dv_TMD,
        )
        self.scale_queries_(dq_TND, mixer_pass.sequences)
        self._rotate_back(dq_TND, out_TC, mixer_pass)

    def _rotate_back(self, dq_TND: torch.Tensor, out_TC: torch.Tensor, mixer_pass: MixerPass) -> None:
        """Turn the gradients of queries and keys into those of the projection; keys in place."""
        if self.q_norm is None and self.table_PR is None:
            return
        s = self.shape
        dk_TMD = self._heads(out_TC)[1]
        rope.backward(
            dq_TND,
            dk_TMD,
            mixer_pass.projected_TC,
            self.table_PR,
            self._positions(mixer_pass),
            num_heads=s.heads,
            num_kv_heads=self.key_heads,
            head_dim=s.head_dim,
            q_weight_D=self.q_norm,
            k_weight_D=self.k_norm,
            eps=s.eps,
            one_plus_weight=s.one_plus,
            interleaved=s.interleaved,
            query_spacing=s.query_spacing,
            dqkv_out=out_TC,
        )

    def _positions(self, mixer_pass: MixerPass) -> torch.Tensor | None:
        """Return each token's row of the rope table; None in a layer without positions."""
        return None if self.table_PR is None else mixer_pass.sequences.table_index_T

    def scale_queries_(self, q_TND: torch.Tensor, sequences: SequenceMetadata) -> None:
        """Multiply rotated queries, or their gradients, by their factors."""
        if self.query_factor_D is not None:
            q_TND *= self.query_factor_D
        if self.query_scale_P is not None:
            scale_T = self.query_scale_P.index_select(0, sequences.table_index_T)
            q_TND *= scale_T.to(q_TND.dtype)[:, None, None]

    def by_head(self, flat_TK: torch.Tensor) -> torch.Tensor:
        """Return a view `[T, N, D]`."""
        return flat_TK.unflatten(1, (self.shape.heads, self.shape.head_dim))

    def _heads(self, projected_TC: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return views of queries, keys and values."""
        s = self.shape
        spacing = s.query_spacing or s.head_dim
        q_TNS = projected_TC[:, : s.heads * spacing].unflatten(1, (s.heads, spacing))
        kv_TXD = projected_TC[:, s.heads * spacing :].unflatten(1, (2 * s.kv_heads, s.head_dim))
        return q_TNS[..., : s.head_dim], kv_TXD[:, : s.kv_heads], kv_TXD[:, s.kv_heads :]

    def _rotate(
        self, mixer_pass: MixerPass, q_out: torch.Tensor | None, k_out: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        s = self.shape
        q_TND, k_TMD = rope.forward(
            mixer_pass.projected_TC,
            self.table_PR,
            self._positions(mixer_pass),
            num_heads=s.heads,
            num_kv_heads=self.key_heads,
            head_dim=s.head_dim,
            q_weight_D=self.q_norm,
            k_weight_D=self.k_norm,
            eps=s.eps,
            one_plus_weight=s.one_plus,
            interleaved=s.interleaved,
            query_spacing=s.query_spacing,
            q_out=q_out,
            k_out=k_out,
        )
        self.scale_queries_(q_TND, mixer_pass.sequences)
        return q_TND, k_TMD


class WholeNormAttention(AttentionMixer):
    """Attention with norms over all queries and all keys of a token together: weights `[N D]` and `[M D]` (OLMo 2).

    OLMoE may clip queries, keys and values then. A value beyond the bound has no gradient.
    """

    @override
    def prepare(self, mixer_pass: MixerPass) -> None:
        s, projected_TC, qk_TXD = self.shape, mixer_pass.projected_TC, mixer_pass.buffers.get("qk_TXD")
        if qk_TXD is None:
            qk_TXD = projected_TC.new_empty(len(projected_TC), s.heads + s.kv_heads, s.head_dim)
        mixer_pass.own["qk_TXD"] = qk_TXD
        for name, weight, x_TX, y_TX in zip(
            _INVERSES, self._norms, self._flat(projected_TC), self._flat(qk_TXD.flatten(1)), strict=True
        ):
            _, _, mixer_pass.own[name] = rms_norm.forward(x_TX, weight, eps=s.eps, one_plus_weight=s.one_plus, out=y_TX)
        if s.clip is not None:
            for clipped in (qk_TXD, self._heads(projected_TC)[2]):
                clipped.clamp_(-s.clip, s.clip)
        q_TND, k_TMD = qk_TXD.split((s.heads, s.kv_heads), dim=1)
        if self.table_PR is not None:
            rope.forward(
                qk_TXD.flatten(1),
                self.table_PR,
                mixer_pass.sequences.table_index_T,
                num_heads=s.heads,
                num_kv_heads=s.kv_heads,
                head_dim=s.head_dim,
                interleaved=s.interleaved,
                q_out=q_TND,
                k_out=k_TMD,
            )
        self.scale_queries_(q_TND, mixer_pass.sequences)

    @override
    def inputs(self, mixer_pass: MixerPass) -> tuple[torch.Tensor, ...]:
        s = self.shape
        if "qk_TXD" not in mixer_pass.own:
            self.prepare(replace(mixer_pass, buffers={}))
        return *mixer_pass.own["qk_TXD"].split((s.heads, s.kv_heads), dim=1), self._heads(mixer_pass.projected_TC)[2]

    @override
    def _rotate_back(self, dq_TND: torch.Tensor, out_TC: torch.Tensor, mixer_pass: MixerPass) -> None:
        s, projected_TC = self.shape, mixer_pass.projected_TC
        dk_TMD = self._heads(out_TC)[1]
        if self.table_PR is not None:
            rope.backward(
                dq_TND,
                dk_TMD,
                None,
                self.table_PR,
                mixer_pass.sequences.table_index_T,
                num_heads=s.heads,
                num_kv_heads=s.kv_heads,
                head_dim=s.head_dim,
                interleaved=s.interleaved,
                dqkv_out=out_TC,
            )
        for name, weight, x_TX, dx_TX in zip(
            _INVERSES, self._norms, self._flat(projected_TC), self._flat(out_TC), strict=True
        ):
            if s.clip is not None:
                y_TX = rms_norm.forward(x_TX, weight, eps=s.eps, one_plus_weight=s.one_plus)[0]
                dx_TX.masked_fill_(y_TX.abs() > s.clip, 0.0)
            rms_norm.backward(dx_TX, x_TX, weight, mixer_pass.own[name], one_plus_weight=s.one_plus, out=dx_TX)
        if s.clip is not None:
            v_TMD, dv_TMD = self._heads(projected_TC)[2], self._heads(out_TC)[2]
            dv_TMD.masked_fill_(v_TMD.abs() >= s.clip, 0.0)

    @property
    def _norms(self) -> tuple[torch.Tensor, torch.Tensor]:
        return not_none(self.q_norm), not_none(self.k_norm)

    def _flat(self, stacked_TC: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return views of all queries and of all keys of each token."""
        query, key = self.shape.heads * self.shape.head_dim, self.shape.kv_heads * self.shape.head_dim
        return stacked_TC[:, :query], stacked_TC[:, query : query + key]


def build_attention(spec: DecoderSpec, index: int, own: Tensors, tables: PositionTables) -> AttentionMixer:
    """Build the attention of a layer; arguments as for `mixers.build.build_mixer`."""
    layer = spec.layers[index]
    spec = spec.of_layer(layer)
    shape = AttentionShape(
        heads=spec.num_heads,
        kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        window=spec.sliding_window if layer.kind == "sliding_attention" else None,
        scale=spec.attention_scale or spec.head_dim**-0.5,
        softcap=spec.attention_softcap,
        eps=spec.rms_norm_eps,
        one_plus=spec.norm_one_plus,
        clip=spec.attention_clip,
        interleaved=spec.rope.interleaved,
        query_spacing=2 * spec.head_dim if spec.attention_gate == "numbers" else None,
    )
    q_norm, k_norm, factor_D = own.get("q_norm"), own.get("k_norm"), None
    if spec.qk_norm_after and q_norm is not None and k_norm is not None:
        # Rotation leaves a head's length as it is. The weights of both norms reach a score as their product.
        factor_D, q_norm, k_norm = q_norm * k_norm, torch.ones_like(q_norm), torch.ones_like(k_norm)
    kind, sinks_N = WholeNormAttention if spec.qk_norm_whole else AttentionMixer, own.get("sinks")
    if sinks_N is not None:
        sinks_N = sinks_N.to(torch.promote_types(sinks_N.dtype, torch.float32))
    scales = tables.query_scales_of_layer(layer)
    return kind(index, shape, q_norm, k_norm, tables.of_layer(layer), scales, factor_D, sinks_N)
