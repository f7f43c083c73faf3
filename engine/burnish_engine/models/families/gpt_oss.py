"""gpt-oss: mixtures of experts in MXFP4, windows in every other layer, sinks in attention, biases everywhere."""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.models.families.experts import ExpertNames
from burnish_engine.models.families.matrices import MatrixNames
from burnish_engine.models.families.record import Family
from burnish_engine.models.families.rules.config import Config, ConfigRules, dense_width, listed_or, window_by_pattern
from burnish_engine.models.families.rules.gguf import (
    ATTENTION_PARTS,
    MIXTURE_PARTS,
    GgufRules,
    Metadata,
    Oddities,
    lacks_yarn,
)
from burnish_engine.models.families.rules.mixture import Mixture
from burnish_engine.models.families.rules.rope import Ropes, read_rope, rope_parameters

_YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}
_ALPHA, _LIMIT = 1.702, 7.0  # usual factor and bound in the experts' activation


def _ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    parameters = rope_parameters(config)
    if not parameters and config.get("rope_parameters") is None:
        parameters = _YARN
    return read_rope(parameters, config, head_dim, max_context), None


def _expert_fields(config: Config) -> dict[str, Any]:
    stored = config.get("quantization_config")
    is_mxfp4 = isinstance(stored, dict) and stored.get("quant_method") == "mxfp4"
    return {
        "router": "topk_softmax",
        "normalize": True,
        "router_bias": True,
        "bias": True,
        "layout": "interleaved",
        "activation": "clamped",
        "alpha": float(config["swiglu_alpha"]),
        "limit": float(config["swiglu_limit"]),
        "storage": "mxfp4" if is_mxfp4 else "dense",
    }


def _parts(_layer: LayerSpec) -> tuple[str, ...]:
    return (*ATTENTION_PARTS, "attn_norm", "attn_sinks", "post_attention_norm", *MIXTURE_PARTS)


def _metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    keys: Metadata = {
        "attention.sliding_window": spec.sliding_window or 0,
        "rope.scaling.yarn_beta_fast": spec.rope.beta_fast,
        "rope.scaling.yarn_beta_slow": spec.rope.beta_slow,
    }
    local = [layer.kind == "sliding_attention" for layer in spec.layers]
    if local != [index % 2 == 0 for index in range(spec.num_layers)]:  # llama.cpp's own pattern (openai-moe.cpp)
        keys["attention.sliding_window_pattern"] = local
    return keys


def _oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    experts = spec.experts
    bounds = experts is None or (experts.alpha, experts.limit) != (_ALPHA, _LIMIT)
    return [
        ("has no head of its own", spec.tied_embeddings),
        ("has no biases in its attention", not spec.attention_bias),
        ("has no window", spec.sliding_window is None),
        ("bounds its experts' activations otherwise than gpt-oss", bounds),
        lacks_yarn(spec),
    ]


GPT_OSS = Family(
    "gpt_oss",
    matrix_names=MatrixNames(router="mlp.router"),
    expert_names=ExpertNames(transposed=True),
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072, "num_key_value_heads": 8, "sliding_window": 128,
            "head_dim": 64, "sliding_window_pattern": 2, "attention_bias": True, "rope_theta": 150_000.0,
            "num_experts_per_tok": 4, "swiglu_alpha": _ALPHA, "swiglu_limit": _LIMIT,
        },
        fields=lambda _config: {"attention_sinks": True},
        layer_kinds=listed_or(window_by_pattern),
        ropes=_ropes,
        width=dense_width,
        mixture=Mixture(128, fields=_expert_fields),
    ),
    gguf=GgufRules(
        "gpt-oss",
        ("gpt-4o",),
        parts=_parts,
        metadata=_metadata,
        oddities=_oddities,
        rope="rounded",
        computes_window=True,
        parameters={"self_attn.sinks": "attn_sinks.weight"},
    ),
    softmax_in_fp32=False,
)  # fmt: skip
FAMILIES = (GPT_OSS,)
