"""Gated delta net within packed documents (Qwen3.5; arXiv 2412.06464).

Queries, keys and values pass a short convolution, each head's state takes them in by the delta rule, and what a token
reads from the states is normalized and gated.

Shapes as in `layer_tensors`, and X channels of the convolution (2 K D + V E: K key heads of D, V value heads of E),
J = V E, L taps. The projection has queries, keys and values, the gate z, and the logits b and a of strength and decay:
C = X + J + 2 V. The output projection's inputs, K elsewhere, are J here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from typing_extensions import override

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.decoder.layer_types import Tensors, not_none
from burnish_engine.models.decoder.mixers.gated_delta.declared import CHUNK, scratch_numbers
from burnish_engine.models.decoder.mixers.mixer import Mixer, MixerPass
from burnish_engine.models.decoder.rope_tables import PositionTables
from burnish_kernels.conv_silu import op as conv_silu
from burnish_kernels.delta_rule import op as delta_rule
from burnish_kernels.delta_rule.sizes import Sizes, workspace_bytes
from burnish_kernels.dispatch import use_kernels
from burnish_kernels.gated_norm import op as gated_norm


class DeltaInputs(NamedTuple):
    """Views of a projection, or of its gradient.

    Attributes:
        qkv_TX: queries, keys and values before the convolution.
        z_TJ: gate of the output.
        b_TV: logits of each token's strength.
        a_TV: inputs of each token's decay.
    """

    qkv_TX: torch.Tensor
    z_TJ: torch.Tensor
    b_TV: torch.Tensor
    a_TV: torch.Tensor


@dataclass(frozen=True)
class GatedDeltaMixer(Mixer):
    """The gated delta net of one layer.

    Attributes:
        index: number of the layer.
        sizes: heads.
        weight_XL: taps of the convolution, the last one for the token itself.
        a_log_V: logarithm of each head's decay rate, fp32.
        dt_bias_V: number added to a before its softplus, fp32.
        norm_E: weight of the norm of what is read.
        eps: epsilon of that norm.
    """

    name: ClassVar[str] = "gated_delta"

    index: int
    sizes: Sizes
    weight_XL: torch.Tensor
    a_log_V: torch.Tensor
    dt_bias_V: torch.Tensor
    norm_E: torch.Tensor
    eps: float

    @override
    def prepare(self, mixer_pass: MixerPass) -> None:
        """Do nothing: the projection's output is mixed as it is."""

    @override
    def inputs(self, mixer_pass: MixerPass) -> tuple[torch.Tensor, ...]:
        return self.split(mixer_pass.projected_TC)

    @override
    def mix(self, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor, mixer_pass: MixerPass) -> None:
        found, start_T = DeltaInputs(*inputs), mixer_pass.sequences.documents.start_T
        read_TJ = mixer_pass.buffers.get("read_TJ")
        if read_TJ is None:
            read_TJ = out_TK.new_empty(out_TK.shape)
        delta_rule.forward(
            conv_silu.forward(found.qkv_TX, self.weight_XL, start_T),
            found.b_TV,
            found.a_TV,
            self.a_log_V,
            self.dt_bias_V,
            start_T,
            self.sizes,
            out=read_TJ,
            workspace=self._workspace(read_TJ, backward=False),
        )
        mixer_pass.own["read_TJ"] = read_TJ
        gated_norm.forward(read_TJ, found.z_TJ, self.norm_E, eps=self.eps, out=out_TK)

    @override
    def backward(
        self, gradient_TK: torch.Tensor, mixed_TK: torch.Tensor, out_TC: torch.Tensor, mixer_pass: MixerPass
    ) -> None:
        start_T = mixer_pass.sequences.documents.start_T
        found, gradients = self.split(mixer_pass.projected_TC), self.split(out_TC)
        gated_norm.backward(
            gradient_TK,
            mixer_pass.own["read_TJ"],
            found.z_TJ,
            self.norm_E,
            eps=self.eps,
            do_out=gradient_TK,
            dz_out=gradients.z_TJ,
        )
        convolved_TX = conv_silu.forward(found.qkv_TX, self.weight_XL, start_T)
        delta_rule.backward(
            gradient_TK,
            convolved_TX,
            found.b_TV,
            found.a_TV,
            self.a_log_V,
            self.dt_bias_V,
            start_T,
            self.sizes,
            dqkv_out=convolved_TX,
            db_out=gradients.b_TV,
            da_out=gradients.a_TV,
            workspace=self._workspace(gradient_TK, backward=True),
        )
        conv_silu.backward(convolved_TX, found.qkv_TX, self.weight_XL, start_T, out=gradients.qkv_TX)

    def _workspace(self, like_TJ: torch.Tensor, *, backward: bool) -> torch.Tensor | None:
        """Allocate the scratch memory that the layer declares; in fp32, some heads use it after one another."""
        if not use_kernels(like_TJ):
            return None
        s, tokens, dtype = self.sizes, len(like_TJ), like_TJ.dtype
        exact, others = scratch_numbers(s.key_heads, s.value_heads, s.key_size, s.value_size, backward=backward)
        declared = (tokens + -tokens % CHUNK) * (4 * exact + dtype.itemsize * others)
        least = workspace_bytes(tokens, s, dtype, backward=backward, key_heads=1)
        return torch.empty(max(declared, least), dtype=torch.uint8, device=like_TJ.device)

    def split(self, projected_TC: torch.Tensor) -> DeltaInputs:
        """Return views of the parts of a projection."""
        s = self.sizes
        widths = (s.width, s.out_width, s.value_heads, s.value_heads)
        return DeltaInputs(*projected_TC.split(widths, dim=1))


def build_gated_delta(spec: DecoderSpec, index: int, own: Tensors, tables: PositionTables) -> GatedDeltaMixer:  # noqa: ARG001
    """Build the gated delta net of a layer; arguments as for `mixers.build.build_mixer`."""
    delta = not_none(spec.delta)
    sizes = Sizes(delta.key_heads, delta.value_heads, delta.key_dim, delta.value_dim)
    weight_XL = own["conv_weight"].squeeze(1)
    return GatedDeltaMixer(
        index, sizes, weight_XL, own["a_log"], own["dt_bias"], own["delta_norm"], spec.rms_norm_eps
    )  # fmt: skip
