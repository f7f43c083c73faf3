"""The models of a run, each with the chat template that the run's recipe chooses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe import Recipe
from burnish_engine.data.template_library import template_source
from burnish_engine.models.source import ModelSource, open_model, open_trained
from burnish_engine.runs.store import trained_of


def with_template(source: ModelSource, chosen: str) -> ModelSource:
    """The model with the template that a recipe chooses in place of its own.

    Args:
        source: The model.
        chosen: The recipe's data.template: "auto" keeps the model's own.

    Raises:
        DataError: The chosen template is no known name, and no file that can be read.
    """
    return source if chosen == "auto" else replace(source, chat_template=template_source(chosen))


def base_model(recipe: Recipe) -> ModelSource:
    """The model that a run starts from. It too speaks by the run's template, so that the two can be compared.

    Raises:
        UsageError: It is not there.
        SetupError: Its folder is damaged.
        DataError: The recipe's template is not there.
    """
    return with_template(open_model(recipe.model.path), recipe.data.template)


def trained_model(paths: RunPaths, recipe: Recipe) -> tuple[ModelSource, Path | None]:
    """What a run trained: the base and an adapter's folder, or a whole model and None.

    Raises:
        UsageError: The run has trained nothing yet, or its base is not there.
        SetupError: A folder is damaged.
        DataError: The recipe's template is not there.
    """
    trained = trained_of(paths)
    if trained != paths.model:
        return base_model(recipe), trained
    return with_template(open_trained(trained, recipe.model.path), recipe.data.template), None


def base_of_whole(recipe: Recipe) -> tuple[ModelSource | None, str]:
    """The model that a run started from which trained every weight, and which it can do without.

    Returns:
        The model; or None and why it cannot be had, in a sentence.
    """
    try:
        return base_model(recipe), ""
    except BurnishError as error:
        return None, f"The model before training cannot be opened, so what was gained is not known. {error.what}"
