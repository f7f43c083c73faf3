"""The tensors and costs of attention with normalized values. Loads no torch.

Shapes as in `attention.declared`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from typing_extensions import override

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe.memory_plan import SaveLevel
from burnish_engine.models.decoder.layer_tensors import (
    ANY,
    EVERY,
    PHASES,
    TOKENS,
    LayerTensor,
    StackSizes,
    always,
)
from burnish_engine.models.decoder.mixers.attention.declared import AttentionDeclaration, rotated
from burnish_engine.models.decoder.mixers.declaration import Moved

_MOVED_VALUES = (2, 4)
"""Times the width of a layer's own values: read and written by their norm, and by its gradient with what it reads."""
_KEYS = ("k_TMD", "v_TMD")


@dataclass(frozen=True)
class ValueNormDeclaration(AttentionDeclaration):
    """Attention whose values are normalized.

    Attributes:
        layer: the layer. Keys and values that it lends stay until its own gradient, at every save level; where it
            borrows them, only their gradients are its own.
    """

    layer: LayerSpec

    @override
    def tensors(self, spec: DecoderSpec, stacks: StackSizes) -> tuple[LayerTensor, ...]:
        width = spec.num_kv_heads, spec.head_dim
        found = [one for one in super().tensors(spec, stacks) if one.name not in _KEYS]
        if self.layer.keys == "own":
            found += [rotated(name, *width) for name in _KEYS]
        if self.layer.keys == "lent":
            found += [
                replace(
                    rotated(name, *width),
                    kept=always(EVERY),
                    placed=EVERY,
                    extra=dict.fromkeys(PHASES[:2], always(ANY)),
                    read="layer",
                )
                for name in _KEYS
            ]
        if self.layer.keys == "borrowed" or not self.layer.projects_values:
            count = 2 if self.layer.keys == "borrowed" else 1
            found.append(
                LayerTensor(
                    "keys_gradient_TMD", (TOKENS, count, *width), extra={"mixer_backward": always(EVERY)}
                )
            )  # fmt: skip
        return tuple(found)

    @override
    def moved(self, spec: DecoderSpec) -> Moved:
        own, (forward, backward) = super().moved(spec), _MOVED_VALUES
        values = spec.num_kv_heads * spec.head_dim
        return Moved(own.forward + forward * values, own.backward + backward * values)

    @override
    def moved_again(self, spec: DecoderSpec, level: SaveLevel) -> int:
        values = spec.num_kv_heads * spec.head_dim if self.layer.keys != "borrowed" else 0
        return super().moved_again(spec, level) + (0 if level in {"all", "rotated"} else _MOVED_VALUES[0] * values)
