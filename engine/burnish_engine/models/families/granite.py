"""Granite 3, and the dense ones of Granite 4: Llama with factors for embeddings, attention, halves and logits."""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind
from burnish_engine.models.families.llama import mlp_bias
from burnish_engine.models.families.matrices import MatrixNames
from burnish_engine.models.families.record import Family
from burnish_engine.models.families.rules.config import (
    Config,
    ConfigRules,
    all_attention,
    kinds_of,
    positive,
    size,
)
from burnish_engine.models.families.rules.gguf import GgufRules, Metadata

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


def _metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    return {
        "attention.scale": float(spec.attention_scale or spec.head_dim**-0.5),
        "embedding_scale": float(spec.embedding_scale),
        "residual_scale": float(spec.residual_scale),
        "logit_scale": float(spec.logit_divisor),
        "rope.scaling.finetuned": spec.layers[0].rope,  # its switch for rope in all layers (src/models/granite.cpp)
    }


GRANITE = Family(
    "granite",
    config=ConfigRules(
        defaults=_DEFAULTS,
        fields=lambda config: {**mlp_bias(config), **_fields(config)},
        layer_kinds=all_attention,
    ),
    gguf=GgufRules("granite", ("refact", "starcoder", "dbrx", "gpt-4o"), interleaved=True, metadata=_metadata),
    own_attention=True,
)
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
        metadata=_metadata,
        modules={"shared_mlp.input_linear": ("ffn_gate", "ffn_up"), "shared_mlp.output_linear": ("ffn_down",)},
    ),
)
"""Granite 4 without mixture and without Mamba layers: gate and up are one matrix in the checkpoint."""
FAMILIES = (GRANITE, GRANITE4)
UNFUSED = {"granite_swa": True, "granitemoe_swa": True}
"""Relatives that only the plain engine trains; see `Family.softmax_in_fp32`."""
