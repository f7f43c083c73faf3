"""OLMo 2 and OLMoE: norms over all queries and all keys of a token."""

from __future__ import annotations

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.models.families.record import Family
from burnish_engine.models.families.rules.config import Config, ConfigRules, all_attention, dense_width, number
from burnish_engine.models.families.rules.gguf import (
    ATTENTION_PARTS,
    FEED_FORWARD_PARTS,
    HEAD_NORMS,
    GgufRules,
    Oddities,
    narrow_heads,
    usual_parts,
)
from burnish_engine.models.families.rules.mixture import Mixture

_WHOLE_NORMS = {"qk_norm": True, "qk_norm_whole": True}


def _post_norm_parts(_layer: LayerSpec) -> tuple[str, ...]:
    return (*ATTENTION_PARTS, *HEAD_NORMS, "post_attention_norm", *FEED_FORWARD_PARTS, "post_ffw_norm")


def _olmo2_oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    return [
        ("has no head of its own", spec.tied_embeddings),
        ("has biases in its attention", spec.attention_bias),
        narrow_heads(spec),
    ]


def _olmoe_oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    return [
        ("has no head of its own", spec.tied_embeddings),
        ("has biases in its attention", spec.attention_bias),
        ("bounds its queries, keys and values", spec.attention_clip is not None),
        ("has fewer key heads than query heads", spec.num_kv_heads != spec.num_heads),
        narrow_heads(spec),
        ("makes the weights of a token's experts add up to 1", spec.experts is not None and spec.experts.normalize),
    ]


OLMO2 = Family(
    "olmo2",
    mixer_post_norm="post_attention_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
    config=ConfigRules(
        defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 2048},
        fields=lambda _config: {**_WHOLE_NORMS, "pre_norms": False, "sandwich_norms": True},
        layer_kinds=all_attention,
    ),
    gguf=GgufRules("olmo2", ("dbrx", "olmo", "gpt-2"), parts=_post_norm_parts, oddities=_olmo2_oddities),
    own_attention=True,
)
"""OLMo 2: norms only after each half."""
OLMOE = Family(
    "olmoe",
    config=ConfigRules(
        defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "num_experts_per_tok": 8},
        fields=lambda config: {**_WHOLE_NORMS, "attention_clip": number(config, "clip_qkv")},
        layer_kinds=all_attention,
        width=dense_width,
        mixture=Mixture(64),
    ),
    gguf=GgufRules(
        "olmoe",
        ("olmo", "dbrx", "gpt-2"),
        parts=lambda layer: (*usual_parts(layer), *HEAD_NORMS),
        oddities=_olmoe_oddities,
    ),
)
"""A mixture of experts with the same norms of queries and keys, and Llama's norms before each half."""
FAMILIES = (OLMO2, OLMOE)
