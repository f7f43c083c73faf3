"""A sweep: one recipe, up to three settings with a list of values each, and a run for each combination."""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe, sections

MAX_SETTINGS = 3
MAX_RUNS = 64
_SECTIONS = ("train", "adapter", "memory", "masking")
_NO_MATTER = ("train.checkpoint_every", "train.checkpoint_minutes", "train.keep_checkpoints")
"""Settings that change what a run keeps, not what it learns. Other sections make another task or another machine."""
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class SweepSetting(BaseModel):
    """A setting of a sweep and the values that it takes. A sweep has one to three, and at most 64 runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = Field(description="Dotted key, such as train.learning_rate.")
    values: list[bool | int | float | str]


class SweepCell(BaseModel):
    """A combination of a sweep's values, and its recipe."""

    model_config = ConfigDict(frozen=True)

    values: list[bool | int | float | str]
    recipe: Recipe


def sweepable_keys() -> list[str]:
    """List the keys of a recipe that a sweep can vary: single values that decide how it is trained."""
    return [
        f"{section}.{name}"
        for section in _SECTIONS
        for name, info in sections()[section].model_fields.items()
        if _is_single(info.annotation) and f"{section}.{name}" not in _NO_MATTER
    ]


def expand(recipe: Recipe, settings: Sequence[SweepSetting]) -> list[SweepCell]:
    """Make the recipes of a sweep: the first setting changes slowest. Each is named after its values.

    Args:
        recipe: recipe that the settings change.
        settings: one to three settings.

    Raises:
        UsageError: A setting cannot be varied, a value is invalid or repeated, or there are too many runs.
    """
    _check(settings)
    cells = []
    for values in product(*(setting.values for setting in settings)):
        changes = {setting.key: value for setting, value in zip(settings, values, strict=True)}
        cells.append(SweepCell(values=list(values), recipe=with_values(recipe, changes)))
    return cells


def with_values(recipe: Recipe, changes: dict[str, Any]) -> Recipe:
    """Change settings of a recipe, and add them to its name.

    Args:
        recipe: recipe to change.
        changes: value by dotted key.

    Raises:
        UsageError: A value is invalid.
    """
    document = recipe.model_dump()
    for key, value in changes.items():
        section, _, name = key.partition(".")
        document[section][name] = value
    words = ", ".join(f"{key.rpartition('.')[2]} {value_text(value)}" for key, value in changes.items())
    document["name"] = f"{recipe.name}: {words}" if recipe.name else words
    try:
        return Recipe.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
        raise UsageError(f"{words} makes no recipe: {what}.", "Take that value out of the list.") from None


def value_text(value: Any) -> str:
    """Format a setting's value as a recipe would have it, with as few digits as it needs."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def parse_setting(text: str) -> SweepSetting:
    """Parse what `--try` takes, such as "train.learning_rate=1e-4,2e-4".

    Raises:
        UsageError: There is no such setting, no value, or one that is of another kind.
    """
    key, equals, values = text.partition("=")
    if not equals:
        raise UsageError(f"--try {text} names no values.", "Give them, such as --try train.learning_rate=1e-4,2e-4")
    return SweepSetting(key=key.strip(), values=parse_values(key.strip(), values))


def parse_values(key: str, text: str) -> list[bool | int | float | str]:
    """Parse a typed list, such as "1e-4, 2e-4", into values of a setting's kind.

    Args:
        key: dotted key of the setting.
        text: values separated by commas.

    Raises:
        UsageError: There is no such setting, no value, or one that is of another kind.
    """
    require_sweepable(key)
    section, _, name = key.partition(".")
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UsageError(f"{key} has no values.", "Give some, separated by commas.")
    return [_parse(key, sections()[section].model_fields[name].annotation, part) for part in parts]


def require_sweepable(key: str) -> None:
    """Check that a sweep can vary a setting.

    Raises:
        UsageError: The setting cannot vary.
    """
    if key not in sweepable_keys():
        close = difflib.get_close_matches(key, sweepable_keys(), n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        tables = ", ".join(f"[{section}]" for section in _SECTIONS)
        raise UsageError(
            f"A sweep cannot vary {key!r}, only single values of {tables}.",
            f"{hint}`burnish recipe reference` lists them.",
        )


def _check(settings: Sequence[SweepSetting]) -> None:
    if not 1 <= len(settings) <= MAX_SETTINGS:
        raise UsageError(f"A sweep varies 1 to {MAX_SETTINGS} settings, not {len(settings)}.", "Choose fewer, or one.")
    runs = math.prod(max(len(setting.values), 1) for setting in settings)
    if runs > MAX_RUNS:
        raise UsageError(f"That would be {runs:,} runs; a sweep has at most {MAX_RUNS}.", "Take some values out.")
    keys = [setting.key for setting in settings]
    for setting in settings:
        require_sweepable(setting.key)
        if keys.count(setting.key) > 1:
            raise UsageError(f"{setting.key} is in the sweep twice.", "Put all of its values into one list.")
        if not setting.values:
            raise UsageError(f"{setting.key} has no values.", "Give some.")
        texts = [value_text(value) for value in setting.values]
        twice = next((text for text in texts if texts.count(text) > 1), None)
        if twice is not None:
            raise UsageError(f"{setting.key} has {twice} twice.", "Each value once is enough: equal runs are equal.")


def _parse(key: str, annotation: Any, part: str) -> bool | int | float | str:
    kinds = list(_kinds(annotation))
    for kind in kinds:
        if kind is bool and part.lower() in _WORDS:
            return _WORDS[part.lower()]
        if kind in (int, float):
            try:
                number: int | float = kind(part)
            except ValueError:
                continue
            if abs(number) <= sys.float_info.max:  # also false for nan
                return number
        if get_origin(kind) is Literal and part in map(str, get_args(kind)):
            return next(choice for choice in get_args(kind) if str(choice) == part)
    raise UsageError(f'"{part}" is no value for {key}: it takes {_wanted(kinds)}.', "Correct it and try again.")


def _wanted(kinds: Sequence[Any]) -> str:
    choices = [str(choice) for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    names = {int: "a whole number", float: "a number", bool: "true or false"}
    return " or ".join([*(names[kind] for kind in kinds if kind in names), *([", ".join(choices)] if choices else [])])


def _kinds(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Union or type(annotation).__name__ == "UnionType":
        for part in get_args(annotation):
            yield from _kinds(part)
    elif annotation is not type(None):
        yield annotation


def _is_single(annotation: Any) -> bool:
    kinds = list(_kinds(annotation))
    return bool(kinds) and all(kind in (bool, int, float) or get_origin(kind) is Literal for kind in kinds)
