"""Regular expressions in an adapter's config: searched with a limit, and replaced by names before PEFT searches them.

PEFT searches them with Python's `re`, which knows no limit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.recipe.checks.patterns import NamePattern, SlowPatternError
from burnish_engine.contract.recipe.recipe_train import ALL_LINEAR

_MOST = 20_000  # patterns of a config; PEFT writes one for each module at most
_PLAIN = re.compile(r"[\w.\-]*")
"""A name without signs of regular expressions. A dot matches itself, and hardly anything else in names of modules."""
_NAMES_ONLY = ("modules_to_save", "layers_pattern")
_LISTED = ("target_modules", "exclude_modules")


def is_named(folder: Path, key: str, pattern: str, name: str, *, end: bool = False) -> bool:
    """Return whether a pattern of an adapter's config matches a whole name.

    Args:
        folder: folder of the adapter, for errors.
        key: key of the config that holds the pattern, for errors.
        pattern: regular expression.
        name: path of a module.
        end: whether it is enough that the pattern matches the last parts of the path, as in PEFT's `get_pattern_key`.

    Raises:
        SetupError: The pattern is no regular expression, or a search takes too long.
    """
    try:
        return _pattern(rf"(?:.*\.)?(?:{pattern})" if end else pattern).matches(name)
    except ValueError as error:
        raise _odd(folder, key, pattern, f"which {error}") from error
    except SlowPatternError as error:
        raise _odd(folder, key, pattern, "which takes too long to search a module's name") from error


def refuse_many(folder: Path, key: str, patterns: Collection[str]) -> None:
    """Refuse a config with more patterns than a model has modules.

    Raises:
        SetupError: There are too many.
    """
    if len(patterns) > _MOST:
        raise SetupError(
            f"The adapter in {folder} has {len(patterns):,} entries in {key}; at most {_MOST:,} are read.",
            "Name modules by fewer patterns.",
        )


def plain_names(folder: Path, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the keys of a LoRA config that hold regular expressions, with the names that they match instead.

    Args:
        folder: folder of the adapter, for errors.
        config: content of adapter_config.json.
        names: paths of all modules and parameters of the model, and of those in the adapter's file.

    Raises:
        SetupError: A pattern is no regular expression, takes too long, or stands where only names are read.
    """
    found: dict[str, Any] = {}
    for key in _NAMES_ONLY:
        value = config.get(key) or ()
        for one in [value] if isinstance(value, str) else value:
            if not _PLAIN.fullmatch(str(one)):
                raise _odd(folder, key, str(one), "which is no name of a module")
    for key in _LISTED:
        value = config.get(key)
        if isinstance(value, str) and value != ALL_LINEAR and not _PLAIN.fullmatch(value):
            found[key] = [name for name in names if is_named(folder, key, value, name)]
    for key in ("rank_pattern", "alpha_pattern"):
        patterns = config.get(key) or {}
        refuse_many(folder, key, patterns)
        if all(map(_PLAIN.fullmatch, patterns)):
            continue
        own: dict[str, Any] = {}
        for name in names:
            first = next((one for one in patterns if is_named(folder, key, one, name, end=True)), None)
            if first is not None:
                own[re.escape(name)] = patterns[first]
        found[key] = own
    return found


@lru_cache(maxsize=_MOST)
def _pattern(pattern: str) -> NamePattern:
    return NamePattern(pattern)


def _odd(folder: Path, key: str, pattern: str, why: str) -> SetupError:
    shown = pattern if len(pattern) <= 100 else f"{pattern[:100]}..."
    return SetupError(f"The adapter in {folder} has the {key} {shown!r}, {why}.", "Correct its adapter_config.json.")
