"""Profiles a dataset before there is a recipe, with its rows at full length."""

from __future__ import annotations

from collections.abc import Sequence

from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_preference import Objective, PreferenceSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.data.pipeline.collect import Progress
from burnish_engine.data.prepare import inspect_dataset
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

_UNCUT = 1_048_576  # tokens; the largest data.max_length that the recipe accepts


def profile_dataset(
    files: Sequence[str],
    validation_files: Sequence[str],
    model: str,
    *,
    objective: Objective = "sft",
    progress: Progress | None = None,
) -> DatasetFacts:
    """Measure a dataset for one model without cutting any row; the counts of a large one are estimated from a sample.

    Args:
        files: training files.
        validation_files: held-out files.
        model: model whose tokenizer and chat template apply, as a recipe names it. It must be on this machine.
        objective: what is learned of preferences; pairs are measured whole where both replies are learned from.
        progress: callback for progress.

    Raises:
        UsageError: There is no such model.
        SetupError: The model folder is unusable.
        DataError: A file cannot be read or understood, no row can be used, or the objective cannot learn from the rows.
    """
    preference = PreferenceSection(objective=objective)
    recipe = Recipe(
        data=DataSection(files=list(files), validation_files=list(validation_files), max_length=_UNCUT),
        train=TrainSection(micro_batch_tokens=_UNCUT * preference.sequences),
        preference=preference,
    )
    return inspect_dataset(recipe, load_tokenizer(open_model(model)), progress=progress).facts
