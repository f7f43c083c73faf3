"""Read a checkpoint's `config.json` into a torch-free `DecoderSpec`, by the rules of its family."""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.models.families import FAMILIES, Family, stores_blocks
from burnish_engine.models.families.rules.config import Config, ConfigRules, size
from burnish_engine.models.families.rules.mixture import expert_count

MOST_LAYERS = 10_000
"""Most layers of a model: a damaged count must not fill the memory with layers."""


def is_counted(spec: DecoderSpec) -> bool:
    """Return whether a spec lists the exact matrices of its layers: a known family, or counted on the built model."""
    return bool(spec.weights) or spec.family in FAMILIES


def decoder_spec(config: dict[str, Any]) -> DecoderSpec | None:
    """Return the specification of a decoder; None where the family, or something in its config, is not known here.

    Args:
        config: parsed `config.json` of the checkpoint. Multimodal wrappers are not unwrapped.
    """
    family = FAMILIES.get(str(config.get("model_type", "")))
    return None if family is None else _understood(config, family)


def rough_spec(config: dict[str, Any]) -> DecoderSpec | None:
    """Return a specification good enough to predict memory and speed, from the keys that most families share.

    Never build or export from it. None where even those keys are missing.

    Args:
        config: parsed `config.json` of the checkpoint; a multimodal wrapper's text part is used.
    """
    inner = config.get("text_config")
    chosen = inner if isinstance(inner, dict) else config
    model_type = str(chosen.get("model_type", "unknown"))
    ropeless = {"rope_parameters": None, "rope_scaling": None, "partial_rotary_factor": None}
    return _understood({**chosen, **ropeless}, FAMILIES.get(model_type, Family(model_type)))


def _understood(config: dict[str, Any], family: Family) -> DecoderSpec | None:
    # The file comes from outside: keys may be missing or of another type, lists too short, sizes 0, a rope type new
    # (pydantic.ValidationError is a ValueError). What is not understood fully has no specification, and transformers
    # decides whether the model can be used without one.
    try:
        return _read({**family.config.defaults, **config}, family)
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError):
        return None


def _read(config: dict[str, Any], family: Family) -> DecoderSpec:
    rules = family.config
    heads = size(config, "num_attention_heads")
    hidden = size(config, "hidden_size")
    head_dim = int(config.get("head_dim") or hidden // heads)
    experts = _experts(config, family)
    window = rules.window(config)
    layers = _layers(config, rules, experts, window)
    max_context = int(config.get("max_position_embeddings", 2048))
    rope, local_rope = rules.ropes(config, head_dim, max_context)
    biases = bool(config.get("attention_bias", False))
    is_apart = rules.mixture is not None and rules.mixture.has_dense_width
    usual: dict[str, Any] = {
        "rms_norm_eps": float(config.get(rules.norm_eps_key, 1e-5)),
        "activation": str(config.get("hidden_act") or config.get("hidden_activation") or "silu"),
        "attention_bias": biases,
        "attention_output_bias": biases,
        "tied_embeddings": bool(config.get("tie_embedding", config.get("tie_word_embeddings", False))),
        "num_experts": experts,
        "experts_per_token": int(config.get(rules.mixture.slots_key if rules.mixture else "num_experts_per_tok") or 0),
        "experts": rules.mixture.read(config, experts) if rules.mixture else None,
        "dense_intermediate_size": int(config.get("intermediate_size") or 0) if is_apart else 0,
        "conv_width": int(config.get("conv_L_cache") or 0),
        "conv_bias": bool(config.get("conv_bias")),
    }
    return DecoderSpec(
        family=family.model_type,
        vocab_size=size(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=rules.width(config, experts),
        num_heads=heads,
        num_kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        layers=layers,
        max_context=max_context,
        rope=rope,
        local_rope=local_rope,
        sliding_window=window if any(one.kind == "sliding_attention" for one in layers) else None,
        **usual | rules.fields(config),
    )


def _experts(config: Config, family: Family) -> int:
    """Return the number of experts of a layer, which dense families do not have, whatever the config says."""
    mixture = family.config.mixture
    if mixture is not None and mixture.count is not None:
        return mixture.count(config)
    if family.config.mixture is not None:
        return expert_count(config, family.config.mixture.usual_count)
    return 0 if family.model_type in FAMILIES else expert_count(config)


def _layers(config: Config, rules: ConfigRules, experts: int, window: int | None) -> list[LayerSpec]:
    count = size(config, "num_hidden_layers", MOST_LAYERS)
    kinds, ropes = rules.layer_kinds(config, count, window), rules.rotates(config, count)
    if window is None and "sliding_attention" in kinds:
        raise ValueError("layers with a window, but no window")
    own = [{**one, **more} for one, more in zip(rules.layer_fields(config, kinds), _blocks(config, count), strict=True)]
    mixtures = rules.mixture.layers(config, count) if rules.mixture and experts else [experts > 0] * count
    return [
        LayerSpec(kind=kinds[i], feed_forward="mixture_of_experts" if mixtures[i] else "dense", rope=ropes[i], **own[i])
        for i in range(count)
    ]


def _blocks(config: Config, count: int) -> list[dict[str, Any]]:
    """Read the bytes of each layer's weights where a GGUF has them in blocks; else nothing for each layer."""
    sizes = config["quantization_config"]["layers"] if stores_blocks(config) else []
    return [{"blocks": tuple(one)} for one in sizes] if sizes else [{}] * count
