"""Finds fields of the recipe by words. Pure functions, no Qt."""

from __future__ import annotations

from collections.abc import Iterable

from burnish_app.recipe.recipe_fields import RecipeField

LEAST_LETTERS = 2
"""Letters from which a search begins: fewer would find nearly everything."""


def found_fields(fields: Iterable[RecipeField], text: str) -> set[str] | None:
    """Return the keys of the fields that hold every word in name, key, choices or help; None: nothing is searched.

    A word in a name counts from its beginning alone, so that "rate" does not find "separate"; one in the help has to
    have four letters, as short ones stand in nearly every help.

    Args:
        fields: fields to search.
        text: text as typed.
    """
    words = text.casefold().split()
    if len("".join(words)) < LEAST_LETTERS:
        return None
    return {field.key for field in fields if all(_holds(field, word) for word in words)}


def _holds(field: RecipeField, word: str) -> bool:
    choices = " ".join(field.choice_text(choice) for choice in field.choices)
    name = f"{field.label} {field.key} {' '.join(field.choices)} {choices}".casefold()
    for sign in "(),._-+'/":
        name = name.replace(sign, " ")
    if any(part.startswith(word) for part in name.split()) or word in field.key:
        return True
    return len(word) >= 4 and any(part.strip("(),.:;").startswith(word) for part in field.help.casefold().split())
