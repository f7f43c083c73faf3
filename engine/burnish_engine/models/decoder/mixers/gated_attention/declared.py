"""The tensors and costs of a layer with gated attention. Loads no torch.

Shapes as in `attention.declared`; the projection has a column of gates for each head, or for each number of it.
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

_MOVED, _MOVED_BY_NUMBER = (2, 3), (3, 7)
"""Times the width of attention's output, beside what attention itself moves: the gate's kernels, and with a gate for
each number also its logits, their gradients, and the adapter's reads of both."""


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
        found = (*super().tensors(spec, stacks), attended)
        if spec.attention_gate != "numbers":
            return found
        gradient = LayerTensor("query_gradient_TK", (TOKENS, width), extra={"mixer_backward": always(EVERY)})
        return (*found, gradient)

    @override
    def moved(self, spec: DecoderSpec) -> Moved:
        own, width = super().moved(spec), spec.num_heads * spec.head_dim
        forward, backward = _gate_moved(spec)
        return Moved(own.forward + forward * width, own.backward + backward * width)

    @override
    def moved_again(self, spec: DecoderSpec, level: SaveLevel) -> int:
        gated = _gate_moved(spec)[0] * spec.num_heads * spec.head_dim if level == "input" else 0
        return super().moved_again(spec, level) + gated


def _gate_moved(spec: DecoderSpec) -> tuple[int, int]:
    return _MOVED_BY_NUMBER if spec.attention_gate == "numbers" else _MOVED
