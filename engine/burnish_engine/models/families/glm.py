"""GLM-4: rope that turns neighboring numbers in one half of each head, and gate and up as one matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.models.families.matrices import MatrixNames
from burnish_engine.models.families.record import Family
from burnish_engine.models.families.rules.config import Config, ConfigRules, all_attention
from burnish_engine.models.families.rules.gguf import (
    ATTENTION_PARTS,
    GgufRules,
    Metadata,
    Oddities,
    narrow_heads,
    own_yarn,
)
from burnish_engine.models.families.rules.rope import Ropes, read_rope, rope_parameters


def _fields(_config: Config) -> dict[str, Any]:
    return {"attention_output_bias": False}


def _ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    rope = read_rope(rope_parameters(config), config, head_dim, max_context, rotates_part=True)
    return rope.model_copy(update={"interleaved": True}), None


def _parts(_layer: LayerSpec) -> tuple[str, ...]:
    return (*ATTENTION_PARTS, "attn_norm", "ffn_up", "ffn_down", "ffn_norm")


def _sandwich_parts(layer: LayerSpec) -> tuple[str, ...]:
    return (*_parts(layer), "post_attention_norm", "post_ffw_norm")


def _metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    return {"rope.dimension_count": int(spec.head_dim * spec.rope.partial)}


def _rope_oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    scaling = spec.rope.scaling
    return [(f"has {scaling} rope", scaling not in {"none", "linear", "yarn"}), own_yarn(spec)]


def _oddities(spec: DecoderSpec, config: Config) -> Oddities:
    return [*_rope_oddities(spec, config), narrow_heads(spec)]


GLM = Family(
    "glm",
    matrix_names=MatrixNames(gate_up=("mlp.gate_up_proj",)),
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1.5625e-7, "max_position_embeddings": 131_072, "num_key_value_heads": 2, "head_dim": 128,
            "attention_bias": True, "partial_rotary_factor": 0.5,
        },
        fields=_fields,
        layer_kinds=all_attention,
        ropes=_ropes,
    ),
    gguf=GgufRules("chatglm", ("chatglm-bpe",), parts=_parts, metadata=_metadata, oddities=_oddities, rope="own"),
    own_attention=True,
)  # fmt: skip
"""GLM-4-9B of 2024: Llama's norms."""
GLM4 = replace(
    GLM,
    model_type="glm4",
    mixer_post_norm="post_self_attn_layernorm",
    mlp_post_norm="post_mlp_layernorm",
    config=replace(GLM.config, fields=lambda config: {**_fields(config), "sandwich_norms": True}),
    gguf=GgufRules(
        "glm4",
        ("glm4", "chatglm-bpe"),
        parts=_sandwich_parts,
        metadata=_metadata,
        oddities=_rope_oddities,
        rope="own",
    ),
)
"""GLM-4-0414 (9B, 32B): a norm behind each half of a layer too."""
FAMILIES = (GLM, GLM4)
