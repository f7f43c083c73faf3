"""Attention whose output is scaled by sigmoids of logits that are projected beside the queries.

LFM3 has one logit for each head, behind queries, keys and values: C = (N + 2 M) D + N. Qwen3.5 has one for each number,
behind each query head: C = (2 N + 2 M) D. Shapes as in `attention.mixer`, and K = N D, G logits of a head: 1 or D.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from typing_extensions import override

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.decoder.layer_types import Tensors
from burnish_engine.models.decoder.mixers.attention.mixer import AttentionMixer, build_attention
from burnish_engine.models.decoder.mixers.mixer import Mixer, MixerPass
from burnish_engine.models.decoder.rope_tables import PositionTables
from burnish_kernels.head_gate import op as head_gate


@dataclass(frozen=True)
class GatedAttentionMixer(Mixer):
    """The gated attention of one layer.

    Attributes:
        index: number of the layer.
        attention: attention without the gate.
    """

    name: ClassVar[str] = "gated_attention"

    index: int
    attention: AttentionMixer

    @override
    def prepare(self, mixer_pass: MixerPass) -> None:
        self.attention.prepare(self._ungated(mixer_pass))

    @override
    def inputs(self, mixer_pass: MixerPass) -> tuple[torch.Tensor, ...]:
        """Return queries, keys, values and gates."""
        return *self.attention.inputs(self._ungated(mixer_pass)), self._gates(mixer_pass.projected_TC)

    @override
    def mix(self, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor, mixer_pass: MixerPass) -> None:
        *attended, gate_TNG = inputs
        attended_TK = mixer_pass.buffers.get("attended_TK")
        if attended_TK is None:
            attended_TK = out_TK.new_empty(out_TK.shape)
        self.attention.mix(tuple(attended), attended_TK, mixer_pass)
        mixer_pass.own["attended_TK"] = attended_TK
        self.scale(attended_TK, gate_TNG, out_TK)

    @override
    def backward(
        self, gradient_TK: torch.Tensor, mixed_TK: torch.Tensor, out_TC: torch.Tensor, mixer_pass: MixerPass
    ) -> None:
        attention, attended_TK = self.attention, mixer_pass.own["attended_TK"]
        gradient_TND = attention.by_head(gradient_TK)
        head_gate.backward(
            gradient_TND,
            attention.by_head(attended_TK),
            self._gates(mixer_pass.projected_TC),
            dx_out=gradient_TND,
            dgate_out=self._gates(out_TC),
        )
        if self._by_number:
            dq_TND = torch.empty_like(gradient_TND)
            attention.differentiate(gradient_TK, attended_TK, out_TC, mixer_pass, dq_TND)
        else:
            attention.backward(gradient_TK, attended_TK, self._without_gates(out_TC), self._ungated(mixer_pass))

    def scale(self, flat_TK: torch.Tensor, gate_TNG: torch.Tensor, out_TK: torch.Tensor) -> None:
        """Fill `out_TK` with each head times the sigmoids of its gate."""
        by_head = self.attention.by_head
        head_gate.forward(by_head(flat_TK), gate_TNG, out=by_head(out_TK))

    @property
    def _by_number(self) -> bool:
        """Whether each number has a logit of its own."""
        return self.attention.shape.query_spacing is not None

    def _ungated(self, mixer_pass: MixerPass) -> MixerPass:
        """Return the pass of the attention alone."""
        return replace(mixer_pass, projected_TC=self._without_gates(mixer_pass.projected_TC))

    def _without_gates(self, projected_TC: torch.Tensor) -> torch.Tensor:
        """Return a view of the part that attention reads; gates between queries it passes over."""
        return projected_TC if self._by_number else projected_TC[:, : -self.attention.shape.heads]

    def _gates(self, projected_TC: torch.Tensor) -> torch.Tensor:
        """Return a view `[T, N, G]` of the logits."""
        s = self.attention.shape
        if s.query_spacing is None:
            return projected_TC[:, -s.heads :, None]
        return projected_TC[:, : s.heads * s.query_spacing].unflatten(1, (s.heads, -1))[..., s.head_dim :]


def build_gated_attention(spec: DecoderSpec, index: int, own: Tensors, tables: PositionTables) -> GatedAttentionMixer:
    """Build the gated attention of a layer; arguments as for `mixers.build.build_mixer`."""
    return GatedAttentionMixer(index, build_attention(spec, index, own, tables))
