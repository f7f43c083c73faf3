"""Names the recipe's settings and their values: the words of their declarations, translated. No Qt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache

from burnish_app.look.language import tr
from burnish_app.wording.numbers import decimal_text
from burnish_engine.contract.recipe.recipe import sections, setting_of
from burnish_engine.contract.recipe.sweep import value_text


def setting_name(key: str) -> str:
    """Name a setting for people.

    Args:
        key: dotted key.
    """
    label = setting_of(key).label
    return tr(label) if label else key.rpartition(".")[2].replace("_", " ").capitalize()


def setting_term(key: str) -> str:
    """Name a setting by its term alone, without the plain words in brackets.

    Args:
        key: dotted key.
    """
    name = setting_name(key)
    term = name.partition(" (")[0]
    return name if term in _ambiguous() else term


@cache
def _ambiguous() -> set[str]:
    """The terms that several settings have."""
    keys = [f"{section}.{name}" for section, model in sections().items() for name in model.model_fields]
    terms = Counter(setting_name(key).partition(" (")[0] for key in keys if setting_of(key).label)
    return {term for term, count in terms.items() if count > 1}


def choice_texts(key: str) -> dict[str, str]:
    """Return what the values of a setting are called, where they are not called by themselves.

    Args:
        key: dotted key.
    """
    return {value: tr(text) for value, text in setting_of(key).choices.items()}


def setting_text(key: str, value: object) -> str:
    """Format a value of a setting for people.

    Args:
        key: dotted key.
        value: value, or its text.
    """
    zero = setting_of(key).zero
    if zero and value == 0:
        return tr(zero)
    text = decimal_text(value) if isinstance(value, float) else value_text(value)
    return choice_texts(key).get(text, text)


def changes_text(changes: Mapping[str, object]) -> str:
    """Say which settings have which values, such as "learning rate 0.0002, rank 8".

    Args:
        changes: value of each setting by dotted key.
    """
    return ", ".join(f"{setting_term(key).casefold()} {setting_text(key, value)}" for key, value in changes.items())
