"""Qwen3.5, 3.6 and 3.8, dense and as mixtures: gated delta nets in three of four layers, gated attention in the others.

Their wrappers hold a vision tower and a layer that predicts a second token (`mtp`) beside the language model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from burnish_engine.contract.facts.facts import DeltaSpec, LayerKind
from burnish_engine.models.families.record import LANGUAGE_MODEL, Family
from burnish_engine.models.families.rules.config import Config, ConfigRules, size
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
    return read_rope(rope_parameters(config), config, head_dim, max_context, rotates_part=True), None


def _fields(config: Config) -> dict[str, Any]:
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
        "delta": delta,
        "conv_width": size(config, "linear_conv_kernel_dim"),
    }


def _expert_fields(config: Config) -> dict[str, Any]:
    return {"normalize": True, "shared_size": size(config, "shared_expert_intermediate_size")}


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
)  # fmt: skip
"""35B-A3B and its relatives: 256 experts, and one that sees every token."""
FAMILIES = (QWEN3_5, QWEN3_5_MOE)
