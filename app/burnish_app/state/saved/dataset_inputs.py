"""The inputs of facts about data: choices of the recipe, and the files as they were on disk. Without Qt."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from burnish_engine.contract.recipe.recipe import Recipe


class DatasetInputs(NamedTuple):
    """The inputs of a dataset inspection.

    Attributes:
        recipe: model and data sections of the recipe.
        stamps: size (bytes) and modification time (ns) of each file.
    """

    recipe: tuple[object, ...]
    stamps: tuple[tuple[int, int], ...]


def dataset_choices(recipe: Recipe) -> tuple[object, ...]:
    """Return the choices that the facts about the data depend on."""
    return recipe.model, recipe.data, recipe.preference


def dataset_inputs(recipe: Recipe, unopened: Container[str] = ()) -> DatasetInputs:
    """Return the inputs that a dataset inspection would have now.

    Args:
        recipe: the recipe.
        unopened: paths that cannot be opened, which are not looked at: their drive may not answer.
    """
    names = [*recipe.data.files, *recipe.data.validation_files, recipe.data.template]
    stamps = tuple((0, 0) if name in unopened else _stamp(name) for name in names)
    return DatasetInputs(dataset_choices(recipe), stamps)


def _stamp(name: str) -> tuple[int, int]:
    """Return the size (bytes) and modification time (ns) of a file or folder; zeros if it does not exist."""
    try:
        status = Path(name).stat()
    except (OSError, ValueError):
        return 0, 0
    return status.st_size, status.st_mtime_ns
