"""Gemma 1 and 2, and Gemma 3's language model: norms that multiply by 1 + weight, and scaled embeddings."""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind, LayerSpec
from burnish_engine.models.families.record import LANGUAGE_MODEL, Family
from burnish_engine.models.families.rules.config import (
    Config,
    ConfigRules,
    all_attention,
    listed_or,
    number,
    window_by_pattern,
)
from burnish_engine.models.families.rules.gguf import (
    GgufRules,
    Metadata,
    Oddities,
    Settings,
    normed_parts,
    usual_config,
    usual_parts,
)
from burnish_engine.models.families.rules.rope import Ropes, ropes_by_kind

_EVERY2, _EVERY3 = 2, 6  # interval of the global layers in llama.cpp, where the file names none (load_swa_pattern)
_WIDE2, _WIDE3 = 46, 62  # layers of the 27B, whose queries llama.cpp scales by its width (src/models/gemma{2,3}.cpp)
_TANH = ("gelu_pytorch_tanh", "gelu_new")  # llama.cpp's LLM_FFN_GELU


def _gemma_fields(config: Config) -> dict[str, Any]:
    activation = str(config.get("hidden_act"))
    return {
        "activation": _TANH[0] if activation == "gelu" else activation,  # the first checkpoints' name of it
        "norm_one_plus": True,
        "embedding_scale": int(config["hidden_size"]) ** 0.5,
        "embedding_scale_rounded": True,
        "causal": not config.get("use_bidirectional_attention"),
    }


def _gemma2_fields(config: Config) -> dict[str, Any]:
    return {
        **_gemma_fields(config),
        "activation": str(config["hidden_activation"]),
        "attention_scale": float(config["query_pre_attn_scalar"]) ** -0.5,
        "attention_softcap": number(config, "attn_logit_softcapping"),
        "logit_softcap": number(config, "final_logit_softcapping"),
        "sandwich_norms": True,
    }


def _fields(config: Config) -> dict[str, Any]:
    return {**_gemma2_fields(config), "qk_norm": True}


def _alternating(_config: Config, count: int, _window: int | None) -> list[LayerKind]:
    return ["attention" if (i + 1) % _EVERY2 == 0 else "sliding_attention" for i in range(count)]


def _ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    theta = config.get("rope_theta", 1_000_000.0)
    local = config.get("rope_local_base_freq", 10_000.0)
    return ropes_by_kind(config, head_dim, max_context, theta=theta, local_theta=local)


def _parts(layer: LayerSpec) -> tuple[str, ...]:
    return (*normed_parts(layer), "post_attention_norm", "post_ffw_norm")


def _gemma2_parts(layer: LayerSpec) -> tuple[str, ...]:
    return (*usual_parts(layer), "post_attention_norm", "post_ffw_norm")


def _windows(spec: DecoderSpec, every: int) -> Metadata:
    local = [layer.kind == "sliding_attention" for layer in spec.layers]
    keys: Metadata = {"attention.sliding_window": spec.sliding_window or 0}
    if local != [(index + 1) % every != 0 for index in range(spec.num_layers)]:
        keys["attention.sliding_window_pattern"] = local
    return keys


def _metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    keys: Metadata = {}
    if spec.sliding_window:
        keys = {**_windows(spec, _EVERY3), "rope.freq_base_swa": float((spec.local_rope or spec.rope).theta)}
    if spec.logit_softcap:
        keys["final_logit_softcapping"] = float(spec.logit_softcap)
    return keys


def _gemma2_metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    return {
        **_windows(spec, _EVERY2),
        "attn_logit_softcapping": float(spec.attention_softcap or 0.0),
        "final_logit_softcapping": float(spec.logit_softcap or 0.0),
    }


def _query_scale(spec: DecoderSpec, wide_layers: int) -> tuple[str, bool]:
    scaled_by = spec.hidden_size // spec.num_heads if spec.num_layers == wide_layers else spec.head_dim
    found = spec.attention_scale or 0.0
    what = f"scales its queries by {found:g} where {scaled_by**-0.5:g} is expected"
    return what, abs(found * scaled_by**0.5 - 1) > 1e-6


def _gemma_oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    return [
        ("lets every token see later ones", not spec.causal),
        ("has a head of its own", not spec.tied_embeddings),
        ("has biases in its attention", spec.attention_bias),
    ]


def _gemma2_oddities(spec: DecoderSpec, config: Config) -> Oddities:
    return [
        *_gemma_oddities(spec, config),
        ("does not cap its attention scores and logits", not (spec.attention_softcap and spec.logit_softcap)),
        ("has no windows", spec.sliding_window is None),
        _query_scale(spec, _WIDE2),
    ]


