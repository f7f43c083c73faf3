"""Options of a duel, and the identity of one of its runs."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_evaluation import GuardSection
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.contract.run.duels import DuelPhase

_LARGEST_RATE = 1.0  # largest value of train.learning_rate
_SEEDS = 2**32  # number of values of train.seed


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DuelOptions(_Spec):
    """Options of a duel."""

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


def duel_options(**values: object) -> DuelOptions:
    """Make the options of a duel.

    Raises:
        UsageError: A value is not possible; it is named as the command line calls it.
    """
    try:
        return DuelOptions.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"][:1])
        option = {"extensions": "extend"}.get(where, where)
        message = first["msg"].removeprefix("Value error, ").lower()
        raise UsageError(f"--{option} = {first['input']}: {message}.", "`burnish duel --help` says more.") from None


class Side(_Spec):
    """One of the compared recipes.

    Attributes:
        letter: letter of the side: A, B, ...
        name: name for people.
        file: name of the recipe's file, as it was given.
        rate: learning rate of the recipe.
        run_s: predicted training time of one run, seconds; None where unknown.
    """

    letter: str
    name: str
    file: str
    rate: float
    run_s: float | None = None


class RunSpec(_Spec):
    """Identity of one run of a duel.

    Attributes:
        side: index of the side.
        phase: purpose of the run. grid: find the side's rate. seeds: compare. second look: the same seeds at another
            rate that the grid could not tell from the best one.
        seed: seed of everything random in it.
        rate: learning rate.
    """

    side: int
    phase: DuelPhase
    seed: int
    rate: float

    @property
    def id(self) -> str:
        """Name of the run, also of its folder."""
        phase = "grid" if self.phase == "grid" else "seeds" if self.phase == "seeds" else "again"
        return f"{phase}-{chr(ord('a') + self.side)}-lr{self.rate:g}-seed{self.seed}"


def grid_seed(recipes_seed: int) -> int:
    """Return the seed on which rates are compared: the first recipe's."""
    return recipes_seed


def compared_seeds(recipes_seed: int, count: int) -> list[int]:
    """Return the seeds on which sides are compared; the grid's is left out: the best rate was lucky on it."""
    return [(recipes_seed + number) % _SEEDS for number in range(1, count + 1)]


def rate_times(rate: float, factor: float) -> float | None:
    """Multiply a learning rate, rounded to four digits; None where no recipe may have the result."""
    product = rate if factor == 1.0 else float(f"{rate * factor:.4g}")
    return product if 0 < product <= _LARGEST_RATE else None


def run_recipe(recipe: Recipe, spec: RunSpec, *, every: int) -> Recipe:
    """Make the recipe of one run.

    Args:
        recipe: recipe of the side.
        spec: identity of the run.
        every: number of steps between evaluations, and between checkpoints.
    """
    train = {
        "seed": spec.seed, "learning_rate": spec.rate, "checkpoint_every": every, "keep_checkpoints": 1,
        "checkpoint_minutes": TrainSection().checkpoint_minutes,
    }  # fmt: skip
    watched = {"every": every, "prompts": [], "patience": 0}
    # A run that rolled back to half the rate, or stopped early, would not be a run at this rate and of this length.
    return recipe.model_copy(
        update={
            "name": spec.id,
            "guard": GuardSection(rollback=False),
            "train": recipe.train.model_copy(update=train),
            "evaluation": recipe.evaluation.model_copy(update=watched),
            "task": TaskSection() if spec.phase == "grid" else recipe.task,  # the grid looks at the loss only
        }
    )
