"""Finds fields of the recipe by words. Pure functions, no Qt."""

from __future__ import annotations

from collections.abc import Iterable

from burnish_app.look.language import tr
from burnish_app.recipe.recipe_fields import RecipeField

LEAST_LETTERS = 2
"""Letters from which a search begins: fewer would find nearly everything."""
_HELP_LETTERS = 4
_SIGNS = "(),.:;+'\"`"


def found_fields(fields: Iterable[RecipeField], text: str) -> set[str] | None:
    """Return the keys of the fields that hold every word in name, key, choices or help; None: nothing is searched.

    A word in a name counts from its beginning alone, so that "rate" does not find "separate"; one in the help has to
    have four letters, as short ones stand in nearly every help.

    Args:
        fields: fields to search.
        text: text as typed.
    """
    words = [word for part in text.casefold().split() if (word := part.strip(_SIGNS))]
    if len("".join(words)) < LEAST_LETTERS:
        return None
    return {field.key for field in fields if all(_holds(field, word) for word in words)}


def _holds(field: RecipeField, word: str) -> bool:
    choices = " ".join(field.choice_text(choice) for choice in field.choices)
    name = f"{field.label} {field.key} {' '.join(field.choices)} {choices}".casefold()
    parts = {part.strip(_SIGNS) for part in name.split()}
    if word in field.key or any(part.startswith(word) for part in parts | set(field.key.replace("_", ".").split("."))):
        return True
    explained = f"{field.help} {' '.join(map(tr, field.info.note.values()))}"
    return len(word) >= _HELP_LETTERS and any(
        part.strip(_SIGNS).startswith(word) for part in explained.casefold().split()
    )
