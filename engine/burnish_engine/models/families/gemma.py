"""Gemma 3's language model: norms before and after attention and feed-forward, local and global layers, QK norm."""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.models.families.record import LANGUAGE_MODEL, Family
from burnish_engine.models.families.rules.config import Config, ConfigRules, listed_or, number, window_by_pattern
from burnish_engine.models.families.rules.gguf import GgufRules, Metadata, Oddities, normed_parts
from burnish_engine.models.families.rules.rope import Ropes, ropes_by_kind

_EVERY = 6  # interval of the global layers in llama.cpp, where the file names none (load_swa_pattern)
_WIDE_LAYERS = 62  # the 27B, whose queries llama.cpp scales by its width (src/models/gemma3.cpp)


def _fields(config: Config) -> dict[str, Any]:
    return {
        "activation": str(config["hidden_activation"]),
        "attention_scale": float(config["query_pre_attn_scalar"]) ** -0.5,
        "attention_softcap": number(config, "attn_logit_softcapping"),
        "logit_softcap": number(config, "final_logit_softcapping"),
        "qk_norm": True,
        "norm_one_plus": True,
        "sandwich_norms": True,
        "embedding_scale": int(config["hidden_size"]) ** 0.5,
        "embedding_scale_rounded": True,
        "causal": not config.get("use_bidirectional_attention"),
    }


def _ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    theta = config.get("rope_theta", 1_000_000.0)
    local = config.get("rope_local_base_freq", 10_000.0)
    return ropes_by_kind(config, head_dim, max_context, theta=theta, local_theta=local)


def _parts(layer: LayerSpec) -> tuple[str, ...]:
    return (*normed_parts(layer), "post_attention_norm", "post_ffw_norm")


def _metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    keys: Metadata = {}
    local = [layer.kind == "sliding_attention" for layer in spec.layers]
    if spec.sliding_window:
        keys["attention.sliding_window"] = spec.sliding_window
        keys["rope.freq_base_swa"] = float((spec.local_rope or spec.rope).theta)
        if local != [(index + 1) % _EVERY != 0 for index in range(spec.num_layers)]:
            keys["attention.sliding_window_pattern"] = local
    if spec.logit_softcap:
        keys["final_logit_softcapping"] = float(spec.logit_softcap)
    return keys


def _oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    wide = spec.num_layers == _WIDE_LAYERS
    scaled_by = spec.hidden_size // spec.num_heads if wide else spec.head_dim
    found = spec.attention_scale or 0.0
    return [
        ("caps its attention scores", spec.attention_softcap is not None),
        ("lets every token see later ones", not spec.causal),
        (
            f"scales its queries by {found:g} where {scaled_by**-0.5:g} is expected",
            abs(found * scaled_by**0.5 - 1) > 1e-6,
        ),
        ("scales the rope of its local layers", spec.local_rope is not None and spec.local_rope.scaling != "none"),
    ]


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
        activations=("gelu_pytorch_tanh", "gelu_new"),  # llama.cpp's LLM_FFN_GELU
    ),
    own_attention=True,
)  # fmt: skip
FAMILIES = (GEMMA3,)
UNFUSED = {"gemma2": True, "vaultgemma": True}
"""Relatives that only the plain engine trains; see `Family.softmax_in_fp32`."""
