"""Read rotary position embeddings from `config.json`: transformers 5's `rope_parameters` or the older keys."""

from __future__ import annotations

import math
from typing import Any

from burnish_engine.contract.facts.facts import RopeSpec

_LFM3_ROPES = {
    "full_attention": {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.5},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}
_MINISTRAL3_ROPE = {
    "rope_type": "yarn", "rope_theta": 1_000_000.0, "factor": 16.0, "original_max_position_embeddings": 16_384,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip
_GEMMA3_THETAS = {"full_attention": 1_000_000.0, "sliding_attention": 10_000.0}


def global_and_local_rope(
    config: dict[str, Any], family: str, head_dim: int, max_context: int
) -> tuple[RopeSpec, RopeSpec | None]:
    """Return the rope of a model, and that of its sliding-window layers where they have their own (Gemma 3).

    Args:
        config: parsed `config.json` of the checkpoint, with its family's defaults for absent keys.
        family: model_type of the config.
        head_dim: size of a head.
        max_context: `max_position_embeddings`, used where the original context is absent.

    Raises:
        LookupError, TypeError, ValueError, ArithmeticError: Something is missing, odd, or not computed by transformers.
    """
    if family == "gemma3_text":
        nested = config.get("rope_parameters") or {}
        full = {**(nested.get("full_attention") or {}), **(config.get("rope_scaling") or {})}
        full.setdefault("rope_theta", config.get("rope_theta", _GEMMA3_THETAS["full_attention"]))
        local = dict(nested.get("sliding_attention") or {})
        local.setdefault("rope_theta", config.get("rope_local_base_freq", _GEMMA3_THETAS["sliding_attention"]))
        return _rope(full, config, family, head_dim, max_context), _rope(local, config, family, head_dim, max_context)
    if family == "lfm3":
        nested = config.get("rope_parameters") or _LFM3_ROPES
        found = [_rope(nested[kind], config, family, head_dim, max_context) for kind in _LFM3_ROPES]
        return found[0], found[1]
    parameters = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    if family == "ministral3" and not parameters:
        parameters = dict(_MINISTRAL3_ROPE)
    if family == "gpt_oss" and config.get("rope_parameters") is None and not parameters:
        parameters = {
            "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False,
        }  # fmt: skip
    if any(isinstance(value, dict) or key.endswith("_attention") for key, value in parameters.items()):
        raise ValueError("a rope for each kind of layer, which this family does not have")
    return _rope(parameters, config, family, head_dim, max_context), None


def _rope(parameters: dict[str, Any], config: dict[str, Any], family: str, head_dim: int, max_context: int) -> RopeSpec:
    kind = str(parameters.get("rope_type") or parameters.get("type") or "default")
    if family == "phi3":
        kind = "longrope" if kind in {"su", "yarn"} else kind  # older names of it
        if kind not in {"default", "longrope"}:
            raise ValueError(f"Phi-3 with {kind} rope")
    partial = float(parameters.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0)
    proportion = 1.0
    if kind == "proportional":
        if family != "lfm3":
            raise ValueError(f"{family} with {kind} rope")
        proportion, partial = partial, 1.0
    if partial != 1.0 and family != "phi3":
        raise ValueError(f"rope of {partial} of a head, which transformers does not compute for {family}")
    scaled = kind in {"llama3", "yarn", "longrope"} or family == "ministral3"
    original = _original_context(parameters, config, max_context) if scaled else None
    factor, attention_factor = float(parameters.get("factor") or 1.0), 1.0
    short, long = [], []
    if kind == "longrope" and original is not None:
        # The catalog's entries have no factors: enough to plan with, not to build.
        short, long = list(parameters.get("short_factor") or []), list(parameters.get("long_factor") or [])
        pairs = -(-int(head_dim * partial) // 2)
        if (len(short), len(long)) not in {(pairs, pairs), (0, 0)}:
            raise ValueError(f"longrope with {len(short)} and {len(long)} factors for {pairs} frequencies")
        factor = float(parameters.get("factor") or max_context / original)
        attention_factor = _longrope_attention_factor(parameters.get("attention_factor"), factor, original)
    if kind == "yarn" and original is not None:
        factor = float(parameters.get("factor") or max_context / original)
        attention_factor = _yarn_attention_factor(parameters, factor)
    return RopeSpec(
        theta=float(parameters.get("rope_theta") or config.get("rope_theta") or 10_000.0),
        scaling="none" if kind == "default" else kind,
        factor=factor,
        low_freq_factor=float(parameters.get("low_freq_factor", 1.0)),
        high_freq_factor=float(parameters.get("high_freq_factor", 4.0)),
        original_context=original,
        partial=partial,
        proportion=proportion,
        short_factor=short,
        long_factor=long,
        attention_factor=attention_factor,
        beta_fast=float(parameters.get("beta_fast") or 32.0),
        beta_slow=float(parameters.get("beta_slow") or 1.0),
        truncate=bool(parameters.get("truncate", True)),
        query_scale=float(parameters["llama_4_scaling_beta"]) if family == "ministral3" else 0.0,
    )


def _original_context(parameters: dict[str, Any], config: dict[str, Any], max_context: int) -> int:
    """Return the context before scaling: stored beside the rope's parameters (Phi-3), among them, or not scaled."""
    given = config.get("original_max_position_embeddings") or parameters.get("original_max_position_embeddings")
    return int(given or max_context)


def _yarn_attention_factor(parameters: dict[str, Any], factor: float) -> float:
    """Return the factor of cosine and sine (YaRN, arXiv 2309.00071, as in transformers)."""
    if parameters.get("attention_factor") is not None:
        return float(parameters["attention_factor"])
    scales: list[Any] = [parameters.get(key) for key in ("mscale", "mscale_all_dim")]
    over, under = scales if all(scales) else (1.0, 0.0)
    if factor <= 1.0:
        return 1.0
    return (0.1 * float(over) * math.log(factor) + 1.0) / (0.1 * float(under) * math.log(factor) + 1.0)


def _longrope_attention_factor(given: float | None, factor: float, original: int) -> float:
    """Return the factor of cosine and sine (LongRoPE, arXiv 2402.13753, as in transformers)."""
    if given is not None:
        return float(given)
    return math.sqrt(1.0 + math.log(factor) / math.log(original)) if factor > 1.0 else 1.0
