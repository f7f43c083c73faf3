"""Looks at a dataset before there is a recipe: rows at their full length."""

from __future__ import annotations

from collections.abc import Sequence

from burnish_engine.contract.facts import DatasetFacts
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_data import DataSection
from burnish_engine.contract.recipe_train import TrainSection
from burnish_engine.data.collect import Progress
from burnish_engine.data.prepare import look
from burnish_engine.models.source import open_model
from burnish_engine.models.tokenizer import load_tokenizer

_UNCUT = 1_048_576  # the schema's largest row


def survey(
    files: Sequence[str], validation_files: Sequence[str], model: str, *, progress: Progress | None = None
) -> DatasetFacts:
    """What is in a dataset, with no row cut. Of a large one, the counts are estimated from samples.

    Args:
        files: Training files.
        validation_files: Held-out files.
        model: The model whose tokenizer and chat template count, as a recipe names it. It has to be on this machine.
        progress: Told how far it got.

    Raises:
        UsageError: There is no such model.
        SetupError: The model folder is unusable.
        DataError: A file cannot be read or understood, or no row can be used.
    """
    recipe = Recipe(
        data=DataSection(files=list(files), validation_files=list(validation_files), max_length=_UNCUT),
        train=TrainSection(micro_batch_tokens=_UNCUT),
    )
    return look(recipe, load_tokenizer(open_model(model)), progress=progress).facts
