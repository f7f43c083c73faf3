"""From a checkpoint's `config.json` to a torch-free `DecoderSpec`."""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.facts import DecoderSpec, LayerKind, LayerSpec, RopeSpec

KNOWN_FAMILIES = frozenset(
    {"llama", "mistral", "smollm3", "qwen2", "qwen3", "qwen3_moe", "gemma3_text", "phi3", "lfm2", "gpt_oss"}
)
"""model_type values whose config this module reads fully."""
_MOST_LAYERS = 10_000  # a damaged count must not fill the memory with layers


def decoder_spec(config: dict[str, Any]) -> DecoderSpec | None:
    """The specification of a decoder, or None where the family, or something in its config, is not known here.

    Args:
        config: The checkpoint's `config.json`. Multimodal wrappers are not unwrapped.
    """
    family = str(config.get("model_type", ""))
    if family not in KNOWN_FAMILIES:
        return None
    # The file comes from outside: keys may be missing or of another type, lists too short, sizes 0, a rope type new
    # (pydantic.ValidationError is a ValueError). What is not understood fully has no specification, and transformers
    # decides whether the model can be used without one.
    try:
        return _read(config, family)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None


def rough_spec(config: dict[str, Any]) -> DecoderSpec | None:
    """A specification good enough to predict memory and speed, from the keys that most families share.

    Never build or export from it. None where even those keys are missing.

    Args:
        config: The checkpoint's `config.json`; a multimodal wrapper's text part is used.
    """
    inner = config.get("text_config")
    chosen = inner if isinstance(inner, dict) else config
    try:
        return _read({**chosen, "rope_parameters": {}, "rope_scaling": {}}, str(chosen.get("model_type", "unknown")))
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None


def _read(config: dict[str, Any], family: str) -> DecoderSpec:
    heads = _size(config, "num_attention_heads")
    hidden = _size(config, "hidden_size")
    experts = int(config.get("num_experts") or config.get("num_local_experts") or 0)
    return DecoderSpec(
        family=family,
        vocab_size=_size(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_feed_forward_width(config, family, experts),
        num_heads=heads,
        num_kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        layers=_layers(config, family, experts),
        rms_norm_eps=float(config.get("rms_norm_eps", config.get("norm_eps", 1e-5))),
        activation=str(config.get("hidden_act") or config.get("hidden_activation") or "silu"),
        max_context=int(config.get("max_position_embeddings", 2048)),
        rope=_rope(config),
        sliding_window=config.get("sliding_window"),
        attention_bias=bool(config.get("attention_bias", family == "qwen2")),
        qk_norm=family in {"qwen3", "qwen3_moe", "gemma3_text", "lfm2"},
        tied_embeddings=bool(config.get("tie_word_embeddings", family in {"gemma3_text", "lfm2"})),
        num_experts=experts,
        experts_per_token=int(config.get("num_experts_per_tok") or 0),
        conv_width=int(config.get("conv_L_cache") or 0),
    )


def _size(config: dict[str, Any], key: str, most: int = 2**31) -> int:
    size = int(config[key])
    if not 0 < size <= most:
        raise ValueError(f"{key} is {size}")
    return size


def _feed_forward_width(config: dict[str, Any], family: str, experts: int) -> int:
    """Width of a feed-forward, in a mixture that of one expert."""
    if experts and config.get("moe_intermediate_size"):
        return _size(config, "moe_intermediate_size")
    if family != "lfm2":
        return _size(config, "intermediate_size")
    # transformers' Lfm2MLP: LFM2's files give the width before it is cut to two thirds and rounded up.
    width = _size(config, "block_ff_dim" if "block_ff_dim" in config else "intermediate_size")
    if not config.get("block_auto_adjust_ff_dim", True):
        return width
    multiple = int(config.get("block_multiple_of") or 256)
    return -(-int(float(config.get("block_ffn_dim_multiplier") or 1.0) * (2 * width // 3)) // multiple) * multiple


def _layers(config: dict[str, Any], family: str, experts: int) -> list[LayerSpec]:
    count = _size(config, "num_hidden_layers", _MOST_LAYERS)
    types = config.get("layer_types") or ["full_attention"] * count
    no_rope = config.get("no_rope_layers") or [1] * count
    sliding_everywhere = bool(config.get("sliding_window")) and family == "mistral"
    return [
        LayerSpec(
            kind=_kind(str(types[i]), sliding_everywhere),
            feed_forward="mixture_of_experts" if experts else "dense",
            rope=bool(no_rope[i]),
        )
        for i in range(count)
    ]


def _kind(layer_type: str, sliding_everywhere: bool) -> LayerKind:
    if layer_type == "conv":
        return "short_convolution"
    if layer_type == "sliding_attention" or sliding_everywhere:
        return "sliding_attention"
    return "attention"


def _rope(config: dict[str, Any]) -> RopeSpec:
    """Rope from transformers 5's `rope_parameters` (possibly one set a layer kind) or the older two keys."""
    parameters = config.get("rope_parameters") or {}
    if "full_attention" in parameters:
        parameters = parameters["full_attention"]
    scaling = {**(config.get("rope_scaling") or {}), **parameters}
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    return RopeSpec(
        theta=float(scaling.get("rope_theta") or config.get("rope_theta") or 10000.0),
        scaling="none" if kind == "default" else kind,
        factor=float(scaling.get("factor", 1.0)),
        low_freq_factor=float(scaling.get("low_freq_factor", 1.0)),
        high_freq_factor=float(scaling.get("high_freq_factor", 4.0)),
        original_context=scaling.get("original_max_position_embeddings")
        or config.get("original_max_position_embeddings"),
        partial=float(scaling.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0),
    )
