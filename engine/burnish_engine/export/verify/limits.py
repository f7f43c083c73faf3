"""Limits of what a file's rounding may change, relative to what training changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from burnish_engine.advise.facts.gguf_rules import rounds_rope
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe_export import COARSE_TYPES
from burnish_engine.export.base.losses import ModelDistance

_MOST_KL: Mapping[str, float] = {
    "F32": 1e-4, "F16": 1e-4, "BF16": 0.02, "Q8_0": 0.1, "Q6_K": 0.2, **dict.fromkeys(COARSE_TYPES, 1.0),
}  # fmt: skip
"""Largest mean KL(trained || file), nats, whatever training changed. Several times what the worst measured model needs
(the embedded 135M model: `tests/bench/LOG.md`), and far below the effect of a structural fault (a missing Q/K
permutation: 2.4)."""
_OTHER_MOST_KL = 0.5
_ROUNDING_KL: Mapping[str, float] = {"F32": 1e-4, "F16": 1e-4, "BF16": 0.02, "Q8_0": 0.02, "Q6_K": 0.03}
"""Mean KL, nats, that rounding makes of a model whatever was trained; a file below it is not measured by training's
distance. The embedded model: Q8_0 0.005, Q6_K 0.014, Q4_K_M 0.047 to 0.12, by the rows."""
_OTHER_ROUNDING_KL = 0.15
MIXTURE_KL, ROUNDED_ROPE_KL = 0.02, 0.1
"""Lowest limits for models that no 16-bit file computes quite as trained. A token of a mixture whose experts are nearly
tied may be routed to another one: 4e-4 measured on tiny models, where one expert counts most. llama.cpp rounds the
bounds of some yarn ropes (`gguf_rules.rounds_rope`): 0.03 on a tiny random model, beyond its original context."""
_SHARE = 0.5
"""Share of training's own distance that a file may be away, and of the gain that it has to keep."""
_TOP1, _TOP1_COARSE = 0.6, 0.5
"""Smallest share of equal top-1 tokens; Q4_0 of the embedded model without an importance matrix: 0.70."""
_FLAT_KL = 0.05
"""Mean KL, nats, below which top-1 tokens do not count: the model itself hardly prefers any token."""


@dataclass(frozen=True)
class KlStatistics:
    """KL divergence statistics of the file's probabilities over all positions."""

    positions: int  # number of compared positions
    mean_kl: float  # mean KL(trained || file), nats
    p99_kl: float  # 99th percentile of the KL, nats
    top1: float  # share of equal top-1 tokens, 0 to 1
    loss: float | None = None  # mean loss of the file on the rows' supervised tokens, nats; None where no token counts


def judge(
    quant: str, found: KlStatistics, base: ModelDistance | None = None, gain: float | None = None, least: float = 0.0
) -> list[str]:
    """List the reasons to refuse a file; empty where it passes.

    A file may be half as far from the trained model as the base is, has to keep half of the gain, and has to choose the
    trained model's tokens more often than the base does. None of this counts where the file is as near as rounding
    brings any model, so that a training that changed almost nothing can be exported.

    Args:
        quant: GGUF type of the file.
        found: figures of the file.
        base: distance of the model before training; None: unknown, or nothing was trained.
        gain: share of training's gain that the file keeps; None: unknown.
        least: lowest limit of the mean KL, nats, where llama.cpp does not compute the model quite as trained.
    """
    if not math.isfinite(found.mean_kl):
        return ["Its probabilities are not finite numbers."]
    rounding = _rounding_kl(quant, least)
    limit = max(_MOST_KL.get(quant, _OTHER_MOST_KL), least)
    why = f"limit {limit:g} for {quant}"
    if base is not None and (relative := max(rounding, _SHARE * base.mean_kl)) < limit:
        limit, why = relative, f"limit {relative:.3g}, as training itself changed them by {base.mean_kl:.3g}"
    if found.mean_kl >= limit:
        return [
            "Its predictions differ from the trained model's by more than is allowed: mean KL divergence "
            f"{found.mean_kl:.3g}, {why}."
        ]
    beyond = base is not None and found.mean_kl >= rounding
    if beyond and gain is not None and gain < _SHARE:
        return [f"It keeps only {max(gain, 0.0):.0%} of what training gained on held-out rows."]
    top1 = _TOP1_COARSE if quant in COARSE_TYPES else _TOP1
    if base is not None and beyond:
        top1 = max(top1, base.top1)
    if found.top1 <= top1 and found.mean_kl >= _FLAT_KL:
        return [
            f"It agrees with the trained model's first choice at only {found.top1:.0%} of the positions; it has to at "
            f"more than {top1:.0%}."
        ]
    return []


def hides_training(quant: str, mean_kl: float, base: ModelDistance | None, least: float = 0.0) -> bool:
    """Whether a file that passed is nearer than rounding's usual distance, but far beside training's own.

    Args:
        quant: GGUF type of the file.
        mean_kl: mean KL(trained || file), nats.
        base: distance of the model before training; None: unknown, or nothing was trained.
        least: as in `judge`.
    """
    return base is not None and _SHARE * base.mean_kl <= mean_kl < _rounding_kl(quant, least)


def least_limit(spec: DecoderSpec | None) -> float:
    """Return the lowest limit of the mean KL of a model's files, nats.

    Args:
        spec: shape of the model; None where it is not known in detail.
    """
    if rounds_rope(spec):
        return ROUNDED_ROPE_KL
    return MIXTURE_KL if spec is not None and spec.experts is not None else 0.0


def _rounding_kl(quant: str, least: float) -> float:
    return max(_ROUNDING_KL.get(quant, _OTHER_ROUNDING_KL), least)
