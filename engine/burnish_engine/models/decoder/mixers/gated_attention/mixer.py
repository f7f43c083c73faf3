"""Attention whose output is scaled, head by head, by the sigmoid of a gate that is projected beside the queries (LFM3).

Shapes as in `attention.mixer`, and C = (N + 2 M) D + N, K = N D.
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
        return *self.attention.inputs(self._ungated(mixer_pass)), self._split(mixer_pass.projected_TC)[1]

    @override
    def mix(self, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor, mixer_pass: MixerPass) -> None:
        *attended, gate_TN = inputs
        attended_TK = mixer_pass.buffers.get("attended_TK")
        if attended_TK is None:
            attended_TK = out_TK.new_empty(out_TK.shape)
        self.attention.mix(tuple(attended), attended_TK, mixer_pass)
        mixer_pass.own["attended_TK"] = attended_TK
        self.scale(attended_TK, gate_TN, out_TK)

    @override
    def backward(
        self, gradient_TK: torch.Tensor, mixed_TK: torch.Tensor, out_TC: torch.Tensor, mixer_pass: MixerPass
    ) -> None:
        by_head, attended_TK = self.attention.by_head, mixer_pass.own["attended_TK"]
        gate_TN, (dqkv_TC, dgate_TN) = self._split(mixer_pass.projected_TC)[1], self._split(out_TC)
        wide = torch.promote_types(gate_TN.dtype, torch.float32)
        share_TN = torch.sigmoid(gate_TN.to(wide))
        dshare_TN = (by_head(gradient_TK) * by_head(attended_TK)).sum(dim=-1, dtype=wide)
        dgate_TN.copy_(dshare_TN * share_TN * (1.0 - share_TN))
        dattended_TK = torch.empty_like(attended_TK)
        self.scale(gradient_TK, gate_TN, dattended_TK)
        self.attention.backward(dattended_TK, attended_TK, dqkv_TC, self._ungated(mixer_pass))

    def scale(self, flat_TK: torch.Tensor, gate_TN: torch.Tensor, out_TK: torch.Tensor) -> None:
        """Fill `out_TK` with each head times the sigmoid of its gate; the sigmoid is rounded, as in transformers."""
        by_head = self.attention.by_head
        torch.mul(by_head(flat_TK), torch.sigmoid(gate_TN)[..., None], out=by_head(out_TK))

    def _ungated(self, mixer_pass: MixerPass) -> MixerPass:
        """Return the pass of the attention alone, without the gates."""
        return replace(mixer_pass, projected_TC=self._split(mixer_pass.projected_TC)[0])

    def _split(self, projected_TC: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return views of queries, keys and values together, and of the gates."""
        gates = self.attention.shape.heads
        return projected_TC[:, :-gates], projected_TC[:, -gates:]


def build_gated_attention(spec: DecoderSpec, index: int, own: Tensors, tables: PositionTables) -> GatedAttentionMixer:
    """Build the gated attention of a layer; arguments as for `mixers.build.build_mixer`."""
    return GatedAttentionMixer(index, build_attention(spec, index, own, tables))
