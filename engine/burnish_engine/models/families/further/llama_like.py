"""Models of several makers that are Llama but for one or two settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind, LayerSpec
from burnish_engine.models.families.llama import LLAMA
from burnish_engine.models.families.matrices import MatrixNames
from burnish_engine.models.families.record import Family
from burnish_engine.models.families.rules.config import (
    NO_BIASES,
    Config,
    ConfigRules,
    all_attention,
    listed_or,
    mlp_bias,
    window_everywhere,
)
from burnish_engine.models.families.rules.gguf import (
    ATTENTION_PARTS,
    FEED_FORWARD_PARTS,
    GgufRules,
    Oddities,
    window_in_context,
)
from burnish_engine.models.families.rules.rope import Ropes, read_rope, rope_kind, rope_parameters, usual_ropes

_CWM_ROPE = {
    "rope_type": "llama3", "rope_theta": 1_000_000.0, "factor": 16.0, "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip
_BPE = ("llama-bpe", "gpt-2", "smollm", "default")


def _interleaved_ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    rope, _ = usual_ropes(config, head_dim, max_context)
    return rope.model_copy(update={"interleaved": True}), None


def _internlm3_fields(config: Config) -> dict[str, Any]:
    attends, feeds = (bool(config.get(new, config.get(old))) for new, old in _INTERNLM3_BIASES)
    return {"attention_bias": attends, "attention_output_bias": attends, "mlp_bias": feeds}


_INTERNLM3_BIASES = (("attention_bias", "qkv_bias"), ("mlp_bias", "bias"))


def _internlm3_ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    parameters = rope_parameters(config)
    if rope_kind(parameters) == "dynamic":  # it stretches only what is longer than max_position_embeddings
        parameters = {"rope_theta": parameters.get("rope_theta") or config.get("rope_theta")}
    return read_rope(parameters, config, head_dim, max_context), None


def _cwm_kinds(_config: Config, count: int, _window: int | None) -> list[LayerKind]:
    return ["sliding_attention" if i % 4 else "attention" for i in range(count)]


def _cwm_ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    given = config.get("rope_scaling") or config.get("rope_parameters")
    return usual_ropes(config if given else {**config, "rope_parameters": _CWM_ROPE}, head_dim, max_context)


def _ernie_fields(config: Config) -> dict[str, Any]:
    has_biases = bool(config.get("use_bias"))
    return {"attention_bias": has_biases, "attention_output_bias": has_biases, "mlp_bias": has_biases}


def _seed_fields(config: Config) -> dict[str, Any]:
    return {**mlp_bias(config), "attention_output_bias": bool(config["attention_out_bias"])}


def _seed_parts(_layer: LayerSpec) -> tuple[str, ...]:
    return (*ATTENTION_PARTS, "attn_norm", "post_attention_norm", *FEED_FORWARD_PARTS)


def _up_parts(_layer: LayerSpec) -> tuple[str, ...]:
    return (*ATTENTION_PARTS, "attn_norm", "ffn_up", "ffn_down", "ffn_norm")


def _biases(spec: DecoderSpec, _config: Config) -> Oddities:
    return [("has biases in its attention", spec.attention_bias or spec.attention_output_bias)]


def _output_biases(spec: DecoderSpec, _config: Config) -> Oddities:
    return [("has biases in attention's output", spec.attention_output_bias)]


ARCEE = Family(
    "arcee",
    matrix_names=MatrixNames(gate_up=("mlp.up_proj",)),
    config=ConfigRules(
        defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "hidden_act": "relu2"},
        fields=lambda config: {**mlp_bias(config), "mlp_gate": False},
        layer_kinds=all_attention,
        heads_divide_width=True,
    ),
    gguf=GgufRules("arcee", _BPE, parts=_up_parts, interleaved=True, oddities=_biases, activations=("relu2",)),
    own_attention=True,
)
"""AFM-4.5B of Arcee: a feed-forward without a gate, activated by squared ReLU."""
CWM = Family(
    "cwm",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072, "num_key_value_heads": 8, "head_dim": 128,
            "sliding_window": 8192,
        },
        fields=lambda _config: NO_BIASES,
        layer_kinds=listed_or(_cwm_kinds),
        ropes=_cwm_ropes,
        heads_divide_width=True,
    ),
    gguf=GgufRules("llama", _BPE, interleaved=True, metadata=window_in_context),
    own_attention=True,
)  # fmt: skip
"""Meta's Code World Model: a window in three of four layers."""
ERNIE4_5 = Family(
    "ernie4_5",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072, "num_key_value_heads": 2, "head_dim": 128,
            "rope_theta": 500_000.0, "tie_word_embeddings": True,
        },
        fields=_ernie_fields,
        layer_kinds=all_attention,
        ropes=_interleaved_ropes,
    ),
    gguf=GgufRules("ernie4_5", ("default", *_BPE[:3])),
    own_attention=True,
)  # fmt: skip
"""ERNIE 4.5 0.3B of Baidu: rope that turns neighboring numbers."""
HELIUM = Family(
    "helium",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-8, "max_position_embeddings": 4096, "num_key_value_heads": 20, "head_dim": 128,
            "rope_theta": 100_000.0,
        },
        fields=lambda config: {**mlp_bias(config), "attention_output_bias": False},
        layer_kinds=all_attention,
        ropes=_interleaved_ropes,
    ),
    gguf=GgufRules("llama", ("default", *_BPE[:3]), oddities=_biases),
    own_attention=True,
)  # fmt: skip
"""Helium of Kyutai: the same rope, which llama.cpp's Llama has too, so that no rows change places."""
INTERNLM3 = replace(
    LLAMA,
    model_type="internlm3",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-5, "max_position_embeddings": 32_768, "num_key_value_heads": 2, "head_dim": 128,
        },
        fields=_internlm3_fields,
        layer_kinds=all_attention,
        ropes=_internlm3_ropes,
        heads_divide_width=True,
    ),
    wrappers={},
)  # fmt: skip
"""InternLM3 8B of Shanghai AI Laboratory, which names biases and rope otherwise."""
IQUESTCODER = replace(
    LLAMA,
    model_type="iquestcoder",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072, "num_key_value_heads": 8, "head_dim": 128,
        },
        fields=mlp_bias,
        layer_kinds=all_attention,
        heads_divide_width=True,
    ),
    wrappers={},
)  # fmt: skip
"""IQuest-Coder of Ubiquant: Llama by another name."""
MINISTRAL = Family(
    "ministral",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-6, "max_position_embeddings": 131_072, "num_key_value_heads": 8, "sliding_window": 4096,
        },
        fields=lambda _config: NO_BIASES,
        layer_kinds=listed_or(window_everywhere),
    ),
    gguf=GgufRules("llama", ("tekken", *_BPE[:2]), interleaved=True, metadata=window_in_context),
    own_attention=True,
)  # fmt: skip
"""Ministral 8B of Mistral AI: windows in the layers that its config lists."""
SEED_OSS = Family(
    "seed_oss",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-6, "max_position_embeddings": 524_288, "num_key_value_heads": 8, "head_dim": 128,
            "attention_bias": True, "attention_out_bias": False,
        },
        fields=_seed_fields,
        layer_kinds=all_attention,
    ),
    gguf=GgufRules("seed_oss", ("seed-coder", *_BPE[:3]), parts=_seed_parts, oddities=_output_biases),
    own_attention=True,
)  # fmt: skip
"""Seed-OSS 36B of ByteDance: biases on q, k and v, and heads that are wider together than the model."""
FAMILIES = (ARCEE, CWM, ERNIE4_5, HELIUM, INTERNLM3, IQUESTCODER, MINISTRAL, SEED_OSS)
