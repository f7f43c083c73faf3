"""Rules for which models llama.cpp computes faithfully; `export.gguf` follows them too. Loads no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.families import FAMILIES
from burnish_engine.models.families.rules.gguf import GgufRules

EXPORTED_FAMILIES = frozenset(name for name, family in FAMILIES.items() if family.gguf)
"""model_type values that `export.gguf` writes."""

SAFETENSORS = "Export as safetensors instead."
_DEFAULT_YARN = {"beta_fast": 32.0, "beta_slow": 1.0}  # Peng et al. 2023; llama.cpp's and transformers' defaults

Config = Mapping[str, Any]
"""A checkpoint's config.json."""


class Refusal(NamedTuple):
    """The reason why an export does not work."""

    what: str  # obstacle, as a sentence
    remedy: str  # advice what to do instead, as a sentence


def gguf_rules(model_type: str) -> GgufRules:
    """Return how a family's models become GGUFs.

    Raises:
        UsageError: This family cannot be exported to GGUF.
    """
    family = FAMILIES.get(model_type)
    if family is None or family.gguf is None:
        raise UsageError(*_unknown_family(model_type))
    return family.gguf


def gguf_refusal(model_type: str, spec: DecoderSpec | None, config: Config, name: str = "the model") -> Refusal | None:
    """Find out why a model cannot be exported to GGUF; None where nothing of its shape prevents it.

    Args:
        model_type: family of the model, as config.json says.
        spec: shape of the model; None, and a shape counted on the built model, mean that it is not known in detail.
        config: config.json of the model.
        name: the model's name in the reason.
    """
    if model_type not in EXPORTED_FAMILIES:
        return _unknown_family(model_type)
    if spec is None or spec.weights:
        return Refusal(f"The architecture of {name} is not known in detail.", SAFETENSORS)
    rules = gguf_rules(model_type)
    files_factors = "rope_scaling" in config or "rope_parameters" in config  # the catalog's shapes leave them out
    has_longrope = rules.rope == "longrope" and spec.rope.scaling == "longrope"
    if has_longrope and files_factors and not spec.rope.short_factor:
        return Refusal("The model's config.json lacks the factors of its longrope.", "Download the model again.")
    expected = f"has the activation {spec.activation!r} where {rules.activations[0]} is expected"
    odd = [*rules.oddities(spec, config), (expected, spec.activation not in rules.activations)]
    what = next((what for what, holds in odd if holds), "")
    if what:
        return Refusal(f"The model {what}, which llama.cpp does not compute.", SAFETENSORS)
    rope = "" if rules.rope in {"longrope", "own"} else _rope(spec, config, is_rounded=rules.rope == "rounded")
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


def _unknown_family(model_type: str) -> Refusal:
    """Refuse a family that has no rules."""
    return Refusal(
        f"Models of the family {model_type!r} cannot be exported to GGUF yet; {', '.join(sorted(EXPORTED_FAMILIES))} "
        "can.",
        "Export as safetensors or as an adapter instead.",
    )


def _rope(spec: DecoderSpec, config: Config, *, is_rounded: bool) -> str:
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
    odd += ["truncate"] if raw.get("truncate") is False and not is_rounded else []
    if odd or not rope.original_context:
        return f"has a yarn rope that sets {', '.join(odd) or 'no original context'}"
    return ""
