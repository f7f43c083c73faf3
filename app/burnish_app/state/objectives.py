"""Which objectives data offers, and recipes that learn by another one. Pure functions, no Qt."""

from __future__ import annotations

from typing import Any, cast, get_args

from pydantic import ValidationError

from burnish_engine.contract.facts.data_report import TaskHint
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_preference import (
    OBJECTIVES_OF,
    Objective,
    PreferenceSection,
    shape_to_read,
    usual_preference,
)
from burnish_engine.contract.recipe.recipe_reinforce import usual_rewards
from burnish_engine.contract.recipe.recipe_task import TaskSection

OBJECTIVE = "preference.objective"
"""Key of the setting that says what is learned."""
_SAME: dict[frozenset[str], tuple[str, ...]] = {
    frozenset({"dpo", "kto"}): ("beta",),
    frozenset({"dpo", "simpo"}): ("label_smoothing",),
}
"""Settings that mean the same to two objectives and have the same usual value, so that a person's own value stays."""


def offered_objectives(dataset: DatasetFacts | None) -> tuple[Objective, ...]:
    """Return the objectives to choose from for a dataset, the usual one first; empty: there is no choice.

    Rewards are offered where the rows' own replies can be checked.

    Args:
        dataset: facts about the rows; None: not known.
    """
    if dataset is None:
        return ()
    return OBJECTIVES_OF.get(dataset.shape) or (("sft", "grpo") if task_of(dataset) is not None else ())


def task_of(dataset: DatasetFacts | None) -> TaskHint | None:
    """Return how replies to a dataset's prompts can be checked; None: not known."""
    report = dataset.report if dataset is not None else None
    has_rows = report is not None and (report.task_fit is None or report.task_fit.usable_rows > 0)
    return report.task if report is not None and has_rows else None


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


def with_objective(recipe: Recipe, objective: Objective, shape: str, task: TaskHint | None = None) -> Recipe:
    """Return the recipe with another objective and all that follows from it (`choose_objective`).

    Args:
        recipe: recipe to change.
        objective: new objective.
        shape: shape of the dataset; empty: not known.
        task: how its replies can be checked; None: not known.
    """
    values = recipe.model_dump()
    choose_objective(values, objective, shape, task)
    return Recipe.model_validate(values)


def choose_objective(values: dict[str, Any], objective: Objective, shape: str, task: TaskHint | None = None) -> None:
    """Choose an objective in a recipe, in place, with all that follows from it.

    It gets its usual settings; those that mean the same to it and to the former objective stay.

    Args:
        values: recipe as nested tables; other settings may be invalid.
        objective: new objective.
        shape: shape of the dataset; empty: not known, so that it is taken to be what the former objective learns from.
        task: how its replies can be checked; None: not known.
    """
    former: Objective = values["preference"]["objective"]
    if objective != former:
        same = _SAME.get(frozenset({former, objective}), ())
        usual = usual_preference(objective).model_dump()
        values["preference"].update({name: value for name, value in usual.items() if name not in same})
    values["data"]["shape"] = shape_to_read(objective, shape or _shape_of(former))
    if values["preference"]["objective"] == "grpo" != former:
        _choose_rewards(values, task)
    fit_to_objective(values)


def _shape_of(objective: Objective) -> str:
    """Return the shape of rows that an objective learns from; empty for replies as they stand."""
    shapes = (shape for shape, objectives in OBJECTIVES_OF.items() if objective != "sft" and objective in objectives)
    return next(shapes, "")


def fit_to_objective(values: dict[str, Any]) -> None:
    """Change the settings of a recipe that its objective cannot be learned with, in place.

    A pass gets room for both replies of a pair. What compares with the model as it was trains an adapter, since the
    model without it is the reference. Replies labeled good or bad are not scored by what the rows themselves reply.
    Only rewards are learned with rewards, and they need a score of the task.

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
    if section.learns_rewards:
        _fit_to_rewards(values)
    else:
        values["reward"] = []


def _choose_rewards(values: dict[str, Any], task: TaskHint | None) -> None:
    """Score the task as its rows suggest, unless it is scored already, and reward what is scored."""
    if values["task"]["metric"] == "none" and task is not None:
        values["task"]["metric"] = task.metric
    values["reward"] = [one.model_dump() for one in usual_rewards(values["task"]["metric"])]


def _fit_to_rewards(values: dict[str, Any]) -> None:
    train, reinforce, longest = values["train"], values["reinforce"], values["data"]["max_length"]
    if values["task"]["metric"] == "none":
        values["task"]["metric"] = "exact_match"
    room = [longest, reinforce["max_tokens"], train["micro_batch_tokens"]]
    if all(isinstance(tokens, int) for tokens in room):
        train["micro_batch_tokens"] = max(train["micro_batch_tokens"], longest + reinforce["max_tokens"])
    if train["optimizer"] == "schedule_free":
        train["optimizer"] = "adamw"
    if values["data"]["learn"] == "everything":
        values["data"]["learn"] = "responses"
    if values["adapter"]["method"] == "full":
        reinforce["kl_weight"] = 0.0
    values["adapter"]["dropout"] = 0.0
    values["evaluation"]["patience"] = 0
    if values["devices"]["strategy"] != "single":
        values["devices"] |= {"strategy": "single", "gpus": values["devices"]["gpus"][:1]}


def _compares(task: dict[str, Any]) -> bool:
    try:
        return TaskSection.model_validate(task).compares
    except ValidationError:  # its field says what is wrong
        return False
