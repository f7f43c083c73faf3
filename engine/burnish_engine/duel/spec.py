"""What a duel is asked to do, and what one of its runs is."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from burnish_engine.contract.recipe import GuardSection, Recipe

Phase = Literal["grid", "seeds", "second look"]

_LARGEST_RATE = 1.0  # of train.learning_rate
_SEEDS = 2**32  # of train.seed


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DuelOptions(_Spec):
    """How a duel is carried out."""

    factors: list[float] = Field(
        default=[0.3, 1.0, 3.0],
        min_length=1,
        max_length=9,
        description="Learning rates of the grid as multiples of each recipe's own. One alone: there is no grid.",
    )
    extensions: int = Field(
        default=2, ge=0, le=8, description="Most further rates per side, where the best one is at an edge of its grid."
    )
    seeds: int = Field(default=3, ge=3, le=100, description="Runs of each side at its best rate, one a seed.")
    evaluations: int = Field(default=10, ge=1, le=1000, description="Evaluations in the course of a run.")
    level: float = Field(default=0.95, gt=0.5, lt=1.0, description="Confidence of the verdicts.")
    anyway: bool = Field(default=False, description="Compare although the conditions differ.")

    @field_validator("factors")
    @classmethod
    def _usable(cls, factors: list[float]) -> list[float]:
        wrong = [factor for factor in factors if not (math.isfinite(factor) and 0 < factor <= 1e6)]
        if wrong:
            raise ValueError(f"factors must be above 0 and finite, not {wrong[0]:g}")
        if len(set(factors)) != len(factors):
            raise ValueError(f"factors must differ from each other, not {factors}")
        return sorted(factors)


class Side(_Spec):
    """One of the recipes.

    Attributes:
        letter: A, B, ...
        name: What to call it.
        file: Name of the recipe's file, as it was given.
        rate: Its own learning rate.
        run_s: Predicted training time of one of its runs; None where that is not known.
    """

    letter: str
    name: str
    file: str
    rate: float
    run_s: float | None = None


class RunSpec(_Spec):
    """One run of a duel.

    Attributes:
        side: Place among the sides.
        phase: grid: to find the side's rate. seeds: what is compared. second look: the same seeds at another rate that
            the grid could not tell from the best one.
        seed: Of everything random in it.
        rate: Its learning rate.
    """

    side: int
    phase: Phase
    seed: int
    rate: float

    @property
    def id(self) -> str:
        """Its name, also of its folder."""
        phase = "grid" if self.phase == "grid" else "seeds" if self.phase == "seeds" else "again"
        return f"{phase}-{chr(ord('a') + self.side)}-lr{self.rate:g}-seed{self.seed}"


def grid_seed(recipes_seed: int) -> int:
    """The seed on which rates are compared: the first recipe's."""
    return recipes_seed


def compared_seeds(recipes_seed: int, count: int) -> list[int]:
    """The seeds on which sides are compared, without the grid's: the best of several rates was lucky there."""
    return [(recipes_seed + number) % _SEEDS for number in range(1, count + 1)]


def rate_times(rate: float, factor: float) -> float | None:
    """A learning rate of the grid, in four digits; None where no recipe may have it."""
    product = rate if factor == 1.0 else float(f"{rate * factor:.4g}")
    return product if 0 < product <= _LARGEST_RATE else None


def run_recipe(recipe: Recipe, spec: RunSpec, *, every: int) -> Recipe:
    """What a run of the duel trains.

    Args:
        recipe: The side's.
        spec: The run.
        every: Steps between evaluations, and between checkpoints.
    """
    train = {
        "seed": spec.seed, "learning_rate": spec.rate, "checkpoint_every": every, "keep_checkpoints": 1
    }  # fmt: skip
    watched = {"every": every, "prompts": [], "patience": 0}
    # A run that went back and on at half the rate, or stopped early, would be no run at this rate and of this length.
    return recipe.model_copy(
        update={
            "name": spec.id,
            "guard": GuardSection(rollback=False),
            "train": recipe.train.model_copy(update=train),
            "evaluation": recipe.evaluation.model_copy(update=watched),
        }
    )
