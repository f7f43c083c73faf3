"""Gated short convolution within packed documents (LFM2's operator).

Shapes as in `layer_tensors`, and C = 3H: the gates B and C and the convolution's input x; L taps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from typing_extensions import override

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.decoder.layer_types import Tensors
from burnish_engine.models.decoder.mixers.mixer import Mixer, MixerPass
from burnish_engine.models.decoder.rope_tables import PositionTables
from burnish_kernels.short_conv import op as short_conv


@dataclass(frozen=True)
class ShortConvMixer(Mixer):
    """The convolution of one layer.

    Attributes:
        index: number of the layer.
        weight_HL: taps, the last one for the token itself.
        bias_H: bias, or None.
    """

    name: ClassVar[str] = "short_conv"

    index: int
    weight_HL: torch.Tensor
    bias_H: torch.Tensor | None = None

    @override
    def prepare(self, mixer_pass: MixerPass) -> None:
        """Do nothing: the projection's output is mixed as it is."""

    @override
    def inputs(self, mixer_pass: MixerPass) -> tuple[torch.Tensor, ...]:
        return (mixer_pass.projected_TC,)

    @override
    def mix(self, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor, mixer_pass: MixerPass) -> None:
        (bcx_TC,) = inputs
        short_conv.forward(
            bcx_TC, self.weight_HL, mixer_pass.sequences.documents.start_T, bias_H=self.bias_H, out=out_TK
        )

    @override
    def backward(
        self, gradient_TK: torch.Tensor, mixed_TK: torch.Tensor, out_TC: torch.Tensor, mixer_pass: MixerPass
    ) -> None:
        documents = mixer_pass.sequences.documents
        short_conv.backward(
            gradient_TK,
            mixer_pass.projected_TC,
            self.weight_HL,
            documents.start_T,
            documents.end_T,
            bias_H=self.bias_H,
            out=out_TC,
        )


def build_short_conv(spec: DecoderSpec, index: int, own: Tensors, tables: PositionTables) -> ShortConvMixer:  # noqa: ARG001
    """Build the convolution of a layer; arguments as for `mixers.build.build_mixer`."""
    return ShortConvMixer(index, own["conv_weight"].squeeze(1), own.get("conv_bias"))
