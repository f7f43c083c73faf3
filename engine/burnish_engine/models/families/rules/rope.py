"""Read rotary position embeddings from `config.json`: transformers 5's `rope_parameters` or the older keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from burnish_engine.contract.facts.facts import RopeSpec

Ropes = tuple[RopeSpec, RopeSpec | None]
"""Rope of a model, and that of its sliding-window layers where they have their own."""


def usual_ropes(config: Mapping[str, Any], head_dim: int, max_context: int) -> Ropes:
    """Read the one rope of all layers.

    Args:
        config: parsed `config.json` of the checkpoint, with its family's defaults for absent keys.
        head_dim: size of a head.
        max_context: `max_position_embeddings`, used where the original context is absent.

    Raises:
        LookupError, TypeError, ValueError, ArithmeticError: Something is missing, odd, or not computed by transformers.
    """
    return read_rope(rope_parameters(config), config, head_dim, max_context), None


def ropes_by_kind(
    config: Mapping[str, Any], head_dim: int, max_context: int, *, theta: float, local_theta: float
) -> Ropes:
    """Read a rope for layers without a window, which alone `rope_scaling` is meant for, and one for those with it.

    Args:
        config: parsed `config.json` of the checkpoint, with its family's defaults for absent keys.
        head_dim: size of a head.
        max_context: `max_position_embeddings`.
        theta: base of the first where its parameters name none.
        local_theta: base of the second where its parameters name none.

    Raises:
        LookupError, TypeError, ValueError, ArithmeticError: Something is missing, odd, or not computed by transformers.
    """
    nested = config.get("rope_parameters") or {}
    full = {**(nested.get("full_attention") or {}), **(config.get("rope_scaling") or {})}
    local = {"rope_theta": local_theta, **(nested.get("sliding_attention") or {})}
    return (
        read_rope({"rope_theta": theta, **full}, config, head_dim, max_context),
        read_rope(local, config, head_dim, max_context),
    )


def rope_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the one rope of all layers; empty where the config has none.

    Raises:
        ValueError: There is a rope for each kind of layer.
    """
    parameters = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    if any(isinstance(value, dict) or key.endswith("_attention") for key, value in parameters.items()):
        raise ValueError("a rope for each kind of layer, which this family does not have")
    return parameters


def rope_kind(parameters: Mapping[str, Any]) -> str:
    """Return the type of a rope, by its newer or its older key."""
    return str(parameters.get("rope_type") or parameters.get("type") or "default")


def read_rope(
    parameters: Mapping[str, Any],
    config: Mapping[str, Any],
    head_dim: int,
    max_context: int,
    *,
    rotates_part: bool = False,
    is_proportional: bool = False,
) -> RopeSpec:
    """Read one rope.

    Args:
        parameters: the rope's own parameters.
        config: parsed `config.json`, for what stands beside them.
        head_dim: size of a head.
        max_context: `max_position_embeddings`.
        rotates_part: whether the family computes a rope that rotates only a part of each head.
        is_proportional: whether the family computes a rope that rotates only the first pairs of a whole head.

    Raises:
        LookupError, TypeError, ValueError, ArithmeticError: Something is missing, odd, or not computed by transformers.
    """
    kind = rope_kind(parameters)
    partial = float(parameters.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0)
    proportion = 1.0
    if kind == "proportional":
        if not is_proportional:
            raise ValueError("a proportional rope, which this family does not have")
        proportion, partial = partial, 1.0
    if partial != 1.0 and not rotates_part:
        raise ValueError(f"rope of {partial} of a head, which transformers does not compute for this family")
    original = original_context(parameters, config, max_context) if kind in {"llama3", "yarn", "longrope"} else None
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
    )


def original_context(parameters: Mapping[str, Any], config: Mapping[str, Any], max_context: int) -> int:
    """Return the context before scaling: stored beside the rope's parameters (Phi-3), among them, or not scaled."""
    given = config.get("original_max_position_embeddings") or parameters.get("original_max_position_embeddings")
    return int(given or max_context)


def _yarn_attention_factor(parameters: Mapping[str, Any], factor: float) -> float:
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
