"""The tensors and costs of a layer with gated attention. Loads no torch.

Shapes as in `attention.declared`; the projection has a column for each head behind queries, keys and values.
"""

from __future__ import annotations

from typing_extensions import override

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.memory_plan import SaveLevel
from burnish_engine.models.decoder.layer_tensors import (
    ANY,
    EVERY,
    PHASES,
    TOKENS,
    WITH_OUTPUT,
    LayerTensor,
    StackSizes,
    always,
    levels,
)
from burnish_engine.models.decoder.mixers.attention.declared import AttentionDeclaration
from burnish_engine.models.decoder.mixers.declaration import Moved

_MOVED = (2, 6)  # times the width of attention's output, beside what attention itself moves


class GatedAttentionDeclaration(AttentionDeclaration):
    """Attention and the gate behind it, whose gradient needs attention's own output."""

    @override
    def tensors(self, spec: DecoderSpec, stacks: StackSizes) -> tuple[LayerTensor, ...]:
        width = spec.num_heads * spec.head_dim
        attended = LayerTensor(
            "attended_TK",
            (TOKENS, width),
            kept=always(WITH_OUTPUT),
            placed=WITH_OUTPUT,
            extra={"mixer": always(ANY), **dict.fromkeys(PHASES[2:], always(levels("input")))},
            read="mixer_out",
            of_mixer=True,
        )
        gradient = LayerTensor("attended_gradient_TK", (TOKENS, width), extra={"mixer_backward": always(EVERY)})
        return (*super().tensors(spec, stacks), attended, gradient)

    @override
    def moved(self, spec: DecoderSpec) -> Moved:
        own, width = super().moved(spec), spec.num_heads * spec.head_dim
        return Moved(own.forward + _MOVED[0] * width, own.backward + _MOVED[1] * width)

    @override
    def moved_again(self, spec: DecoderSpec, level: SaveLevel) -> int:
        gated = _MOVED[0] * spec.num_heads * spec.head_dim if level == "input" else 0
        return super().moved_again(spec, level) + gated
