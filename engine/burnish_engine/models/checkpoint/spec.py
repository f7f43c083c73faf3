"""Read a checkpoint's `config.json` into a torch-free `DecoderSpec`.

The meaning of a key, and the default where it is absent, are those of transformers 5: its configuration_*.py has the
defaults and older spellings, its modeling_*.py shows which keys a family really uses.
"""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerKind, LayerSpec
from burnish_engine.models.checkpoint.spec_experts import MIXTURES, expert_count, expert_spec, mixture_layers
from burnish_engine.models.checkpoint.spec_rope import global_and_local_rope

_GRANITE = dict.fromkeys(("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling"), 1.0)
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048},
    "mistral": {
        "rms_norm_eps": 1e-6, "max_position_embeddings": 131_072, "num_key_value_heads": 8, "sliding_window": 4096,
    },
    "qwen2": {
        "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768, "num_key_value_heads": 32, "sliding_window": 4096,
        "max_window_layers": 28,
    },
    "qwen3": {
        "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768, "num_key_value_heads": 32, "sliding_window": 4096,
        "max_window_layers": 28, "head_dim": 128,
    },
    "qwen3_moe": {
        "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768, "num_key_value_heads": 4, "sliding_window": 4096,
        "num_experts_per_tok": 8, "moe_intermediate_size": 768,
    },
    "olmoe": {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "num_experts_per_tok": 8},
    "mixtral": {
        "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072, "num_key_value_heads": 8, "rope_theta": 1_000_000.0,
        "num_experts_per_tok": 2,
    },
    "smollm3": {
        "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768, "num_key_value_heads": 4, "tie_word_embeddings": True,
        "rope_theta": 2_000_000.0, "no_rope_layer_interval": 4,
    },
    "gemma3_text": {
        "rms_norm_eps": 1e-6, "max_position_embeddings": 131_072, "num_key_value_heads": 4, "sliding_window": 4096,
        "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
        "query_pre_attn_scalar": 256, "sliding_window_pattern": 6,
    },
    "phi3": {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096},
    "lfm2": {
        "norm_eps": 1e-5, "max_position_embeddings": 128_000, "num_key_value_heads": 8, "tie_word_embeddings": True,
        "rope_theta": 1_000_000.0, "conv_L_cache": 3,
    },
    "lfm2_moe": {
        "norm_eps": 1e-5, "max_position_embeddings": 128_000, "num_key_value_heads": 8, "tie_word_embeddings": True,
        "rope_theta": 1_000_000.0, "conv_L_cache": 3, "num_experts_per_tok": 4,
        "moe_intermediate_size": 1792, "num_dense_layers": 2, "use_expert_bias": True, "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
    },
    "lfm3": {
        "norm_eps": 1e-5, "max_position_embeddings": 128_000, "num_key_value_heads": 4, "tie_word_embeddings": True,
        "head_dim": 128, "conv_L_cache": 7, "sliding_window": 256, "use_sandwich_norm": True,
        "use_attention_gate": True,
    },
    "granite": {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048, **_GRANITE},
    "granitemoehybrid": {
        "rms_norm_eps": 1e-6, "max_position_embeddings": 2048, "num_local_experts": 8, "shared_intermediate_size": 1024,
        **_GRANITE,
    },
    "olmo2": {"rms_norm_eps": 1e-5, "max_position_embeddings": 2048},
    "ministral3": {
        "rms_norm_eps": 1e-5, "max_position_embeddings": 262_144, "num_key_value_heads": 8, "head_dim": 128,
    },
    "gpt_oss": {
        "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072, "num_key_value_heads": 8, "sliding_window": 128,
        "head_dim": 64, "sliding_window_pattern": 2, "attention_bias": True, "rope_theta": 150_000.0,
        "num_experts_per_tok": 4, "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
    },
}  # fmt: skip
"""Values of absent keys, by family."""
KNOWN_FAMILIES = frozenset(_DEFAULTS)
"""model_type values whose config this module reads fully."""
_CONVOLVING = {"lfm2", "lfm2_moe", "lfm3"}
_WINDOW_ON_REQUEST = {"qwen2", "qwen3", "qwen3_moe", "smollm3"}  # their window counts only with use_sliding_window
_WINDOW_EVERYWHERE = {"mistral", "mixtral", "ministral3", "phi3", "qwen3_moe"}  # they look at no layer_types
_NO_WINDOW = {"llama", "granite", "olmo2", "olmoe"}
_GRANITES = {"granite", "granitemoehybrid"}
_EXPERTS_ALONE = {"gpt_oss", "mixtral", "olmoe"}  # all their feed-forwards are experts, of intermediate_size
_LAYER_KINDS: dict[str, LayerKind] = {
    "full_attention": "attention", "sliding_attention": "sliding_attention", "conv": "short_convolution",
    "attention": "attention",
}  # fmt: skip
MOST_LAYERS = 10_000
"""Most layers of a model: a damaged count must not fill the memory with layers."""


