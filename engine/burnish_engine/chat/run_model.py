"""Open the models of a run, each with the chat template that the run's recipe chooses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.data.templates.library import template_source
from burnish_engine.models.checkpoint.source import ModelSource, open_model, open_trained
from burnish_engine.runs.store import trained_of


def with_template(source: ModelSource, chosen: str) -> ModelSource:
    """Replace a model's template with the one that a recipe chooses.

    Args:
        source: model to change.
        chosen: value of the recipe's data.template; "auto" keeps the model's own.

    Raises:
        DataError: The template is no known name, and no file that can be read.
    """
    return source if chosen == "auto" else replace(source, chat_template=template_source(chosen))


def base_model(recipe: Recipe) -> ModelSource:
    """Open the model that a run starts from, with the run's template, so that base and result can be compared.

    Raises:
        UsageError: The model does not exist.
        SetupError: The model's folder is damaged.
        DataError: The recipe's template does not exist.
    """
    return with_template(open_model(recipe.model.path), recipe.data.template)


def trained_model(paths: RunPaths, recipe: Recipe) -> tuple[ModelSource, Path | None]:
    """Open what a run trained: the base and an adapter's folder, or a whole model and None.

    Raises:
        UsageError: The run has trained nothing yet, or its base does not exist.
        SetupError: A folder is damaged.
        DataError: The recipe's template does not exist.
    """
    trained = trained_of(paths)
    if trained != paths.model:
        return base_model(recipe), trained
    return with_template(open_trained(trained, recipe.model.path), recipe.data.template), None


def base_of_whole(recipe: Recipe) -> tuple[ModelSource | None, str]:
    """Open the model that a whole-model run started from; the run works without it.

    Returns:
        Model and an empty text; or None and the reason, in a sentence.
    """
    try:
        return base_model(recipe), ""
    except BurnishError as error:
        return None, f"The model before training cannot be opened, so what was gained is not known. {error.what}"
