"""LFM2, LFM2.5, LFM2-MoE and LFM3: short convolutions in most layers, attention with QK norm in others; own names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind, LayerSpec
from burnish_engine.models.families.experts import ExpertNames
from burnish_engine.models.families.matrices import MatrixNames
from burnish_engine.models.families.record import LANGUAGE_MODEL, Family
from burnish_engine.models.families.rules.config import NO_BIASES, Config, ConfigRules, listed_or, size
from burnish_engine.models.families.rules.gguf import (
    ATTENTION_PARTS,
    FEED_FORWARD_PARTS,
    HEAD_NORMS,
    MIXTURE_PARTS,
    GgufRules,
    Metadata,
    Oddities,
    narrow_heads,
)
from burnish_engine.models.families.rules.mixture import Mixture
from burnish_engine.models.families.rules.rope import Ropes, read_rope

_CONVOLUTION = ("shortconv.conv", "shortconv.in_proj", "shortconv.out_proj")
_SIGMOID = 2  # LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID, llama-hparams.h
_DEFAULTS = {
    "norm_eps": 1e-5, "max_position_embeddings": 128_000, "num_key_value_heads": 8, "tie_word_embeddings": True,
    "rope_theta": 1_000_000.0, "conv_L_cache": 3,
}  # fmt: skip
_LFM3_ROPES = {
    "full_attention": {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.5},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}
_LFM3_TURN: tuple[LayerKind, ...] = (
    "sliding_attention", "short_convolution", "attention", "short_convolution",
)  # fmt: skip


def _kinds(config: Config, count: int, _window: int | None) -> list[LayerKind]:
    attending = config.get("full_attn_idxs")
    return ["attention" if attending is None or i in attending else "short_convolution" for i in range(count)]


def _lfm2_width(config: Config, _experts: int) -> int:
    """Read the width as transformers' Lfm2MLP: the files give it before it is cut to two thirds and rounded up."""
    width = size(config, "block_ff_dim" if "block_ff_dim" in config else "intermediate_size")
    if not config.get("block_auto_adjust_ff_dim", True):
        return width
    multiple = int(config.get("block_multiple_of") or 256)
    return -(-int(float(config.get("block_ffn_dim_multiplier") or 1.0) * (2 * width // 3)) // multiple) * multiple


def _expert_fields(config: Config) -> dict[str, Any]:
    return {
        "router": "sigmoid",
        "scale": float(config["routed_scaling_factor"]),
        "selection_bias": bool(config["use_expert_bias"]),
    }


def _lfm3_kinds(_config: Config, count: int, _window: int | None) -> list[LayerKind]:
    return [_LFM3_TURN[i % 4] if i else "short_convolution" for i in range(count)]  # transformers' Lfm3Config


def _lfm3_ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    nested = config.get("rope_parameters") or _LFM3_ROPES
    full, local = (read_rope(nested[kind], config, head_dim, max_context, is_proportional=True) for kind in _LFM3_ROPES)
    return full, local


def _lfm3_fields(config: Config) -> dict[str, Any]:
    return {
        "qk_norm": True,
        "attention_gate": "heads" if config["use_attention_gate"] else "",
        "sandwich_norms": bool(config["use_sandwich_norm"]),
    }


def _parts(layer: LayerSpec) -> tuple[str, ...]:
    mixer = _CONVOLUTION if layer.kind == "short_convolution" else (*ATTENTION_PARTS, *HEAD_NORMS)
    return ("attn_norm", "ffn_norm", *(MIXTURE_PARTS if layer.is_mixture else FEED_FORWARD_PARTS), *mixer)


def _metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    keys: Metadata = {}
    if spec.experts is not None:
        keys["expert_gating_func"] = _SIGMOID
        keys["leading_dense_block_count"] = sum(not layer.is_mixture for layer in spec.layers)
    # A layer without key heads is a convolution; llama.cpp has no other key for it.
    keys["attention.head_count_kv"] = [
        0 if layer.kind == "short_convolution" else spec.num_kv_heads for layer in spec.layers
    ]
    keys["shortconv.l_cache"] = spec.conv_width
    return keys


def _oddities(spec: DecoderSpec, config: Config) -> Oddities:
    return [
        ("has biases in its convolutions", bool(config.get("conv_bias"))),
        narrow_heads(spec),
    ]


def _moe_oddities(spec: DecoderSpec, config: Config) -> Oddities:
    experts = spec.experts
    return [
        *_oddities(spec, config),
        ("chooses experts without a bias", experts is None or not experts.selection_bias),
        ("does not make the weights of a token's experts add up to 1", experts is None or not experts.normalize),
        ("multiplies the weights of a token's experts", experts is not None and experts.scale != 1.0),
    ]


_NAMES = MatrixNames(
    attention_output="out_proj",
    gate_up=("feed_forward.w1", "feed_forward.w3"),
    down="feed_forward.w2",
    router="feed_forward.gate",
    experts="feed_forward.experts",
)
_CONFIG = ConfigRules(
    defaults=_DEFAULTS,
    fields=lambda _config: {"qk_norm": True, **NO_BIASES},
    layer_kinds=listed_or(_kinds),
    norm_eps_key="norm_eps",
    activation_key="",
)
_GGUF = GgufRules(
    "lfm2",
    ("lfm2", "llama-bpe"),
    parts=_parts,
    final_norm="token_embd_norm",  # llama.cpp's name for the norm before the head
    metadata=_metadata,
    oddities=_oddities,
)
LFM2 = Family(
    "lfm2",
    mixer_norm="operator_norm",
    mlp_norm="ffn_norm",
    q_norm="q_layernorm",
    k_norm="k_layernorm",
    final_norm="embedding_norm",
    matrix_names=_NAMES,
    config=replace(_CONFIG, width=_lfm2_width, part_sizes=(65_536, 2560, 12_288, 32, 32)),
    wrappers={"lfm2_vl": LANGUAGE_MODEL},
    gguf=_GGUF,
)
LFM2_MOE = replace(
    LFM2,
    model_type="lfm2_moe",
    expert_names=ExpertNames("feed_forward", gate="w1", up="w3", down="w2"),
    config=replace(
        _CONFIG,
        defaults={
            **_DEFAULTS, "num_experts_per_tok": 4, "moe_intermediate_size": 1792, "num_dense_layers": 2,
            "use_expert_bias": True, "norm_topk_prob": True, "routed_scaling_factor": 1.0,
        },
        mixture=Mixture(
            32,
            size_key="moe_intermediate_size",
            fields=_expert_fields,
            layers=lambda config, count: [i >= int(config["num_dense_layers"]) for i in range(count)],
        ),
    ),
    wrappers={},
    gguf=replace(
        _GGUF,
        architecture="lfm2moe",
        oddities=_moe_oddities,
        parameters={"feed_forward.expert_bias": "exp_probs_b.bias"},
    ),
)  # fmt: skip
"""LFM2-8B-A1B: dense feed-forwards in the first layers, then experts chosen by sigmoids and a bias."""
LFM3 = Family(
    "lfm3",
    mixer_norm="operator_norm",
    mlp_norm="ffn_norm",
    mixer_post_norm="post_operator_norm",
    mlp_post_norm="post_ffn_norm",
    final_norm="embedding_norm",
    stored_names=(("g_proj", "gate_proj"),),  # transformers renames it when it loads (conversion_mapping.py)
    matrix_names=replace(_NAMES, attention_output="o_proj"),
    config=ConfigRules(
        defaults={
            "norm_eps": 1e-5, "max_position_embeddings": 128_000, "num_key_value_heads": 4, "tie_word_embeddings": True,
            "head_dim": 128, "conv_L_cache": 7, "sliding_window": 256, "use_sandwich_norm": True,
            "use_attention_gate": True,
        },
        fields=_lfm3_fields,
        layer_kinds=listed_or(_lfm3_kinds),
        ropes=_lfm3_ropes,
        norm_eps_key="norm_eps",
        activation_key="",
    ),
)  # fmt: skip
"""LFM3: wider convolutions, windows, gates on attention's output and norms after each half."""
FAMILIES = (LFM2, LFM2_MOE, LFM3)
