"""Build the mixer of a layer from its weights."""

from __future__ import annotations

from collections.abc import Callable

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind
from burnish_engine.models.decoder.layer_types import Tensors
from burnish_engine.models.decoder.mixers.attention.mixer import build_attention
from burnish_engine.models.decoder.mixers.gated_attention.mixer import build_gated_attention
from burnish_engine.models.decoder.mixers.gated_delta.mixer import build_gated_delta
from burnish_engine.models.decoder.mixers.mixer import Mixer
from burnish_engine.models.decoder.mixers.short_conv.mixer import build_short_conv
from burnish_engine.models.decoder.mixers.value_norm_attention.mixer import build_value_norm_attention
from burnish_engine.models.decoder.rope_tables import PositionTables

_BUILDERS: dict[LayerKind, Callable[[DecoderSpec, int, Tensors, PositionTables], Mixer]] = {
    "attention": build_attention,
    "sliding_attention": build_attention,
    "short_convolution": build_short_conv,
    "gated_delta": build_gated_delta,
}


def build_mixer(spec: DecoderSpec, index: int, own: Tensors, tables: PositionTables) -> Mixer:
    """Build the mixer of a layer.

    Args:
        spec: shape of the model.
        index: number of the layer.
        own: parameters of the mixer by role.
        tables: rope tables of the model.
    """
    build = _BUILDERS[spec.layers[index].kind]
    if build is build_attention and spec.attention_gate:
        return build_gated_attention(spec, index, own, tables)
    if build is build_attention and spec.value_norm:
        return build_value_norm_attention(spec, index, own, tables)
    return build(spec, index, own, tables)
