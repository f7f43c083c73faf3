"""Compute the divisors of a rope's frequencies that a GGUF holds as a tensor, and find the rope that they are of."""

from __future__ import annotations

import math
from collections.abc import Sequence

from burnish_engine.contract.facts.facts import RopeSpec

_CONTEXT = 8192  # context of Llama 3, before its rope was stretched
_LOW, _HIGH = 1.0, 4.0  # factors of all published models


def llama3_factors(rope: RopeSpec, head_dim: int) -> list[float]:
    """Compute the divisor of each rotation frequency [head_dim / 2].

    Llama 3.1's rule (transformers modeling_rope_utils, `_compute_llama3_parameters`): long wavelengths are divided by
    the factor, short ones are not, with a smooth passage between.
    """
    context, found = float(rope.original_context or _CONTEXT), []
    for wavelength in _wavelengths(rope.theta, head_dim):
        if wavelength > context / rope.low_freq_factor:
            found.append(rope.factor)
        elif wavelength < context / rope.high_freq_factor:
            found.append(1.0)
        else:
            span = rope.high_freq_factor - rope.low_freq_factor
            smooth = (context / wavelength - rope.low_freq_factor) / span
            found.append(1.0 / ((1.0 - smooth) / rope.factor + smooth))
    return found


def llama3_rope(factors: Sequence[float], theta: float, head_dim: int) -> RopeSpec | None:
    """Find the rope whose divisors these are; None where Llama 3.1's rule gives no such divisors.

    Args:
        factors: divisors of a file [head_dim / 2].
        theta: base of the rope.
        head_dim: size of a head.
    """
    factor, contexts = max(factors), [_CONTEXT]
    for divisor, wavelength in zip(factors, _wavelengths(theta, head_dim), strict=True):
        if 1.0 < divisor < factor:
            smooth = (1.0 / divisor - 1.0 / factor) / (1.0 - 1.0 / factor)
            contexts.append(round(wavelength * (_LOW + smooth * (_HIGH - _LOW))))
    for context in dict.fromkeys(contexts):
        rope = RopeSpec(
            theta=theta,
            scaling="llama3",
            factor=factor,
            low_freq_factor=_LOW,
            high_freq_factor=_HIGH,
            original_context=context,
        )
        wanted = llama3_factors(rope, head_dim)
        if all(math.isclose(one, other, rel_tol=1e-5) for one, other in zip(factors, wanted, strict=True)):
            return rope
    return None


def _wavelengths(theta: float, head_dim: int) -> list[float]:
    """Return the tokens of a turn of each pair [head_dim / 2]."""
    return [2 * math.pi * theta ** (pair / head_dim) for pair in range(0, head_dim, 2)]
