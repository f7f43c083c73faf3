"""Qwen3.5, 3.6 and 3.8, dense and as mixtures: gated delta nets in three of four layers, gated attention in the others.

Their wrappers hold a vision tower and a layer for multi-token prediction (`mtp`) beside the language model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, DeltaSpec, LayerKind, LayerSpec
from burnish_engine.models.families.record import LANGUAGE_MODEL, Family
from burnish_engine.models.families.rules.config import Config, ConfigRules, size
from burnish_engine.models.families.rules.gguf import (
    ATTENTION_PARTS,
    FEED_FORWARD_PARTS,
    HEAD_NORMS,
    MIXTURE_PARTS,
    SHARED_EXPERT_PARTS,
    GgufRules,
    Metadata,
    Oddities,
    own_yarn,
)
from burnish_engine.models.families.rules.mixture import Mixture
from burnish_engine.models.families.rules.rope import Ropes, read_rope, rope_parameters

_DEFAULTS = {
    "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768, "num_key_value_heads": 4, "head_dim": 256,
    "partial_rotary_factor": 0.25, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}  # fmt: skip

_LAYER_KINDS: dict[str, LayerKind] = {"linear_attention": "gated_delta", "full_attention": "attention"}


def _kinds(config: Config, count: int, _window: int | None) -> list[LayerKind]:
    types, interval = config.get("layer_types"), size(config, "full_attention_interval")
    if types is not None:
        return [_LAYER_KINDS[types[i]] for i in range(count)]
    return ["gated_delta" if (i + 1) % interval else "attention" for i in range(count)]


def _ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    """Read the rope; its parts for time, height and width of an image (mrope) are one for text."""
    if not all(isinstance(pairs, int) and 0 <= pairs <= head_dim for pairs in _sections(config)):
        raise ValueError("mrope_section holds no counts of pairs")
    return read_rope(rope_parameters(config), config, head_dim, max_context, rotates_part=True), None


def _fields(config: Config) -> dict[str, Any]:
    if config.get("full_attention_interval"):
        size(config, "full_attention_interval")
    delta = DeltaSpec(
        key_heads=size(config, "linear_num_key_heads"),
        value_heads=size(config, "linear_num_value_heads"),
        key_dim=size(config, "linear_key_head_dim"),
        value_dim=size(config, "linear_value_head_dim"),
    )
    if delta.value_heads % delta.key_heads:
        raise ValueError(f"{delta.value_heads} value heads for {delta.key_heads} key heads")
    return {
        "qk_norm": True,
        "norm_one_plus": True,
        "attention_gate": "numbers",
        "mtp_layers": int(config.get("mtp_num_hidden_layers") or 0),
        "delta": delta,
        "conv_width": size(config, "linear_conv_kernel_dim"),
    }


def _expert_fields(config: Config) -> dict[str, Any]:
    return {"normalize": True, "shared_size": size(config, "shared_expert_intermediate_size")}


def _parts(layer: LayerSpec) -> tuple[str, ...]:
    mixer = (*ATTENTION_PARTS, *HEAD_NORMS) if layer.attends else _DELTA_PARTS
    feed_forward = (*MIXTURE_PARTS, *SHARED_EXPERT_PARTS) if layer.is_mixture else FEED_FORWARD_PARTS
    return ("attn_norm", "post_attention_norm", *feed_forward, *mixer)


def _metadata(spec: DecoderSpec, config: Config) -> Metadata:
    delta, experts = spec.delta, spec.experts
    assert delta is not None
    keys: Metadata = {
        "attention.recurrent_layers": [not layer.attends for layer in spec.layers],
        "full_attention_interval": int(config.get("full_attention_interval") or _DEFAULTS["full_attention_interval"]),
        "rope.dimension_count": int(spec.head_dim * spec.rope.partial),
        "rope.dimension_sections": _sections(config),
        "ssm.conv_kernel": spec.conv_width,
        "ssm.state_size": delta.key_dim,
        "ssm.group_count": delta.key_heads,
        "ssm.time_step_rank": delta.value_heads,
        "ssm.inner_size": delta.output,
    }
    return keys if experts is None else keys | {"expert_shared_feed_forward_length": experts.shared_size}


def _sections(config: Config) -> list[int]:
    """Read how many pairs of a head turn by time, height and width; llama.cpp has a fourth kind."""
    named = rope_parameters(config).get("mrope_section") or _SECTIONS
    return [*named, 0, 0, 0, 0][:4]


def _oddities(spec: DecoderSpec, config: Config) -> Oddities:
    delta, rope, sections = spec.delta, spec.rope, _sections(config)
    assert delta is not None
    pairs = range(int(spec.head_dim * rope.partial) // 2)
    turned = [pair // 3 < sections[pair % 3] for pair in (pair % max(sum(sections), 1) for pair in pairs)]
    return [
        ("has delta nets whose keys and values differ in size", delta.key_dim != delta.value_dim),
        (f"has norms with an epsilon of {spec.rms_norm_eps:g}, not 1e-06", spec.rms_norm_eps != _EPSILON),
        ("has biases in its attention", spec.attention_bias),
        ("turns fewer pairs of a head by position than its rope has", not all(turned)),
        (f"has {rope.scaling} rope", rope.scaling not in {"none", "linear", "yarn"}),
        own_yarn(spec),
    ]


def _moe_oddities(spec: DecoderSpec, config: Config) -> Oddities:
    lacks = spec.experts is None or not spec.experts.shared_size
    return [*_oddities(spec, config), ("has no expert that sees every token", lacks)]


_DELTA_PARTS = ("attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta", "ssm_conv1d", "ssm_norm", "ssm_out")
_SECTIONS = (11, 11, 10)
_EPSILON = 1e-6
"""Number that transformers adds to the squares of queries and keys; llama.cpp adds the norms' (`build_gdn_l2_norm`)."""
_GGUF = GgufRules(
    "qwen35",
    ("qwen35", "qwen2"),
    parts=_parts,
    plain_norms=("linear_attn.norm.weight",),
    metadata=_metadata,
    oddities=_oddities,
    rope="own",
    modules={
        "eh_proj": ("nextn.eh_proj",), "enorm": ("nextn.enorm",), "hnorm": ("nextn.hnorm",),
        "shared_head.norm": ("nextn.shared_head_norm",),
    },
    parameters={"linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias"},
)  # fmt: skip
QWEN3_5 = Family(
    "qwen3_5_text",
    config=ConfigRules(
        defaults=_DEFAULTS,
        fields=_fields,
        layer_kinds=_kinds,
        ropes=_ropes,
        part_sizes=(248_320, 4096, 12_288, 32, 16),
    ),
    wrappers={"qwen3_5": LANGUAGE_MODEL},
    gguf=_GGUF,
)
"""Dense, 0.8B to 27B."""
QWEN3_5_MOE = replace(
    QWEN3_5,
    model_type="qwen3_5_moe_text",
    config=replace(
        QWEN3_5.config,
        defaults={
            **_DEFAULTS, "num_key_value_heads": 2, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
        },
        part_sizes=(248_320, 2048, 512, 40, 16),
        mixture=Mixture(256, size_key="moe_intermediate_size", fields=_expert_fields),
    ),
    wrappers={"qwen3_5_moe": LANGUAGE_MODEL},
    gguf=replace(_GGUF, architecture="qwen35moe", oddities=_moe_oddities),
)  # fmt: skip
"""35B-A3B and its relatives: 256 experts, and one that sees every token."""
FAMILIES = (QWEN3_5, QWEN3_5_MOE)
