"""Rules for which models llama.cpp computes faithfully; `export.gguf` follows them too. Loads no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from burnish_engine.contract.facts.facts import DecoderSpec

EXPORTED_FAMILIES = frozenset({
    "llama", "mistral", "ministral3", "smollm3", "qwen2", "qwen3", "gemma3_text", "phi3", "lfm2", "granite",
    "granitemoehybrid", "olmo2", "qwen3_moe", "olmoe", "mixtral", "lfm2_moe", "gpt_oss",
})  # fmt: skip
"""model_type values that `export.gguf.families` writes."""

SAFETENSORS = "Export as safetensors instead."
_SILU = ("silu", "swish")
_GELU = ("gelu_pytorch_tanh", "gelu_new")  # llama.cpp's LLM_FFN_GELU
_DEFAULT_YARN = {"beta_fast": 32.0, "beta_slow": 1.0}  # Peng et al. 2023; llama.cpp's and transformers' defaults
_WIDE_GEMMA_LAYERS = 62  # the 27B, whose queries llama.cpp scales by its width (src/models/gemma3.cpp)

Config = Mapping[str, Any]
"""A checkpoint's config.json."""
Oddities = list[tuple[str, bool]]
"""Texts that complete "The model ...", each with whether it is true of the model."""


class Refusal(NamedTuple):
    """The reason why an export does not work.

    Attributes:
        what: obstacle, as a sentence.
        remedy: advice what to do instead, as a sentence.
    """

    what: str
    remedy: str


def gguf_refusal(model_type: str, spec: DecoderSpec | None, config: Config, name: str = "the model") -> Refusal | None:
    """Find out why a model cannot be exported to GGUF; None where nothing of its shape prevents it.

    Args:
        model_type: family of the model, as config.json says.
        spec: shape of the model; None, and a shape counted on the built model, mean that it is not known in detail.
        config: config.json of the model.
        name: the model's name in the reason.
    """
    if model_type not in EXPORTED_FAMILIES:
        return unknown_family(model_type)
    if spec is None or spec.weights:
        return Refusal(f"The architecture of {name} is not known in detail.", SAFETENSORS)
    files_factors = "rope_scaling" in config or "rope_parameters" in config  # the catalog's shapes leave them out
    if model_type == "phi3" and spec.rope.scaling == "longrope" and files_factors and not spec.rope.short_factor:
        return Refusal("The model's config.json lacks the factors of its longrope.", "Download the model again.")
    rules: dict[str, Callable[[DecoderSpec, Config], Oddities]] = {
        "gemma3_text": _gemma3, "lfm2": _lfm2, "phi3": _phi3, "qwen2": _qwen, "qwen3": _qwen, "smollm3": _smollm3,
        "ministral3": _ministral3, "olmo2": _olmo2, "qwen3_moe": _qwen3_moe, "olmoe": _olmoe, "lfm2_moe": _lfm2_moe,
        "gpt_oss": _gpt_oss,
    }  # fmt: skip
    odd = [*(rules[model_type](spec, config) if model_type in rules else []), *_activation(spec)]
    what = next((what for what, holds in odd if holds), "")
    if what:
        return Refusal(f"The model {what}, which llama.cpp does not compute.", SAFETENSORS)
    rope = "" if model_type in {"phi3", "ministral3"} else _rope(spec, config)
    return Refusal(f"The model {rope}, which this export does not write yet.", SAFETENSORS) if rope else None


def rounds_rope(spec: DecoderSpec | None) -> bool:
    """Whether a model has a yarn rope with bounds that only llama.cpp rounds (ggml.c, `ggml_rope_yarn_corr_dims`).

    Args:
        spec: shape of the model; None where it is not known in detail.
    """
    return spec is not None and spec.rope.scaling == "yarn" and not spec.rope.truncate


def rounded_rope_angle(spec: DecoderSpec) -> float:
    """The largest angle by which those rounded bounds turn a pair of a head at each position more, radians.

    Args:
        spec: shape of the model.
    """
    rope = spec.rope
    numbers = (rope.theta - 1, rope.factor, rope.beta_fast, rope.beta_slow, rope.original_context or 0)
    if not rounds_rope(spec) or not all(0 < number < math.inf for number in numbers):  # no rope could be built of them
        return 0.0
    exact, rounded = (_yarn_frequencies(spec, truncate=truncate) for truncate in (False, True))
    return max(abs(one - other) for one, other in zip(exact, rounded, strict=True))


