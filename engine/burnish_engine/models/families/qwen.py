"""Qwen2, Qwen2.5 and Qwen3, dense and as mixtures: Llama with biases, later with normalized queries and keys."""

from __future__ import annotations

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind
from burnish_engine.models.families.record import LANGUAGE_MODEL, Family
from burnish_engine.models.families.rules.config import Config, ConfigRules, listed_or, window_everywhere
from burnish_engine.models.families.rules.gguf import GgufRules, Oddities, normed_parts
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
    gguf=GgufRules("qwen2", ("qwen2", "deepseek-r1-qwen"), oddities=_oddities),
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
    gguf=GgufRules("qwen3", ("qwen2",), parts=normed_parts, oddities=_oddities),
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
)  # fmt: skip
"""Qwen3-30B-A3B and its relatives."""
FAMILIES = (QWEN2, QWEN3, QWEN3_MOE)
