"""Llama and its nearest kin: SmolLM2 and what else calls itself llama, SmolLM3, Mistral, Mixtral and Ministral 3."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind
from burnish_engine.models.families.experts import ExpertNames
from burnish_engine.models.families.record import LANGUAGE_MODEL, Family
from burnish_engine.models.families.rules.config import (
    NO_BIASES,
    Config,
    ConfigRules,
    all_attention,
    dense_width,
    listed_or,
    mlp_bias,
    size,
    window_everywhere,
)
from burnish_engine.models.families.rules.gguf import (
    GgufRules,
    Metadata,
    Oddities,
    lacks_yarn,
    usual_config,
    window_in_context,
)
from burnish_engine.models.families.rules.mixture import Mixture
from burnish_engine.models.families.rules.rope import Ropes, original_context, read_rope, rope_parameters


def _smollm3_rotates(config: Config, count: int) -> list[bool]:
    if (given := config.get("no_rope_layers")) is not None:
        return [bool(given[i]) for i in range(count)]
    interval = size(config, "no_rope_layer_interval")
    return [(i + 1) % interval != 0 for i in range(count)]


def _smollm3_kinds(config: Config, count: int, window: int | None) -> list[LayerKind]:
    rotates = _smollm3_rotates(config, count)
    return ["attention" if window is None or rotating else "sliding_attention" for rotating in rotates]


def _smollm3_oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    # llama.cpp's smollm3 graph leaves out rope in every fourth layer and reads no key for it (src/models/smollm3.cpp).
    usual = [(index + 1) % 4 != 0 for index in range(spec.num_layers)]
    return [("has layers without rope that are not every fourth one", [layer.rope for layer in spec.layers] != usual)]


_MINISTRAL3_ROPE: dict[str, Any] = {
    "rope_type": "yarn", "rope_theta": 1_000_000.0, "factor": 16.0, "original_max_position_embeddings": 16_384,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip


def _ministral3_ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    parameters = rope_parameters(config) or _MINISTRAL3_ROPE
    own = {
        "original_context": original_context(parameters, config, max_context),
        "query_scale": float(parameters["llama_4_scaling_beta"]),
    }
    return read_rope(parameters, config, head_dim, max_context).model_copy(update=own), None


def _ministral3_metadata(spec: DecoderSpec, config: Config) -> Metadata:
    rope, keys = spec.rope, window_in_context(spec, config)
    keys |= {
        "rope.scaling.yarn_beta_fast": rope.beta_fast,
        "rope.scaling.yarn_beta_slow": rope.beta_slow,
        "attention.temperature_scale": rope.query_scale,
    }
    # llama.cpp multiplies by (1 + s) / (1 + it * s) with s = 0.1 ln(factor); without the key, by 1 + s.
    stretch = 0.1 * math.log(rope.factor)
    if stretch:
        keys["rope.scaling.yarn_log_multiplier"] = ((1.0 + stretch) / rope.attention_factor - 1.0) / stretch
    return keys


def _ministral3_oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    return [
        lacks_yarn(spec),
        ("bounds its yarn rope by fractions of a pair", not spec.rope.truncate),
        ("scales a rope that is not stretched", spec.rope.factor <= 1.0 and spec.rope.attention_factor != 1.0),
    ]


LLAMA = Family(
    "llama",
    config=ConfigRules(
        defaults={"rms_norm_eps": 1e-6, "max_position_embeddings": 2048},
        fields=mlp_bias,
        layer_kinds=all_attention,
        heads_divide_width=True,
        part_sizes=(32_000, 4096, 11_008, 32, 32),
    ),
    wrappers={
        "llava": LANGUAGE_MODEL,
        "llava_next": LANGUAGE_MODEL,
        "idefics3": "model.text_model.",
        "smolvlm": "model.text_model.",
    },
    gguf=GgufRules("llama", ("llama-bpe", "smollm", "gpt-2", "default"), interleaved=True, config=usual_config),
    own_attention=True,
)
"""Llama 1 to 3.3, SmolLM2, TinyLlama: the names that others deviate from."""
SMOLLM3 = Family(
    "smollm3",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768, "num_key_value_heads": 4,
            "tie_word_embeddings": True, "rope_theta": 2_000_000.0, "no_rope_layer_interval": 4,
        },
        fields=mlp_bias,
        layer_kinds=listed_or(_smollm3_kinds),
        rotates=_smollm3_rotates,
        window_on_request=True,
        part_sizes=(128_256, 2048, 11_008, 36, 16),
    ),
    gguf=GgufRules(
        "smollm3", ("llama-bpe", "smollm"), interleaved=True, oddities=_smollm3_oddities, config=usual_config
    ),
    own_attention=True,
)  # fmt: skip
"""SmolLM3: Llama whose every fourth layer rotates nothing."""
_MISTRAL_GGUF = GgufRules("llama", ("tekken", "llama-bpe", "gpt-2"), interleaved=True, metadata=window_in_context)
MISTRAL = Family(
    "mistral",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-6, "max_position_embeddings": 131_072, "num_key_value_heads": 8, "sliding_window": 4096,
        },
        fields=lambda _config: NO_BIASES,
        layer_kinds=window_everywhere,
        part_sizes=(32_000, 4096, 14_336, 32, 32),
    ),
    wrappers={"mistral3": LANGUAGE_MODEL},
    gguf=_MISTRAL_GGUF,
    own_attention=True,
)  # fmt: skip
"""Mistral 7B to Small: Llama with a window over all layers, or, since version 0.2, none."""
MIXTRAL = Family(
    "mixtral",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072, "num_key_value_heads": 8,
            "rope_theta": 1_000_000.0, "num_experts_per_tok": 2,
        },
        fields=lambda _config: NO_BIASES,
        layer_kinds=window_everywhere,
        width=dense_width,
        mixture=Mixture(8, fields=lambda _config: {"normalize": True, "rounded": False}),
    ),
    expert_names=ExpertNames("block_sparse_moe", gate="w1", up="w3", down="w2"),
    gguf=_MISTRAL_GGUF,
)  # fmt: skip
"""Mistral 7B with eight experts a layer."""
MINISTRAL3 = Family(
    "ministral3",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-5, "max_position_embeddings": 262_144, "num_key_value_heads": 8, "head_dim": 128,
        },
        fields=lambda _config: NO_BIASES,
        layer_kinds=window_everywhere,
        ropes=_ministral3_ropes,
        part_sizes=(131_072, 4096, 14_336, 34, 32),
    ),
    gguf=replace(
        _MISTRAL_GGUF,
        architecture="mistral3",
        metadata=_ministral3_metadata,
        oddities=_ministral3_oddities,
        rope="own",
    ),
)  # fmt: skip
"""Ministral 3: yarn rope, and queries that grow with their position."""
FAMILIES = (LLAMA, SMOLLM3, MISTRAL, MIXTRAL, MINISTRAL3)
