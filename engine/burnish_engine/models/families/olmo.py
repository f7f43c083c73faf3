"""OLMo 2, OLMo 3 and OLMoE: norms over all queries and all keys of a token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind, LayerSpec
from burnish_engine.models.families.record import Family
from burnish_engine.models.families.rules.config import (
    Config,
    ConfigRules,
    all_attention,
    dense_width,
    listed_or,
    number,
)
from burnish_engine.models.families.rules.gguf import (
    ATTENTION_PARTS,
    FEED_FORWARD_PARTS,
    HEAD_NORMS,
    GgufRules,
    Metadata,
    Oddities,
    named_yarn,
    narrow_heads,
    normed_parts,
    own_yarn,
)
from burnish_engine.models.families.rules.mixture import Mixture
from burnish_engine.models.families.rules.rope import Ropes, ropes_by_kind

_WHOLE_NORMS = {"qk_norm": True, "qk_norm_whole": True}
_EVERY = 4  # interval of OLMo 3's layers without a window, also in llama.cpp (src/models/olmo2.cpp)
_THETA = 500_000.0  # rope base of OLMo 3


def _olmo2_fields(_config: Config) -> dict[str, Any]:
    return {**_WHOLE_NORMS, "pre_norms": False, "sandwich_norms": True}


def _olmo3_kinds(_config: Config, count: int, _window: int | None) -> list[LayerKind]:
    return ["attention" if (i + 1) % _EVERY == 0 else "sliding_attention" for i in range(count)]


def _olmo3_ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    theta = config.get("rope_theta", _THETA)
    return ropes_by_kind(config, head_dim, max_context, theta=theta, local_theta=_THETA)


def _post_norm_parts(_layer: LayerSpec) -> tuple[str, ...]:
    return (*ATTENTION_PARTS, *HEAD_NORMS, "post_attention_norm", *FEED_FORWARD_PARTS, "post_ffw_norm")


def _olmo2_oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    return [
        ("has no head of its own", spec.tied_embeddings),
        ("has biases in its attention", spec.attention_bias),
        narrow_heads(spec),
    ]


def _olmo3_metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    rope = spec.rope
    keys: Metadata = {"attention.sliding_window": spec.sliding_window or 0}
    keys["rope.freq_base_swa"] = float((spec.local_rope or rope).theta)
    keys["attention.sliding_window_pattern"] = [layer.kind == "sliding_attention" for layer in spec.layers]
    return keys | named_yarn(spec)


def _olmo3_oddities(spec: DecoderSpec, config: Config) -> Oddities:
    rope, local = spec.rope, spec.local_rope or spec.rope
    windows = [layer.kind == "sliding_attention" for layer in spec.layers]
    return [
        *_olmo2_oddities(spec, config),
        (
            "has windows in other layers than three of four",
            windows != [(i + 1) % _EVERY != 0 for i in range(len(windows))],
        ),
        (f"has {rope.scaling} rope", rope.scaling not in {"none", "yarn"}),
        own_yarn(spec),
        ("has other positions in its local layers", local.scaling != "none" or local.theta != rope.theta),
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


_GGUF = GgufRules("olmo2", ("dbrx", "olmo", "gpt-2"), parts=_post_norm_parts, oddities=_olmo2_oddities)
OLMO2 = Family(
    "olmo2",
    mixer_post_norm="post_attention_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
    config=ConfigRules(
        defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 2048},
        fields=_olmo2_fields,
        layer_kinds=all_attention,
    ),
    gguf=_GGUF,
    own_attention=True,
)
"""OLMo 2: norms only after each half."""
OLMO3 = replace(
    OLMO2,
    model_type="olmo3",
    config=ConfigRules(
        defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "sliding_window": 4096},
        fields=_olmo2_fields,
        layer_kinds=listed_or(_olmo3_kinds),
        ropes=_olmo3_ropes,
    ),
    gguf=replace(_GGUF, metadata=_olmo3_metadata, oddities=_olmo3_oddities, rope="own", computes_window=True),
)
"""OLMo 3: OLMo 2 with windows in three of four layers, and yarn in the others."""
OLMOE = Family(
    "olmoe",
    config=ConfigRules(
        defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "num_experts_per_tok": 8},
        fields=lambda config: {**_WHOLE_NORMS, "attention_clip": number(config, "clip_qkv")},
        layer_kinds=all_attention,
        width=dense_width,
        mixture=Mixture(64),
    ),
    gguf=GgufRules("olmoe", ("olmo", "dbrx", "gpt-2"), parts=normed_parts, oddities=_olmoe_oddities),
    peft_converts=True,
)
"""A mixture of experts with the same norms of queries and keys, and Llama's norms before each half."""
FAMILIES = (OLMO2, OLMO3, OLMOE)
