"""Qwen2, Qwen2.5 and Qwen3, dense and as mixtures: Llama with biases, later with normalized queries and keys.

The mixtures of Qwen1.5 and Qwen2 have an expert that sees every token beside those that are chosen.
"""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind, LayerSpec
from burnish_engine.models.families.record import LANGUAGE_MODEL, Family
from burnish_engine.models.families.rules.config import Config, ConfigRules, listed_or, size, window_everywhere
from burnish_engine.models.families.rules.gguf import (
    SHARED_EXPERT_PARTS,
    GgufRules,
    Metadata,
    Oddities,
    narrow_heads,
    normed_parts,
    usual_config,
    usual_parts,
)
from burnish_engine.models.families.rules.mixture import Mixture

_DEFAULTS = {
    "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768, "num_key_value_heads": 32, "sliding_window": 4096,
    "max_window_layers": 28,
}  # fmt: skip


def _window_from_a_layer_on(config: Config, count: int, window: int | None) -> list[LayerKind]:
    first = count if window is None else int(config["max_window_layers"])
    return ["sliding_attention" if i >= first else "attention" for i in range(count)]


def _mixture_layers(config: Config, count: int) -> list[bool]:
    """Every n-th layer, except those listed as dense."""
    step, dense = int(config.get("decoder_sparse_step") or 1), set(config.get("mlp_only_layers") or [])
    return [i not in dense and (i + 1) % step == 0 for i in range(count)]


def _oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    sliding = any(layer.kind == "sliding_attention" for layer in spec.layers)
    return [("uses sliding-window attention in some layers of a Qwen", sliding)]


def _shared_fields(config: Config) -> dict[str, Any]:
    return {"shared_size": size(config, "shared_expert_intermediate_size")}


def _qwen2_moe_windows(config: Config, count: int, window: int | None) -> list[LayerKind]:
    last = 0 if window is None else int(config["max_window_layers"])
    return ["attention" if i % 2 or i >= last else "sliding_attention" for i in range(count)]


def _qwen2_moe_parts(layer: LayerSpec) -> tuple[str, ...]:
    return (*usual_parts(layer), *SHARED_EXPERT_PARTS)


def _qwen2_moe_metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    return {"expert_shared_feed_forward_length": spec.experts.shared_size} if spec.experts is not None else {}


def _qwen2_moe_oddities(spec: DecoderSpec, config: Config) -> Oddities:
    return [
        *_oddities(spec, config),
        narrow_heads(spec),
        ("has no head of its own", spec.tied_embeddings),
        ("has layers without experts", not all(layer.is_mixture for layer in spec.layers)),
        ("makes the weights of a token's experts add up to 1", spec.experts is not None and spec.experts.normalize),
    ]


def _moe_oddities(spec: DecoderSpec, config: Config) -> Oddities:
    return [
        *_oddities(spec, config),
        ("has biases in its attention", spec.attention_bias),
        ("has layers without experts", not all(layer.is_mixture for layer in spec.layers)),
        (
            "does not make the weights of a token's experts add up to 1",
            spec.experts is None or not spec.experts.normalize,
        ),
    ]


QWEN2 = Family(
    "qwen2",
    config=ConfigRules(
        defaults=_DEFAULTS,
        fields=lambda _config: {"attention_bias": True, "attention_output_bias": False},
        layer_kinds=listed_or(_window_from_a_layer_on),
        window_on_request=True,
        part_sizes=(151_936, 4096, 22_016, 32, 32),
    ),
    wrappers={"llava_onevision": LANGUAGE_MODEL, "internvl": LANGUAGE_MODEL},
    gguf=GgufRules("qwen2", ("qwen2", "deepseek-r1-qwen"), oddities=_oddities, config=usual_config),
    own_attention=True,
)
"""Qwen2 and Qwen2.5: biases on q, k and v."""
QWEN3 = Family(
    "qwen3",
    config=ConfigRules(
        defaults={**_DEFAULTS, "head_dim": 128},
        fields=lambda _config: {"qk_norm": True},
        layer_kinds=listed_or(_window_from_a_layer_on),
        window_on_request=True,
        part_sizes=(151_936, 4096, 22_016, 32, 32),
    ),
    gguf=GgufRules("qwen3", ("qwen2",), parts=normed_parts, oddities=_oddities, config=usual_config),
    own_attention=True,
)
"""Qwen3: normalized queries and keys."""
QWEN3_MOE = Family(
    "qwen3_moe",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768, "num_key_value_heads": 4, "sliding_window": 4096,
            "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        },
        fields=lambda _config: {"qk_norm": True},
        layer_kinds=window_everywhere,
        window_on_request=True,
        mixture=Mixture(128, size_key="moe_intermediate_size", layers=_mixture_layers),
    ),
    gguf=GgufRules("qwen3moe", ("qwen2",), parts=normed_parts, oddities=_moe_oddities),
    peft_converts=True,
)  # fmt: skip
"""Qwen3-30B-A3B and its relatives."""
QWEN2_MOE = Family(
    "qwen2_moe",
    config=ConfigRules(
        defaults={
            **_DEFAULTS, "num_key_value_heads": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632, "qkv_bias": True,
        },
        fields=lambda config: {"attention_bias": bool(config["qkv_bias"]), "attention_output_bias": False},
        layer_kinds=listed_or(_qwen2_moe_windows),
        window_on_request=True,
        mixture=Mixture(60, size_key="moe_intermediate_size", fields=_shared_fields, layers=_mixture_layers),
    ),
    gguf=GgufRules(
        "qwen2moe", ("qwen2",), parts=_qwen2_moe_parts, metadata=_qwen2_moe_metadata, oddities=_qwen2_moe_oddities
    ),
)  # fmt: skip
"""Qwen1.5-MoE-A2.7B and Qwen2-57B-A14B."""
FAMILIES = (QWEN2, QWEN3, QWEN3_MOE, QWEN2_MOE)
