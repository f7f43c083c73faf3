"""Which objectives data offers, and recipes that learn by another one. Pure functions, no Qt."""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_preference import (
    OBJECTIVES_OF,
    PREFERENCE_USES,
    USUAL_SETTINGS,
    Objective,
    PreferenceSection,
)

_SAME: dict[frozenset[str], tuple[str, ...]] = {
    frozenset({"dpo", "kto"}): ("beta",),
    frozenset({"dpo", "simpo"}): ("label_smoothing",),
}
"""Settings that mean the same to two objectives and have the same usual value, so that a person's own value stays."""


def offered_objectives(shape: str) -> tuple[Objective, ...]:
    """Return the objectives that can learn from rows of a shape, the usual one first; empty: there is no choice.

    Args:
        shape: shape of the dataset, as its facts say.
    """
    return OBJECTIVES_OF.get(shape, ())


def known_objective(name: str) -> Objective:
    """Return the objective of this name.

    Raises:
        ValueError: There is none.
    """
    for objective in PREFERENCE_USES:
        if objective == name:
            return objective
    raise ValueError(f"{name} is no objective")


def is_open(recipe: Recipe) -> bool:
    """Whether a recipe does not say yet what shall be learned from preferences."""
    return recipe.preference.objective == "sft" and recipe.data.shape == "auto"


def with_objective(recipe: Recipe, objective: Objective, shape: str) -> Recipe:
    """Return the recipe with another objective and its usual settings (`follow_objective`).

    Args:
        recipe: recipe to change.
        objective: new objective.
        shape: shape of the dataset; a recipe that learns replies as they stand names it, so that nobody is asked again.
    """
    values = recipe.model_dump()
    values["preference"]["objective"] = objective
    values["data"]["shape"] = shape if objective == "sft" else "auto"
    follow_objective(values, recipe.preference.objective)
    make_room_for_pairs(values)
    if objective == "kto" and recipe.task.compares:
        values["task"]["metric"] = "none"  # half the rows' own replies are bad ones
    return Recipe.model_validate(values)


def follow_objective(values: dict[str, Any], former: str) -> None:
    """Give an objective that was just chosen its usual settings, in place; those that mean the same to both stay.

    Args:
        values: recipe as nested tables.
        former: objective before.
    """
    section = values["preference"]
    objective = section["objective"]
    if objective != former:
        same = _SAME.get(frozenset({former, objective}), ())
        usual = PreferenceSection().model_dump() | USUAL_SETTINGS.get(objective, {}) | {"objective": objective}
        section.update({name: value for name, value in usual.items() if name not in same})


def make_room_for_pairs(values: dict[str, Any]) -> None:
    """Raise the micro-batch of a recipe in place, where a pair of its longest rows would not fit into it.

    Args:
        values: recipe as nested tables.
    """
    if PreferenceSection(objective=values["preference"]["objective"]).learns_pairs:
        train = values["train"]
        train["micro_batch_tokens"] = max(train["micro_batch_tokens"], 2 * values["data"]["max_length"])
