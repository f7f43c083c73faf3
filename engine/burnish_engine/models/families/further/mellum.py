"""Mellum 2: Qwen3's mixture of experts, with windows in three of four layers and a yarn rope in the others."""

from __future__ import annotations

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.families.record import Family
from burnish_engine.models.families.rules.config import Config, ConfigRules, usual_kinds
from burnish_engine.models.families.rules.gguf import GgufRules, Metadata, Oddities, named_yarn, normed_parts, own_yarn
from burnish_engine.models.families.rules.mixture import Mixture
from burnish_engine.models.families.rules.rope import Ropes, ropes_by_kind


def _ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    return ropes_by_kind(config, head_dim, max_context, theta=500_000.0, local_theta=10_000.0)


def _mixture_layers(config: Config, count: int) -> list[bool]:
    kinds = config.get("mlp_layer_types") or ["sparse"] * count
    return [kinds[i] == "sparse" for i in range(count)]


def _metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    if spec.sliding_window is None:
        return named_yarn(spec)
    local = [layer.kind == "sliding_attention" for layer in spec.layers]
    windows: Metadata = {
        "attention.sliding_window": spec.sliding_window, "attention.sliding_window_pattern": local
    }  # fmt: skip
    return {**windows, "rope.freq_base_swa": float((spec.local_rope or spec.rope).theta), **named_yarn(spec)}


def _oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    rope, local, experts = spec.rope, spec.local_rope or spec.rope, spec.experts
    return [
        ("has no head of its own", spec.tied_embeddings),
        ("has biases in its attention", spec.attention_bias),
        ("has layers without experts", not all(layer.is_mixture for layer in spec.layers)),
        ("does not make the weights of a token's experts add up to 1", experts is None or not experts.normalize),
        (f"has {rope.scaling} rope", rope.scaling not in {"none", "yarn"}),
        own_yarn(spec),
        # Its graph turns windowed layers by the base of the others, whatever the file says (src/models/mellum.cpp).
        (
            "has other positions in its windowed layers",
            spec.sliding_window is not None and (local.scaling != "none" or local.theta != rope.theta),
        ),
    ]


MELLUM = Family(
    "mellum",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-6, "max_position_embeddings": 131_072, "num_key_value_heads": 4, "head_dim": 128,
            "sliding_window": 1024, "num_experts_per_tok": 8, "moe_intermediate_size": 896, "norm_topk_prob": True,
        },
        fields=lambda _config: {"qk_norm": True},
        layer_kinds=usual_kinds,
        ropes=_ropes,
        mixture=Mixture(64, size_key="moe_intermediate_size", layers=_mixture_layers),
    ),
    gguf=GgufRules(
        "mellum",
        ("mellum", "gpt-2", "llama-bpe"),
        named_by="qwen3moe",
        parts=normed_parts,
        metadata=_metadata,
        oddities=_oddities,
        rope="own",
        computes_window=True,
    ),
    peft_converts=True,
)  # fmt: skip
"""Mellum2-12B-A2.5B of JetBrains."""
FAMILIES = (MELLUM,)
