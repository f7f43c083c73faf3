"""The tensors and costs of an attention layer. Loads no torch.

Shapes as in `layer_tensors`, and N query heads, M key and value heads, D head dimension.
"""

from __future__ import annotations

from typing_extensions import override

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe.memory_plan import SaveLevel
from burnish_engine.models.decoder.layer_tensors import (
    ANY,
    EVERY,
    NEVER,
    NOTHING,
    PHASES,
    RECOMPUTED,
    TOKENS,
    WITH_OUTPUT,
    LayerTensor,
    StackSizes,
    always,
    if_whole,
    levels,
)
from burnish_engine.models.decoder.mixers.declaration import MixerDeclaration, Moved
from burnish_engine.models.decoder.mixers.projections import projection_tensors
from burnish_kernels.paged_attention.config import PAGE

_MOVED, _MOVED_NORMED = (4, 6), (5, 8)  # times the width of queries and keys, without and with their norms
_ROTATED_AGAIN = 4  # times that width, where queries and keys are projected again
_ROTATED_KEPT = 2  # times that width, not moved where rotated queries and keys are kept


class AttentionDeclaration(MixerDeclaration):
    """Attention over the tokens of a document, full or within a window."""

    @override
    def tensors(self, spec: DecoderSpec, stacks: StackSizes) -> tuple[LayerTensor, ...]:
        lse = LayerTensor(
            "lse_NT",
            (spec.num_heads, TOKENS),
            kept=always(WITH_OUTPUT),
            placed=WITH_OUTPUT,
            extra={
                "mixer": always(ANY),
                "feed_forward": always(levels(NOTHING)),
                **dict.fromkeys(PHASES[2:], always(levels("input"))),
            },
            read="mixer_out",
            is_fp32=True,
            of_mixer=True,
        )
        delta = LayerTensor(
            "delta_NT", (spec.num_heads, TOKENS), extra={"mixer_backward": always(EVERY)}, is_fp32=True
        )  # fmt: skip
        found = (lse, delta, *projection_tensors(stacks))
        if not spec.qk_norm:  # rotated in place
            return found
        if spec.qk_norm_whole:
            inverses = (rotated(name, is_fp32=True) for name in ("q_inverse_T", "k_inverse_T"))
            return (*found, rotated("qk_TXD", spec.num_heads + spec.num_kv_heads, spec.head_dim), *inverses)
        heads = {"q_TND": spec.num_heads, "k_TMD": spec.num_kv_heads}
        return (*found, *(rotated(name, count, spec.head_dim) for name, count in heads.items()))

    @override
    def moved(self, spec: DecoderSpec) -> Moved:
        forward, backward = _MOVED_NORMED if spec.qk_norm else _MOVED
        return Moved(forward * _width(spec), backward * _width(spec))

    @override
    def moved_again(self, spec: DecoderSpec, level: SaveLevel) -> int:
        if level in RECOMPUTED:
            return _ROTATED_AGAIN * _width(spec)
        return -_ROTATED_KEPT * _width(spec) if spec.qk_norm and level in {"all", "rotated"} else 0

    @override
    def operations(self, spec: DecoderSpec, layer: LayerSpec, tokens: int, span: float, edge: float) -> float:
        # 4 operations for each pair of tokens and number.
        window = spec.sliding_window if layer.kind == "sliding_attention" else None
        return 4.0 * tokens * (_seen(span, window) + edge / 2) * spec.num_heads * spec.head_dim


def _seen(span: float, window: int | None) -> float:
    """Return the tokens that a token attends to, averaged over a document: half of it, or nearly a whole window."""
    if window is None or span <= window:
        return span / 2
    return window * (1 - window / (2 * span))


def rotated(name: str, *per_token: int, is_fp32: bool = False) -> LayerTensor:
    """Declare normalized and rotated queries or keys, or what their norms found: outside the projection's output."""
    kept = levels("all", "rotated")
    return LayerTensor(
        name,
        (TOKENS, *per_token),
        kept=always(kept),
        placed=NEVER if is_fp32 else kept,
        extra={
            "mixer": always(ANY),
            "feed_forward_backward": if_whole(levels("input")),
            "input_gradient": if_whole(levels("input")),
            "mixer_backward": always(EVERY - kept),
        },
        read="mixer",
        is_fp32=is_fp32,
        of_mixer=True,
    )


def _width(spec: DecoderSpec) -> int:
    """Return the numbers of a token's queries and keys."""
    return (spec.num_heads + spec.num_kv_heads) * spec.head_dim


def paged_tensors(spec: DecoderSpec) -> int:
    """Return how many tensors of pages a model has: keys and values of each layer that keeps them."""
    return 2 * sum(layer.attends and layer.keys != "borrowed" for layer in spec.layers)


def page_bytes(spec: DecoderSpec, number_bytes: int) -> int:
    """Return the bytes of a page of 64 tokens in all layers of a model, given those of a number."""
    own = [spec.of_layer(layer) for layer in spec.layers if layer.attends and layer.keys != "borrowed"]
    return 2 * sum(one.num_kv_heads * one.head_dim for one in own) * PAGE * number_bytes
