"""Effects of a duel's factors: contrasts of the sides that have one value with those that have the other.

Where every combination of two values of each factor runs, a factor's effect is the mean of half of the sides less that
of the others, so each run tells about every factor (Fisher 1935, "The Design of Experiments", chapter 6). An
interaction is how much an effect differs between the two values of another factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product

from burnish_engine.contract.recipe.sweep import SweepSetting, value_text


@dataclass(frozen=True)
class EffectContrast:
    """A contrast of all sides.

    Attributes:
        names: what is compared: the two values of a factor, or an effect at the two values of another factor.
        weights: weight of each side.
        is_interaction: whether two factors are in it.
    """

    names: tuple[str, str]
    weights: list[float]
    is_interaction: bool = False

    @property
    def sides(self) -> tuple[int, int]:
        """First side with a positive weight, and first with a negative one."""
        positive = next(side for side, weight in enumerate(self.weights) if weight > 0)
        return positive, next(side for side, weight in enumerate(self.weights) if weight < 0)


def effect_contrasts(tried: Sequence[SweepSetting]) -> list[EffectContrast]:
    """List the effect of each factor, the second value against the first, then the interactions of two.

    Args:
        tried: factors with two values each; sides are their combinations, the first factor changes slowest.
    """
    signs = list(product((-1, 1), repeat=len(tried)))
    half = len(signs) / 2
    found = []
    for place, factor in enumerate(tried):
        first, second = (f"{factor_name(factor.key)} {value_text(value)}" for value in factor.values)
        found.append(EffectContrast((second, first), [row[place] / half for row in signs]))
    for one, other in combinations(range(len(tried)), 2):
        changed = f"{factor_name(tried[one].key)} {value_text(tried[one].values[1])}"
        first, second = (
            f"the effect of {changed} with {factor_name(tried[other].key)} {value_text(value)}"
            for value in tried[other].values
        )
        weights = [2 * row[one] * row[other] / half for row in signs]
        found.append(EffectContrast((second, first), weights, is_interaction=True))
    return found


def factor_name(key: str) -> str:
    """Return the short name of a factor: the last part of its key, of a section's kind the section."""
    section, _, name = key.partition(".")
    return section if name == "kind" else name


def contrast_by_seed(weights: Sequence[float], values: Sequence[dict[int, float]], *, ratio: bool) -> list[float]:
    """Compute a contrast for every seed that all sides have a value of; of ratios, by logarithms.

    Args:
        weights: weight of each side.
        values: value by seed of each side.
        ratio: whether the contrast is of logarithms.
    """
    seeds = sorted(set.intersection(*map(set, values))) if values else []
    found = []
    for seed in seeds:
        one = [side[seed] for side in values]
        if not ratio:
            found.append(sum(weight * value for weight, value in zip(weights, one, strict=True)))
        elif all(value > 0 for value in one):
            found.append(sum(weight * math.log(value) for weight, value in zip(weights, one, strict=True)))
    return found
