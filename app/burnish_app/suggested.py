"""Bringing a suggestion into a recipe without losing what the person changed. Pure functions, no Qt."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from burnish_app.recipe_fields import ELSEWHERE, recipe_fields
from burnish_engine.contract.advice import Suggestion
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_file import parse_recipe


def with_suggestion(current: Recipe, before: Recipe | None, suggestion: Recipe, *, all_of_it: bool = False) -> Recipe:
    """The recipe with the suggested values wherever the person did not choose another one.

    Args:
        current: The recipe as it is. Its model, data files and target device stay.
        before: What was suggested before, which tells what the person changed; None: the defaults.
        suggestion: What is suggested now.
        all_of_it: Take every suggested value.

    Returns:
        The recipe; where kept and suggested values do not go together, the suggested ones.
    """
    kept = suggestion.model_dump()
    values, base = current.model_dump(), (before or Recipe()).model_dump()
    for key in ELSEWHERE:
        _set(kept, key, _get(values, key))
    plain = Recipe.model_validate(kept)
    if all_of_it:
        return plain
    for field in recipe_fields():
        if field.read(values) != field.read(base):
            field.write(kept, field.read(values))
    try:
        return Recipe.model_validate(kept)
    except ValidationError:
        return plain


def suggested_recipe(suggestion: Suggestion | None) -> Recipe | None:
    """The recipe of a suggestion; None where there is none, or it is of another version of Burnish."""
    if suggestion is None:
        return None
    try:
        return parse_recipe(suggestion.recipe)
    except BurnishError:
        return None


def _get(values: dict[str, Any], key: str) -> Any:
    section, _, name = key.rpartition(".")
    return (values[section] if section else values)[name]


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    section, _, name = key.rpartition(".")
    (values[section] if section else values)[name] = value
