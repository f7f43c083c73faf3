"""Build the attention of a layer."""

from __future__ import annotations

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.decoder.layer_types import Tensors
from burnish_engine.models.decoder.mixers.attention.mixer import Attention, AttentionShape
from burnish_engine.models.decoder.rope_tables import PositionTables


def build_attention(spec: DecoderSpec, index: int, own: Tensors, tables: PositionTables) -> Attention:
    """Build the attention of a layer; arguments as for `mixers.build.build_mixer`."""
    layer = spec.layers[index]
    shape = AttentionShape(
        heads=spec.num_heads,
        kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        window=spec.sliding_window if layer.kind == "sliding_attention" else None,
        scale=spec.attention_scale or spec.head_dim**-0.5,
        softcap=spec.attention_softcap,
        eps=spec.rms_norm_eps,
        one_plus=spec.norm_one_plus,
    )
    return Attention(index, shape, own.get("q_norm"), own.get("k_norm"), tables.of_layer(layer))