def _oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    return [
        ("caps its attention scores", spec.attention_softcap is not None),
        ("lets every token see later ones", not spec.causal),
        _query_scale(spec, _WIDE3),
        ("scales the rope of its local layers", spec.local_rope is not None and spec.local_rope.scaling != "none"),
    ]


def _windows_config(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {"sliding_window": settings.get("attention.sliding_window") or None}
    if isinstance(local := settings.get("attention.sliding_window_pattern"), tuple):
        found["layer_types"] = ["sliding_attention" if one else "full_attention" for one in local]
    return found


def _scale_config(settings: Settings, wide_layers: int) -> dict[str, Any]:
    """Read what queries are scaled by, which no file says (`_query_scale`)."""
    heads = settings["embedding_length"] // settings["attention.head_count"]
    is_wide = settings["block_count"] == wide_layers
    return {"query_pre_attn_scalar": heads if is_wide else settings.get("attention.key_length", heads)}


def _gemma2_config(settings: Settings) -> dict[str, Any]:
    return {
        **_windows_config(settings),
        **_scale_config(settings, _WIDE2),
        "attn_logit_softcapping": settings.get("attn_logit_softcapping"),
        "final_logit_softcapping": settings.get("final_logit_softcapping"),
    }


def _config(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {
        **_windows_config(settings),
        **_scale_config(settings, _WIDE3),
        "final_logit_softcapping": settings.get("final_logit_softcapping"),
        "attn_logit_softcapping": None,
        "rope_local_base_freq": settings.get("rope.freq_base_swa", 10_000.0),
    }
    if found["sliding_window"] is None:
        del found["sliding_window"]
        found["layer_types"] = ["full_attention"] * settings["block_count"]
    return found


GEMMA = Family(
    "gemma",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-6, "max_position_embeddings": 8192, "num_key_value_heads": 16, "head_dim": 256,
            "hidden_act": _TANH[0], "tie_word_embeddings": True,
        },
        fields=_gemma_fields,
        layer_kinds=all_attention,
    ),
    gguf=GgufRules(
        "gemma",
        ("default", "gpt-2", "llama-bpe"),
        oddities=_gemma_oddities,
        activations=_TANH,
        config=usual_config,
    ),
    own_attention=True,
)  # fmt: skip
"""Gemma 2B and 7B, CodeGemma: Llama with those norms and embeddings."""
GEMMA2 = Family(
    "gemma2",
    mlp_norm="pre_feedforward_layernorm",
    mixer_post_norm="post_attention_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-6, "max_position_embeddings": 8192, "num_key_value_heads": 4, "sliding_window": 4096,
            "head_dim": 256, "hidden_activation": _TANH[0], "tie_word_embeddings": True, "query_pre_attn_scalar": 256,
            "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        },
        fields=_gemma2_fields,
        layer_kinds=listed_or(_alternating),
        activation_key="hidden_activation",
        heads_divide_width=True,
    ),
    gguf=GgufRules(
        "gemma2",
        ("default", "gpt-2", "llama-bpe"),
        parts=_gemma2_parts,
        metadata=_gemma2_metadata,
        oddities=_gemma2_oddities,
        activations=_TANH,
        computes_window=True,
        config=_gemma2_config,
    ),
    softmax_in_fp32=True,
)  # fmt: skip
"""Gemma 2: capped scores and logits, norms after each half, a window in every second layer."""

GEMMA3 = Family(
    "gemma3_text",
    mlp_norm="pre_feedforward_layernorm",
    mixer_post_norm="post_attention_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-6, "max_position_embeddings": 131_072, "num_key_value_heads": 4, "sliding_window": 4096,
            "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
            "query_pre_attn_scalar": 256, "sliding_window_pattern": 6,
        },
        fields=_fields,
        layer_kinds=listed_or(window_by_pattern),
        ropes=_ropes,
        activation_key="hidden_activation",
        heads_divide_width=True,
        part_sizes=(262_208, 2304, 9216, 26, 8),
    ),
    wrappers={"gemma3": LANGUAGE_MODEL},
    # transformers reads attn_logit_softcapping and never applies it to Gemma 3; published models have none.
    slow=lambda spec: "caps its attention scores" if spec.attention_softcap is not None else "",
    gguf=GgufRules(
        "gemma3",
        ("default", "gpt-2", "llama-bpe"),
        parts=_parts,
        metadata=_metadata,
        oddities=_oddities,
        activations=_TANH,
        config=_config,
    ),
    own_attention=True,
)  # fmt: skip
"""Gemma 3: norms of queries and keys instead of caps, and ropes of their own for five of six layers."""
FAMILIES = (GEMMA, GEMMA2, GEMMA3)
UNFUSED = {"vaultgemma": True}
"""A relative that only the plain engine trains; see `Family.softmax_in_fp32`."""
