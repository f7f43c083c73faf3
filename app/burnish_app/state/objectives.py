"""Which objectives data offers, and recipes that learn by another one. Pure functions, no Qt."""

from __future__ import annotations

from typing import Any, cast, get_args

from pydantic import ValidationError

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_preference import (
    OBJECTIVES_OF,
    Objective,
    PreferenceSection,
    shape_to_read,
    usual_preference,
)
from burnish_engine.contract.recipe.recipe_task import TaskSection

OBJECTIVE = "preference.objective"
"""Key of the setting that says what is learned."""
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
    for objective in get_args(Objective):
        if objective == name:
            return cast("Objective", objective)
    raise ValueError(f"{name} is no objective")


def is_open(recipe: Recipe) -> bool:
    """Whether a recipe does not say yet what shall be learned from preferences."""
    return recipe.preference.objective == "sft" and recipe.data.shape == "auto"


def with_objective(recipe: Recipe, objective: Objective, shape: str) -> Recipe:
    """Return the recipe with another objective and all that follows from it (`choose_objective`).

    Args:
        recipe: recipe to change.
        objective: new objective.
        shape: shape of the dataset; empty: not known.
    """
    values = recipe.model_dump()
    choose_objective(values, objective, shape)
    return Recipe.model_validate(values)


def choose_objective(values: dict[str, Any], objective: Objective, shape: str) -> None:
    """Choose an objective in a recipe, in place, with all that follows from it.

    It gets its usual settings; those that mean the same to it and to the former objective stay.

    Args:
        values: recipe as nested tables; other settings may be invalid.
        objective: new objective.
        shape: shape of the dataset; empty: not known, so that it is taken to be what the former objective learns from.
    """
    former: Objective = values["preference"]["objective"]
    if objective != former:
        same = _SAME.get(frozenset({former, objective}), ())
        usual = usual_preference(objective).model_dump()
        values["preference"].update({name: value for name, value in usual.items() if name not in same})
    values["data"]["shape"] = shape_to_read(objective, shape or _shape_of(former))
    fit_to_objective(values)


def _shape_of(objective: Objective) -> str:
    """Return the shape of rows that an objective learns from; empty for replies as they stand."""
    shapes = (shape for shape, objectives in OBJECTIVES_OF.items() if objective != "sft" and objective in objectives)
    return next(shapes, "")


def fit_to_objective(values: dict[str, Any]) -> None:
    """Change the settings of a recipe that its objective cannot be learned with, in place.

    A pass gets room for both replies of a pair. What compares with the model as it was trains an adapter, since the
    model without it is the reference. Replies labeled good or bad are not scored by what the rows themselves reply.

    Args:
        values: recipe as nested tables; other settings may be invalid.
    """
    section = PreferenceSection(objective=values["preference"]["objective"])
    train, longest = values["train"], values["data"]["max_length"]
    if section.learns_pairs and isinstance(longest, int) and isinstance(train["micro_batch_tokens"], int):
        train["micro_batch_tokens"] = max(train["micro_batch_tokens"], section.sequences * longest)
    if section.needs_reference and values["adapter"]["method"] == "full":
        values["adapter"]["method"] = "lora"
    if section.learns_labels and _compares(values["task"]):
        values["task"]["metric"] = "none"


def _compares(task: dict[str, Any]) -> bool:
    try:
        return TaskSection.model_validate(task).compares
    except ValidationError:  # its field says what is wrong
        return False
