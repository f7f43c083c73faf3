"""Granite 3 with its mixtures, the dense ones of Granite 4, and Granite SWA: Llama with factors for all its parts."""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind
from burnish_engine.models.families.experts import ExpertNames
from burnish_engine.models.families.matrices import MatrixNames
from burnish_engine.models.families.record import Family
from burnish_engine.models.families.rules.config import (
    Config,
    ConfigRules,
    all_attention,
    dense_width,
    kinds_of,
    listed_or,
    mlp_bias,
    positive,
    size,
)
from burnish_engine.models.families.rules.gguf import GgufRules, Metadata, usual_parts
from burnish_engine.models.families.rules.mixture import Mixture
from burnish_engine.models.families.rules.rope import Ropes, read_rope, rope_parameters

_DEFAULTS: dict[str, Any] = {
    "rms_norm_eps": 1e-6, "max_position_embeddings": 2048, "attention_multiplier": 1.0, "embedding_multiplier": 1.0,
    "residual_multiplier": 1.0, "logits_scaling": 1.0,
}  # fmt: skip


def _fields(config: Config) -> dict[str, Any]:
    return {
        "attention_scale": positive(config, "attention_multiplier"),
        "embedding_scale": float(config["embedding_multiplier"]),
        "residual_scale": positive(config, "residual_multiplier"),
        "logit_divisor": positive(config, "logits_scaling"),
    }


def _granite4_kinds(config: Config, count: int, window: int | None) -> list[LayerKind]:
    if config.get("num_local_experts"):
        raise ValueError("a mixture of experts")
    types = config.get("layer_types") or config["layers_block_type"]
    return all_attention(config, count, window) if types is None else kinds_of(types, count)


def _swa_kinds(_config: Config, count: int, _window: int | None) -> list[LayerKind]:
    return ["sliding_attention" if i % 4 else "attention" for i in range(count)]


def _swa_rotates(config: Config, count: int) -> list[bool]:
    thetas = config.get("layer_rope_theta")
    return [True] * count if thetas is None else [bool(thetas[i]) for i in range(count)]


def _swa_ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    parameters = rope_parameters(config)
    thetas = {theta for theta in config.get("layer_rope_theta") or () if theta}
    if len(thetas) > 1:
        raise ValueError("layers with different ropes")
    own = {"rope_theta": thetas.pop()} if thetas else {}
    return read_rope(parameters | own, config, head_dim, max_context), None


def _metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    return {
        "attention.scale": float(spec.attention_scale or spec.head_dim**-0.5),
        "embedding_scale": float(spec.embedding_scale),
        "residual_scale": float(spec.residual_scale),
        "logit_scale": float(spec.logit_divisor),
    }


def _rope_switch(spec: DecoderSpec, config: Config) -> Metadata:
    # llama.cpp's switch for rope in all layers (src/models/granite.cpp)
    return {**_metadata(spec, config), "rope.scaling.finetuned": spec.layers[0].rope}


def _swa_metadata(spec: DecoderSpec, config: Config) -> Metadata:
    return {
        **_metadata(spec, config),
        "attention.sliding_window": spec.sliding_window or 0,
        "attention.sliding_window_pattern": [layer.kind == "sliding_attention" for layer in spec.layers],
        "attention.rope_pattern": [layer.rope for layer in spec.layers],
    }


GRANITE = Family(
    "granite",
    config=ConfigRules(
        defaults=_DEFAULTS,
        fields=lambda config: {**mlp_bias(config), **_fields(config)},
        layer_kinds=all_attention,
    ),
    gguf=GgufRules("granite", ("refact", "starcoder", "dbrx", "gpt-4o"), interleaved=True, metadata=_rope_switch),
    own_attention=True,
)
GRANITE_MOE = Family(
    "granitemoe",
    matrix_names=MatrixNames(router="block_sparse_moe.router", experts="block_sparse_moe.experts"),
    config=ConfigRules(
        defaults={**_DEFAULTS, "num_experts_per_tok": 2},
        fields=_fields,
        layer_kinds=all_attention,
        width=dense_width,
        mixture=Mixture(8, fields=lambda _config: {"router": "topk_softmax", "normalize": False}),
    ),
    expert_names=ExpertNames(
        "block_sparse_moe", router="router.layer", stacks={"gate_up": "input_linear", "down": "output_linear"}
    ),
    gguf=GgufRules("granitemoe", ("refact", "starcoder", "dbrx", "gpt-4o"), interleaved=True, metadata=_metadata),
)
"""Granite 3 1B-A400M and 3B-A800M."""
GRANITE4 = Family(
    "granitemoehybrid",
    matrix_names=MatrixNames(gate_up=("shared_mlp.input_linear",), down="shared_mlp.output_linear"),
    config=ConfigRules(
        defaults={**_DEFAULTS, "num_local_experts": 8, "shared_intermediate_size": 1024},
        fields=_fields,
        layer_kinds=_granite4_kinds,
        rotates=lambda config, count: [config.get("position_embedding_type") == "rope"] * count,
        # Its dense layers are what mixtures call a shared expert.
        width=lambda config, _experts: size(config, "shared_intermediate_size"),
    ),
    gguf=GgufRules(
        "granite",
        ("dbrx", "gpt-4o", "refact"),
        interleaved=True,
        metadata=_rope_switch,
        modules={"shared_mlp.input_linear": ("ffn_gate", "ffn_up"), "shared_mlp.output_linear": ("ffn_down",)},
    ),
)
"""Granite 4 without mixture and without Mamba layers: gate and up are one matrix in the checkpoint."""
GRANITE_SWA = Family(
    "granite_swa",
    config=ConfigRules(
        defaults={
            **_DEFAULTS, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192, "num_key_value_heads": 4,
            "tie_word_embeddings": True, "sliding_window": 128,
        },
        fields=lambda config: {**mlp_bias(config), **_fields(config), "attention_sinks": True},
        layer_kinds=listed_or(_swa_kinds),
        rotates=_swa_rotates,
        ropes=_swa_ropes,
    ),
    gguf=GgufRules(
        "granite_swa",
        ("dbrx", "gpt-4o", "refact"),
        named_by="granite",
        parts=lambda layer: (*usual_parts(layer), "attn_sinks"),
        interleaved=True,
        metadata=_swa_metadata,
        oddities=lambda spec, _config: [("has no window", spec.sliding_window is None)],
        computes_window=True,
        parameters={"self_attn.sinks": "attn_sinks.weight"},
    ),
    softmax_in_fp32=True,
)  # fmt: skip
"""Granite SWA: windows in three of four layers, sinks in attention, and layers without rope."""
FAMILIES = (GRANITE, GRANITE_MOE, GRANITE4, GRANITE_SWA)
UNFUSED = {"granitemoe_swa": True}
"""A relative that only the plain engine trains; see `Family.softmax_in_fp32`."""