def is_counted(spec: DecoderSpec) -> bool:
    """Return whether a spec lists the exact matrices of its layers: a known family, or counted on the built model."""
    return bool(spec.weights) or spec.family in KNOWN_FAMILIES


def decoder_spec(config: dict[str, Any]) -> DecoderSpec | None:
    """Return the specification of a decoder; None where the family, or something in its config, is not known here.

    Args:
        config: parsed `config.json` of the checkpoint. Multimodal wrappers are not unwrapped.
    """
    family = str(config.get("model_type", ""))
    if family not in KNOWN_FAMILIES:
        return None
    # The file comes from outside: keys may be missing or of another type, lists too short, sizes 0, a rope type new
    # (pydantic.ValidationError is a ValueError). What is not understood fully has no specification, and transformers
    # decides whether the model can be used without one.
    try:
        return _read({**_DEFAULTS[family], **config}, family)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None


def rough_spec(config: dict[str, Any]) -> DecoderSpec | None:
    """Return a specification good enough to predict memory and speed, from the keys that most families share.

    Never build or export from it. None where even those keys are missing.

    Args:
        config: parsed `config.json` of the checkpoint; a multimodal wrapper's text part is used.
    """
    inner = config.get("text_config")
    chosen = inner if isinstance(inner, dict) else config
    family = str(chosen.get("model_type", "unknown"))
    ropeless = {"rope_parameters": None, "rope_scaling": None, "partial_rotary_factor": None}
    try:
        return _read({**_DEFAULTS.get(family, {}), **chosen, **ropeless}, family)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None


