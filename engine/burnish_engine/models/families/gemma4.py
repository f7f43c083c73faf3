"""Gemma 4's language model: E2B, E4B, 12B, 26B-A4B and 31B.

Layers without a window have larger heads, whose keys may be their values too. Values are normalized. In E2B and E4B the
last layers attend to keys and values of earlier ones, and each layer gets an input of its own from a second table of
the vocabulary. Wrappers hold parts for images and sound beside the language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind, LayerSpec
from burnish_engine.models.families.experts import ExpertNames
from burnish_engine.models.families.matrices import MatrixNames, feed_forward_width
from burnish_engine.models.families.record import LANGUAGE_MODEL, Family
from burnish_engine.models.families.rules.config import Config, ConfigRules, listed_or, number, size, window_by_pattern
from burnish_engine.models.families.rules.gguf import FEED_FORWARD_PARTS, MIXTURE_PARTS, GgufRules, Metadata, Oddities
from burnish_engine.models.families.rules.mixture import Mixture
from burnish_engine.models.families.rules.rope import Ropes, read_rope

_ROPES = {
    "full_attention": {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.25},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}


def _kinds(config: Config, count: int, window: int | None) -> list[LayerKind]:
    found = listed_or(window_by_pattern)(config, count, window)
    return [*found[:-1], "attention"]  # transformers lets the last layer attend to everything


def _ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    nested = config.get("rope_parameters") or _ROPES
    full, local = (read_rope(nested[kind], config, head_dim, max_context, is_proportional=True) for kind in _ROPES)
    return full, local


def _layer_fields(config: Config, kinds: Sequence[LayerKind]) -> list[dict[str, Any]]:
    borrowing = len(kinds) - int(config.get("num_kv_shared_layers") or 0)
    is_wide = bool(config.get("use_double_wide_mlp"))
    lending = {kind: index for index, kind in enumerate(kinds[:borrowing])} if borrowing < len(kinds) else {}
    if any(kind not in lending for kind in kinds[borrowing:]):
        raise ValueError("layers that use keys of earlier layers, none of which is of their kind")
    found: list[dict[str, Any]] = []
    for index, kind in enumerate(kinds):
        own = _heads(config, index, kind)
        own["projects_values"] = kind == "sliding_attention" or not config.get("attention_k_eq_v")
        if index >= borrowing:
            own |= {"keys": "borrowed", "width": 2 * size(config, "intermediate_size") if is_wide else 0}
        elif lending.get(kind) == index:
            own["keys"] = "lent"
        found.append(own)
    return found


def _heads(config: Config, index: int, kind: LayerKind) -> dict[str, Any]:
    """Read the sizes of a layer's heads, listed by layer (transformers 5's files) or by key (published ones)."""
    listed = config.get("per_layer_config")
    if listed is not None:
        own = listed.get(str(index), listed.get(index)) or {}
        return {"head_dim": int(own.get("head_dim") or 0), "kv_heads": int(own.get("num_key_value_heads") or 0)}
    if kind == "sliding_attention":
        return {}
    kv_heads = config.get("num_global_key_value_heads") if config.get("attention_k_eq_v") else None
    return {"head_dim": size(config, "global_head_dim"), "kv_heads": int(kv_heads or 0)}


def _fields(config: Config) -> dict[str, Any]:
    per_layer = int(config.get("hidden_size_per_layer_input") or 0)
    return {
        "activation": str(config["hidden_activation"]),
        "attention_scale": 1.0,
        "logit_softcap": number(config, "final_logit_softcapping"),
        "qk_norm": True,
        "value_norm": True,
        "sandwich_norms": True,
        "embedding_scale": int(config["hidden_size"]) ** 0.5,
        "embedding_scale_rounded": True,
        "layer_scale": True,
        "per_layer_size": per_layer,
        "per_layer_vocab": size(config, "vocab_size_per_layer_input") if per_layer else 0,
        "causal": config.get("use_bidirectional_attention") != "all",
    }


def _expert_count(config: Config) -> int:
    return size(config, "num_experts") if config.get("enable_moe_block") else 0


def _expert_fields(config: Config) -> dict[str, Any]:
    return {
        "normalize": True,
        "rounded": False,
        "activation": "gelu_tanh",
        "shared_size": size(config, "intermediate_size"),
        "shared": "normed",
    }


def _slow(spec: DecoderSpec) -> str:
    if spec.experts is None:
        return ""
    if spec.activation != "gelu_pytorch_tanh":
        return f"has experts with the activation {spec.activation!r}"
    return "has experts, and inputs of its layers' own" if spec.per_layer_size else ""


def _parts(layer: LayerSpec) -> tuple[str, ...]:
    keys = () if layer.keys == "borrowed" else ("attn_k", "attn_k_norm")
    values = ("attn_v",) if keys and layer.projects_values else ()
    norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "attn_q_norm")
    experts = (*MIXTURE_PARTS, "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2") if layer.is_mixture else ()
    return ("attn_q", *keys, *values, "attn_output", *FEED_FORWARD_PARTS, *experts, *norms, "layer_output_scale")


def _metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    own = [spec.of_layer(layer) for layer in spec.layers]
    full = own[-1].head_dim
    keys: Metadata = {
        "attention.shared_kv_layers": sum(layer.keys == "borrowed" for layer in spec.layers),
        "embedding_length_per_layer_input": spec.per_layer_size,
        "attention.sliding_window": spec.sliding_window or 0,
        "attention.sliding_window_pattern": [layer.kind == "sliding_attention" for layer in spec.layers],
        "attention.key_length": full,
        "attention.value_length": full,
        "attention.key_length_swa": spec.head_dim,
        "attention.value_length_swa": spec.head_dim,
        "rope.dimension_count": full,
        "rope.dimension_count_swa": spec.head_dim,
        "rope.freq_base_swa": float((spec.local_rope or spec.rope).theta),
    }
    if any(layer.kv_heads for layer in spec.layers):
        keys["attention.head_count_kv"] = [one.num_kv_heads for one in own]
    if any(layer.width for layer in spec.layers):
        keys["feed_forward_length"] = [feed_forward_width(spec, layer) for layer in spec.layers]
    if spec.logit_softcap:
        keys["final_logit_softcapping"] = float(spec.logit_softcap)
    return keys


def _oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    rope, local = spec.rope, spec.local_rope or spec.rope
    heads = {(layer.head_dim, layer.kv_heads) for layer in spec.layers if layer.kind == "attention"}
    return [
        ("has no layer with a window", spec.sliding_window is None),
        ("has heads of several sizes in its layers without a window", len(heads) > 1),
        ("lets every token see later ones", not spec.causal),
        ("has biases in its attention", spec.attention_bias),
        (f"has {rope.scaling} rope in its layers without a window", rope.scaling != "proportional"),
        ("scales the rope of its layers without a window", rope.factor != 1.0),
        ("scales the rope of its layers with a window", local.scaling != "none" or local.partial != 1.0),
        (
            "has keys that are values in some of its layers without a window",
            len({layer.projects_values for layer in spec.layers if layer.kind == "attention"}) > 1,
        ),
    ]


GEMMA4 = Family(
    "gemma4_text",
    mlp_norm="pre_feedforward_layernorm",
    mixer_post_norm="post_attention_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-6, "max_position_embeddings": 131_072, "num_key_value_heads": 4, "sliding_window": 512,
            "head_dim": 256, "global_head_dim": 512, "hidden_activation": "gelu_pytorch_tanh",
            "tie_word_embeddings": True, "sliding_window_pattern": 6, "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262_144,
        },
        fields=_fields,
        layer_kinds=_kinds,
        layer_fields=_layer_fields,
        ropes=_ropes,
        activation_key="hidden_activation",
        width=lambda config, experts: size(config, "moe_intermediate_size" if experts else "intermediate_size"),
        mixture=Mixture(
            0, size_key="moe_intermediate_size", slots_key="top_k_experts", fields=_expert_fields, count=_expert_count
        ),
        part_sizes=(262_144, 2304, 9216, 30, 8),
    ),
    wrappers={"gemma4": LANGUAGE_MODEL},
    matrix_names=MatrixNames(router="router.proj", experts="experts", shared_expert="mlp"),
    expert_names=ExpertNames(place=""),
    slow=_slow,
    gguf=GgufRules(
        "gemma4",
        ("default", "gpt-2", "llama-bpe"),
        parts=_parts,
        metadata=_metadata,
        oddities=_oddities,
        rope="own",
        activations=("gelu_pytorch_tanh", "gelu_new"),
        parameters={
            "layer_scalar": "layer_output_scale.weight", "router.scale": "ffn_gate_inp.scale",
            "router.per_expert_scale": "ffn_down_exps.scale",
        },
        merges_as="gemma4",
    ),
)  # fmt: skip
"""E2B, E4B, 31B, and 26B-A4B, whose layers have experts beside a dense feed-forward."""
GEMMA4_UNIFIED = replace(
    GEMMA4,
    model_type="gemma4_unified_text",
    config=replace(
        GEMMA4.config,
        defaults={
            **GEMMA4.config.defaults, "max_position_embeddings": 262_144, "sliding_window": 1024,
            "hidden_size_per_layer_input": 0,
        },
    ),
    wrappers={"gemma4_unified": LANGUAGE_MODEL},
)  # fmt: skip
"""12B, whose wrapper reads images and sound without towers of their own."""
FAMILIES = (GEMMA4, GEMMA4_UNIFIED)