def _yarn_frequencies(spec: DecoderSpec, *, truncate: bool) -> list[float]:
    """The angles that a yarn rope turns pairs by (YaRN, arXiv 2309.00071), as `models.decoder.rope_tables` does."""
    rope, size, found = spec.rope, spec.head_dim, []
    context = rope.original_context or 0
    low, high = (
        size * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))
        for turns in (rope.beta_fast, rope.beta_slow)
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0.0), min(high, size - 1.0)
    for pair in range(size // 2):
        slowed = min(max((pair - low) / max(high - low, 0.001), 0.0), 1.0)
        found.append((slowed / rope.factor + 1 - slowed) * rope.theta ** (-2 * pair / size))
    return found


def unknown_family(model_type: str) -> Refusal:
    """Refuse a family that has no entry."""
    return Refusal(
        f"Models of the family {model_type!r} cannot be exported to GGUF yet; {', '.join(sorted(EXPORTED_FAMILIES))} "
        "can.",
        "Export as safetensors or as an adapter instead.",
    )


def _activation(spec: DecoderSpec) -> Oddities:
    computed: Sequence[str] = _GELU if spec.family == "gemma3_text" else _SILU
    what = f"has the activation {spec.activation!r} where {computed[0]} is expected"
    return [(what, spec.activation not in computed)]


def _gemma3(spec: DecoderSpec, _config: Config) -> Oddities:
    wide = spec.num_layers == _WIDE_GEMMA_LAYERS
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


def _lfm2(spec: DecoderSpec, config: Config) -> Oddities:
    return [
        ("has biases in its convolutions", bool(config.get("conv_bias"))),
        ("has heads that do not make up its width", spec.num_heads * spec.head_dim != spec.hidden_size),
    ]


def _ministral3(spec: DecoderSpec, _config: Config) -> Oddities:
    rope = spec.rope
    return [
        (f"has {rope.scaling} rope where yarn is expected", rope.scaling != "yarn" or not rope.original_context),
        ("bounds its yarn rope by fractions of a pair", not rope.truncate),
        ("scales a rope that is not stretched", rope.factor <= 1.0 and rope.attention_factor != 1.0),
    ]


def _olmo2(spec: DecoderSpec, _config: Config) -> Oddities:
    return [
        ("has no head of its own", spec.tied_embeddings),
        ("has biases in its attention", spec.attention_bias),
        ("has heads that do not make up its width", spec.num_heads * spec.head_dim != spec.hidden_size),
    ]


def _phi3(spec: DecoderSpec, _config: Config) -> Oddities:
    heads = f"has {spec.num_heads} heads of {spec.head_dim} that do not make up its width of {spec.hidden_size}"
    return [(heads, spec.num_heads * spec.head_dim != spec.hidden_size)]


def _qwen(spec: DecoderSpec, _config: Config) -> Oddities:
    sliding = any(layer.kind == "sliding_attention" for layer in spec.layers)
    return [("uses sliding-window attention in some layers of a Qwen", sliding)]


def _qwen3_moe(spec: DecoderSpec, config: Config) -> Oddities:
    return [
        *_qwen(spec, config),
        ("has biases in its attention", spec.attention_bias),
        ("has layers without experts", not all(layer.is_mixture for layer in spec.layers)),
        (
            "does not make the weights of a token's experts add up to 1",
            spec.experts is None or not spec.experts.normalize,
        ),
    ]


def _olmoe(spec: DecoderSpec, _config: Config) -> Oddities:
    return [
        ("has no head of its own", spec.tied_embeddings),
        ("has biases in its attention", spec.attention_bias),
        ("bounds its queries, keys and values", spec.attention_clip is not None),
        ("has fewer key heads than query heads", spec.num_kv_heads != spec.num_heads),
        ("has heads that do not make up its width", spec.num_heads * spec.head_dim != spec.hidden_size),
        ("makes the weights of a token's experts add up to 1", spec.experts is not None and spec.experts.normalize),
    ]


def _lfm2_moe(spec: DecoderSpec, config: Config) -> Oddities:
    experts = spec.experts
    return [
        *_lfm2(spec, config),
        ("chooses experts without a bias", experts is None or not experts.selection_bias),
        ("does not make the weights of a token's experts add up to 1", experts is None or not experts.normalize),
        ("multiplies the weights of a token's experts", experts is not None and experts.scale != 1.0),
    ]


def _gpt_oss(spec: DecoderSpec, _config: Config) -> Oddities:
    experts, rope = spec.experts, spec.rope
    limits = experts is None or (experts.alpha, experts.limit) != (1.702, 7.0)
    return [
        ("has no head of its own", spec.tied_embeddings),
        ("has no biases in its attention", not spec.attention_bias),
        ("has no window", spec.sliding_window is None),
        ("bounds its experts' activations otherwise than gpt-oss", limits),
        (f"has {rope.scaling} rope where yarn is expected", rope.scaling != "yarn" or not rope.original_context),
    ]


def _smollm3(spec: DecoderSpec, _config: Config) -> Oddities:
    # llama.cpp's smollm3 graph leaves out rope in every fourth layer and reads no key for it (src/models/smollm3.cpp).
    usual = [(index + 1) % 4 != 0 for index in range(spec.num_layers)]
    return [("has layers without rope that are not every fourth one", [layer.rope for layer in spec.layers] != usual)]


def _rope(spec: DecoderSpec, config: Config) -> str:
    """Name what is unsupported about a rope, completing "The model ..."; empty for plain, linear, yarn and llama3."""
    rope = spec.rope
    if rope.partial != 1.0:
        return f"rotates only {rope.partial:.0%} of each head"
    if rope.scaling in {"dynamic", "longrope"}:
        return f"uses {rope.scaling} rope"
    if rope.scaling != "yarn":
        return ""
    raw = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    odd = [key for key in ("mscale", "mscale_all_dim", "attention_factor") if raw.get(key)]
    odd += [key for key, usual in _DEFAULT_YARN.items() if raw.get(key, usual) != usual]
    # llama.cpp rounds the bounds to whole pairs. Files of gpt-oss have never been otherwise; the report tells it.
    odd += ["truncate"] if raw.get("truncate") is False and spec.family != "gpt_oss" else []
    if odd or not rope.original_context:
        return f"has a yarn rope that sets {', '.join(odd) or 'no original context'}"
    return ""