def _read(config: dict[str, Any], family: str) -> DecoderSpec:
    heads = _size(config, "num_attention_heads")
    hidden = _size(config, "hidden_size")
    head_dim = int(config.get("head_dim") or hidden // heads)
    experts = expert_count(config, family) if family in MIXTURES or family not in KNOWN_FAMILIES else 0
    layers = _layers(config, family, experts)
    max_context = int(config.get("max_position_embeddings", 2048))
    rope, local_rope = global_and_local_rope(config, family, head_dim, max_context)
    biases = bool(config.get("attention_bias", False)) and family not in {
        "qwen2",
        "mistral",
        "mixtral",
        "ministral3",
        "phi3",
        "lfm2",
        "lfm2_moe",
    }
    is_gemma, is_granite = family == "gemma3_text", family in _GRANITES
    return DecoderSpec(
        family=family,
        vocab_size=_size(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_feed_forward_width(config, family, experts),
        num_heads=heads,
        num_kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        layers=layers,
        rms_norm_eps=float(config["norm_eps"] if family in _CONVOLVING else config.get("rms_norm_eps", 1e-5)),
        activation=_activation(config, family),
        max_context=max_context,
        rope=rope,
        local_rope=local_rope,
        sliding_window=_window(config, family) if any(one.kind == "sliding_attention" for one in layers) else None,
        attention_scale=_attention_scale(config, family),
        attention_softcap=_number(config, "attn_logit_softcapping") if is_gemma else None,
        logit_softcap=_number(config, "final_logit_softcapping") if is_gemma else None,
        attention_bias=biases or family == "qwen2",
        attention_output_bias=biases,
        mlp_bias=bool(config.get("mlp_bias", False)) and family in {"llama", "smollm3", "granite"},
        fused_projections=family == "phi3",
        qk_norm=family in {"qwen3", "qwen3_moe", "gemma3_text", "olmo2", "olmoe", *_CONVOLVING},
        qk_norm_whole=family in {"olmo2", "olmoe"},
        attention_clip=_number(config, "clip_qkv") if family == "olmoe" else None,
        attention_sinks=family == "gpt_oss",
        attention_gate=family == "lfm3" and bool(config["use_attention_gate"]),
        norm_one_plus=is_gemma,
        pre_norms=family != "olmo2",
        sandwich_norms=is_gemma or family == "olmo2" or (family == "lfm3" and bool(config["use_sandwich_norm"])),
        embedding_scale=hidden**0.5 if is_gemma else float(config["embedding_multiplier"]) if is_granite else 1.0,
        embedding_scale_rounded=is_gemma,
        residual_scale=_positive(config, "residual_multiplier") if is_granite else 1.0,
        logit_divisor=_positive(config, "logits_scaling") if is_granite else 1.0,
        tied_embeddings=bool(config.get("tie_embedding", config.get("tie_word_embeddings", False))),
        causal=not (is_gemma and config.get("use_bidirectional_attention")),
        num_experts=experts,
        experts_per_token=int(config.get("num_experts_per_tok") or 0),
        experts=expert_spec(config, family, experts),
        dense_intermediate_size=int(config.get("intermediate_size") or 0) if family in {"qwen3_moe", "lfm2_moe"} else 0,
        conv_width=int(config.get("conv_L_cache") or 0),
        conv_bias=bool(config.get("conv_bias")),
    )


def _size(config: dict[str, Any], key: str, most: int = 2**31) -> int:
    size = int(config[key])
    if not 0 < size <= most:
        raise ValueError(f"{key} is {size}")
    return size


def _number(config: dict[str, Any], key: str) -> float | None:
    value = config.get(key)
    return None if value is None else float(value)


def _positive(config: dict[str, Any], key: str) -> float:
    value = float(config[key])
    if not value > 0.0:
        raise ValueError(f"{key} is {value}")
    return value


def _attention_scale(config: dict[str, Any], family: str) -> float | None:
    if family in _GRANITES:
        return _positive(config, "attention_multiplier")
    return float(config["query_pre_attn_scalar"]) ** -0.5 if family == "gemma3_text" else None


def _activation(config: dict[str, Any], family: str) -> str:
    if family == "gemma3_text":
        return str(config["hidden_activation"])
    return str(config.get("hidden_act") or config.get("hidden_activation") or "silu")


def _feed_forward_width(config: dict[str, Any], family: str, experts: int) -> int:
    """Return the width of a feed-forward; in a mixture that of one expert."""
    if family == "granitemoehybrid":  # its dense layers are what mixtures call a shared expert
        return _size(config, "shared_intermediate_size")
    if experts and family not in _EXPERTS_ALONE and config.get("moe_intermediate_size"):
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
    count = _size(config, "num_hidden_layers", MOST_LAYERS)
    ropes = _rotating(config, family, count)
    window = _window(config, family)
    types = config.get("layer_types")
    if family == "granitemoehybrid":
        if config.get("num_local_experts"):
            raise ValueError("a mixture of experts")
        types = types or config["layers_block_type"]
    if types is None or family in _WINDOW_EVERYWHERE | _NO_WINDOW:
        kinds = _usual_kinds(config, family, ropes, window)
    else:
        kinds = [_LAYER_KINDS[types[i]] for i in range(count)]
    if window is None and "sliding_attention" in kinds:
        raise ValueError("layers with a window, but no window")
    mixtures = mixture_layers(config, family, experts, count)
    return [
        LayerSpec(kind=kinds[i], feed_forward="mixture_of_experts" if mixtures[i] else "dense", rope=ropes[i])
        for i in range(count)
    ]


def _rotating(config: dict[str, Any], family: str, count: int) -> list[bool]:
    """Return which layers rotate queries and keys: all except some of SmolLM3's, and all of some Granites."""
    if family == "granitemoehybrid":
        return [config.get("position_embedding_type") == "rope"] * count
    if family != "smollm3":
        return [True] * count
    if (given := config.get("no_rope_layers")) is not None:
        return [bool(given[i]) for i in range(count)]
    interval = _size(config, "no_rope_layer_interval")
    return [(i + 1) % interval != 0 for i in range(count)]


def _usual_kinds(config: dict[str, Any], family: str, ropes: list[bool], window: int | None) -> list[LayerKind]:
    """Return the kinds of layers where the config does not list them."""
    count = len(ropes)
    if family in {"lfm2", "lfm2_moe"}:
        attending = config.get("full_attn_idxs")
        return ["attention" if attending is None or i in attending else "short_convolution" for i in range(count)]
    if family == "lfm3":  # transformers' Lfm3Config
        turn: tuple[LayerKind, ...] = ("sliding_attention", "short_convolution", "attention", "short_convolution")
        return [turn[i % 4] if i else "short_convolution" for i in range(count)]
    sliding = [False] * count
    if window is not None and family in _WINDOW_EVERYWHERE:
        sliding = [True] * count
    elif window is not None and family in {"qwen2", "qwen3"}:
        first = int(config["max_window_layers"])
        sliding = [i >= first for i in range(count)]
    elif window is not None and family == "smollm3":
        sliding = [not rotates for rotates in ropes]
    elif "sliding_window_pattern" in config and family in {"gemma3_text", "gpt_oss"}:
        pattern = _size(config, "sliding_window_pattern")
        sliding = [(i + 1) % pattern != 0 for i in range(count)]
    return ["sliding_attention" if slides else "attention" for slides in sliding]


def _window(config: dict[str, Any], family: str) -> int | None:
    """Return how many tokens a windowed layer sees, itself included (transformers' `sliding_window_overlay`)."""
    if config.get("sliding_window") is None or (family in _WINDOW_ON_REQUEST and not config.get("use_sliding_window")):
        return None
    return _size(config, "sliding_window")
