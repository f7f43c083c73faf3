"""What a run trains on, apart from the engine: the opened model, its tokenizer, the rows and their passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe import Recipe
from burnish_engine.data.pack import DATA_ORDER
from burnish_engine.data.prepare import Prepared, prepare
from burnish_engine.data.template_library import TEMPLATES
from burnish_engine.data.tokenize import Document
from burnish_engine.models.source import ModelSource, open_model
from burnish_engine.models.tokenizer import load_tokenizer
from burnish_engine.runs.held_out import MOST_ROWS, save_held_out
from burnish_engine.runs.recorder import Recorder
from burnish_engine.runs.store import with_own_template
from burnish_engine.train.stream import BatchStream, Budget


@dataclass(frozen=True)
class Materials:
    """What a run trains on.

    Attributes:
        source: The model's files.
        tokenizer: Its tokenizer.
        data: The rows, tokenized.
        stream: The passes that they are packed into.
        budget: How many steps and passes that makes.
        held_out: The rows that evaluations use.
    """

    source: ModelSource
    tokenizer: Any
    data: Prepared
    stream: BatchStream
    budget: Budget
    held_out: Sequence[Document]


def gather(paths: RunPaths, recipe: Recipe, recorder: Recorder, *, fresh: bool, order: int = DATA_ORDER) -> Materials:
    """Open the model and read the data.

    Args:
        paths: The run folder.
        recipe: The run's.
        recorder: Told of phases, and of what the data has to say.
        fresh: The run begins: its held-out rows are kept with it, for what comes after training.
        order: version of the data order that the run began with.

    Raises:
        BurnishError: The model or the data cannot be used.
    """
    recorder.phase("loading", recipe.model.path)
    source = open_model(recipe.model.path)
    tokenizer = load_tokenizer(source)
    recorder.phase("preparing")
    data = prepare(with_own_template(paths, recipe), tokenizer, order=order)
    for message in data.facts.warnings:
        recorder.warn("data", message)
    if fresh:
        documents = [document.input_ids.tolist() for document in data.validation[:MOST_ROWS]]
        save_held_out(paths, documents, data.validation_conversations)
        if recipe.data.template not in ("auto", *TEMPLATES):
            write_atomic(paths.template, data.template.source)
    stream = BatchStream(data.train, recipe.train, order=order)
    held_out = data.validation[: recipe.evaluation.max_rows or None]
    return Materials(source, tokenizer, data, stream, stream.budget(), held_out)
