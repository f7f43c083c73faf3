"""Merges a suggestion into a recipe without losing what the person changed. Pure functions, no Qt."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from burnish_app.recipe.recipe_fields import kept_elsewhere, recipe_fields
from burnish_app.state.objectives import fit_to_objective, is_open
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.facts.advice import Suggestion
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import parse_recipe

_SHOWN_BEFORE = "data.validation_share"
"""Key that the page Data showed with its rows: a suggestion offers another value, and never takes it by itself."""


def with_suggestion(current: Recipe, before: Recipe | None, suggestion: Recipe, *, take_all: bool = False) -> Recipe:
    """Return the recipe with the suggested value of each field that the person did not change.

    Args:
        current: recipe as it is now. Its model, data files and target device stay.
        before: former suggestion, which tells what the person changed; None: the defaults.
        suggestion: recipe that is suggested now.
        take_all: whether to take every suggested value.

    Returns:
        The merged recipe; the plain suggestion if the kept and the suggested values are invalid together.
    """
    kept = suggestion.model_dump()
    values, base = current.model_dump(), (before or Recipe()).model_dump()
    for key in kept_elsewhere():
        _set(kept, key, _get(values, key))
    if not (is_open(current) and suggestion.preference.is_active):  # else the page Data chose it with the rows
        kept["preference"] = values["preference"]
    if kept["preference"]["objective"] == "kto":  # its rows have good and bad replies: there is nothing to be like
        kept["task"] = values["task"]
    fit_to_objective(kept)
    plain = Recipe.model_validate(kept)
    if take_all:
        return plain
    _set(kept, _SHOWN_BEFORE, _get(values, _SHOWN_BEFORE))
    for field in recipe_fields():
        if field.read(values) != field.read(base):
            field.write(kept, field.read(values))
    fit_to_objective(kept)
    try:
        return Recipe.model_validate(kept)
    except ValidationError:
        return plain


def suggested_recipe(suggestion: Suggestion | None) -> Recipe | None:
    """Parse the recipe of a suggestion; None if there is none or another version of Burnish wrote it."""
    if suggestion is None:
        return None
    try:
        return parse_recipe(suggestion.recipe)
    except BurnishError:
        return None


def same_elsewhere(before: Recipe, after: Recipe) -> bool:
    """Whether two recipes agree on all that other pages alone change, such as the model and the data files."""
    old, new = before.model_dump(), after.model_dump()
    return all(_get(old, key) == _get(new, key) for key in kept_elsewhere() - {"reward"})


def _get(values: dict[str, Any], key: str) -> Any:
    section, _, name = key.rpartition(".")
    return (values[section] if section else values)[name]


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    section, _, name = key.rpartition(".")
    (values[section] if section else values)[name] = value
