"""Read what an export or a verification takes from a run: held-out rows, training rows, and training's own figures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from burnish_engine.contract.errors import BurnishError, UsageError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.data.prepare import PreparedDataset, prepare
from burnish_engine.export.verify.reference import ReferenceOptions
from burnish_engine.export.weights.nf4_merge import rounded_names
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.runs.events_file import read_run
from burnish_engine.runs.held_out import Chat, load_held_out, reported_loss
from burnish_engine.scoring.rows_file import load_task_rows


@dataclass(frozen=True)
class ExportRows:
    """Rows of a run."""

    held_out: list[list[int]]  # token ids of held-out rows
    chats: list[Chat]  # conversations of the held-out rows up to the last user turn
    supervised: list[list[bool]] = field(default_factory=list)
    """Whether, for each held-out row, the run's loss counts each token; empty where unknown: all count."""
    training: list[list[int]] = field(default_factory=list)
    """Token ids of training rows; empty where they are not available."""
    note: str = ""  # reason, in a sentence, why training rows are not available; else empty


def export_rows(paths: RunPaths, recipe: Recipe, source: ModelSource) -> ExportRows:
    """Read a run's rows: held-out ones from the run's folder, training ones from the data files.

    Args:
        paths: paths of the run.
        recipe: frozen recipe of the run.
        source: model whose tokenizer and template render the rows.

    Raises:
        UsageError: The run has no held-out rows.
    """
    ids, chats = load_held_out(paths)
    try:
        prepared = prepare(recipe, load_tokenizer(source))
    except BurnishError as error:
        return ExportRows(
            ids,
            chats,
            note=f"The training rows cannot be read again, so there is no importance matrix, and the loss counts every "
            f"held-out token. {error.what}",
        )
    rows = [document.input_ids.tolist() for document in prepared.train]
    return ExportRows(ids, chats, _flags(ids, prepared), rows)


def reference_options(
    paths: RunPaths,
    recipe: Recipe,
    source: ModelSource,
    rows: ExportRows,
    *,
    base: ModelSource | None = None,
    importance: bool = False,
) -> ReferenceOptions:
    """Make the options with which a run's model is measured.

    Args:
        paths: paths of the run.
        recipe: frozen recipe of the run.
        source: base model.
        rows: rows of the run.
        base: model before training, where all its weights were trained.
        importance: whether an importance matrix is computed from the training rows.
    """
    run, task_rows = read_run(paths.events), None
    with suppress(UsageError):  # a damaged file is no reason not to export
        task_rows = load_task_rows(paths)
    return ReferenceOptions(
        supervised=rows.supervised,
        base=base,
        training=rows.training if importance else (),
        tokens=recipe.export.importance_tokens,
        in_4_bits=kept_in_4_bits(paths, recipe, source),
        onto_rounded=recipe.export.merge_onto == "dequantized",
        reported=None if recipe.preference.is_active else reported_loss(paths),  # else it is not a loss of tokens
        forgetting=run.forgetting,
        task=run.task,
        task_rows=task_rows,
    )


def kept_in_4_bits(paths: RunPaths, recipe: Recipe, source: ModelSource) -> frozenset[str]:
    """Name the base tensors that a run kept in NF4, and stacks of experts; the plain engine leaves these as they are.

    Args:
        paths: paths of the run.
        recipe: frozen recipe of the run.
        source: base model.
    """
    if recipe.model.quantize != "nf4":
        return frozenset()
    fast = any(start.engine == "fast" for start in read_run(paths.events).starts)
    return rounded_names(source, experts=fast)


def _flags(held_out: Sequence[Sequence[int]], prepared: PreparedDataset) -> list[list[bool]]:
    """Find the supervised flags of each held-out row; empty unless every row is found again in the data."""
    known = {document.input_ids.tobytes(): document.supervised.tolist() for document in prepared.validation}
    found = [known.get(np.asarray(row, dtype=np.int32).tobytes()) for row in held_out]
    flags = [one for one in found if one is not None]
    return flags if len(flags) == len(held_out) else []
