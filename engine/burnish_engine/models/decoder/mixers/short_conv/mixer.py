"""Gated short convolution within packed documents (LFM2's operator).

Shapes as in `layer_tensors`, and C = 3H: the gates B and C and the convolution's input x; L taps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from typing_extensions import override

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.decoder.layer_types import SequenceMetadata, Tensors
from burnish_engine.models.decoder.mixers.mixer import Mixer
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
    def prepare(self, projected_TC: torch.Tensor, own: Tensors, sequences: SequenceMetadata, buffers: Tensors) -> None:
        """Do nothing: the projection's output is mixed as it is."""

    @override
    def inputs(self, projected_TC: torch.Tensor, own: Tensors, sequences: SequenceMetadata) -> tuple[torch.Tensor, ...]:
        return (projected_TC,)

    @override
    def mix(
        self,
        inputs: tuple[torch.Tensor, ...],
        out_TK: torch.Tensor,
        own: Tensors,
        sequences: SequenceMetadata,
        buffers: Tensors,
    ) -> None:
        (bcx_TC,) = inputs
        short_conv.forward(bcx_TC, self.weight_HL, sequences.documents.start_T, bias_H=self.bias_H, out=out_TK)

    @override
    def backward(
        self,
        gradient_TK: torch.Tensor,
        projected_TC: torch.Tensor,
        mixed_TK: torch.Tensor,
        own: Tensors,
        sequences: SequenceMetadata,
        projected_gradient_TC: torch.Tensor,
    ) -> None:
        documents = sequences.documents
        short_conv.backward(
            gradient_TK,
            projected_TC,
            self.weight_HL,
            documents.start_T,
            documents.end_T,
            bias_H=self.bias_H,
            out=projected_gradient_TC,
        )


def build_short_conv(spec: DecoderSpec, index: int, own: Tensors, tables: PositionTables) -> ShortConvMixer:  # noqa: ARG001
    """Build the convolution of a layer; arguments as for `mixers.build.build_mixer`."""
    return ShortConvMixer(index, own["conv_weight"].squeeze(1), own.get("conv_bias"))
