"""EXAONE 4: norms after each half and over queries and keys; its large model rotates only in layers with a window."""

from __future__ import annotations

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind, LayerSpec
from burnish_engine.models.families.record import Family
from burnish_engine.models.families.rules.config import NO_BIASES, Config, ConfigRules, listed_or, size
from burnish_engine.models.families.rules.gguf import (
    ATTENTION_PARTS,
    FEED_FORWARD_PARTS,
    HEAD_NORMS,
    GgufRules,
    Metadata,
    Oddities,
    narrow_heads,
)

_WINDOWED = 64  # layers of the 32B, the only number for which llama.cpp computes windows (src/models/exaone4.cpp)


def _by_pattern(config: Config, count: int, window: int | None) -> list[LayerKind]:
    if window is None:
        return ["attention"] * count
    every = size(config, "sliding_window_pattern")
    return ["sliding_attention" if (i + 1) % every else "attention" for i in range(count)]


_kinds = listed_or(_by_pattern)


def _rotates(config: Config, count: int) -> list[bool]:
    window = config.get("sliding_window")
    return [window is None or kind == "sliding_attention" for kind in _kinds(config, count, window)]


def _parts(_layer: LayerSpec) -> tuple[str, ...]:
    return (*ATTENTION_PARTS, *HEAD_NORMS, "post_attention_norm", *FEED_FORWARD_PARTS, "post_ffw_norm")


def _metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    if spec.sliding_window is None:
        return {}
    local = [layer.kind == "sliding_attention" for layer in spec.layers]
    return {"attention.sliding_window": spec.sliding_window, "attention.sliding_window_pattern": local}


def _oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    # Its graph takes models of 64 layers for ones with windows, and rotates in all layers of others.
    windowed, turned = spec.sliding_window is not None, all(layer.rope for layer in spec.layers)
    return [
        narrow_heads(spec),
        (f"has windows and {spec.num_layers} layers, not {_WINDOWED}", windowed and spec.num_layers != _WINDOWED),
        (f"has {_WINDOWED} layers and no windows", not windowed and spec.num_layers == _WINDOWED),
        ("has no windows and layers without rope", not windowed and not turned),
    ]


EXAONE4 = Family(
    "exaone4",
    mixer_post_norm="post_attention_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "num_key_value_heads": 32, "sliding_window": 4096,
            "sliding_window_pattern": 4,
        },
        fields=lambda _config: {"qk_norm": True, "pre_norms": False, "sandwich_norms": True, **NO_BIASES},
        layer_kinds=_kinds,
        rotates=_rotates,
    ),
    gguf=GgufRules(
        "exaone4",
        ("exaone4", "gpt-2", "llama-bpe"),
        parts=_parts,
        metadata=_metadata,
        oddities=_oddities,
        computes_window=True,
    ),
    own_attention=True,
)  # fmt: skip
"""EXAONE 4.0 1.2B and 32B of LG AI Research."""
FAMILIES = (EXAONE4,)
