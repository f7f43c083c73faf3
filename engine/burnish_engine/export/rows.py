"""The rows an export needs of a run: held-out ones to measure on, training ones for the importance matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe import Recipe
from burnish_engine.data.prepare import Prepared, prepare
from burnish_engine.models.source import ModelSource
from burnish_engine.models.tokenizer import load_tokenizer
from burnish_engine.runs.held_out import Chat, load_held_out


@dataclass(frozen=True)
class ExportRows:
    """Rows of a run.

    Attributes:
        held_out: Token ids of held-out rows.
        chats: Their conversations up to the last person's turn.
        learned: For each held-out row, which tokens the run's loss counts; empty where that is not known: all count.
        training: Token ids of training rows; empty where they cannot be had.
        note: Why they cannot, in a sentence; else empty.
    """

    held_out: list[list[int]]
    chats: list[Chat]
    learned: list[list[bool]] = field(default_factory=list)
    training: list[list[int]] = field(default_factory=list)
    note: str = ""


def export_rows(paths: RunPaths, recipe: Recipe, source: ModelSource, *, training: bool = True) -> ExportRows:
    """Read a run's rows. Held-out ones lie in the run's folder; training ones are read from the data files again.

    Args:
        paths: The run.
        recipe: Its frozen recipe.
        source: The model, whose tokenizer and template render the rows.
        training: Whether training rows, and which tokens of held-out rows are learned, are wanted.

    Raises:
        UsageError: The run has no held-out rows.
    """
    ids, chats = load_held_out(paths)
    if not training:
        return ExportRows(ids, chats)
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


def _flags(held_out: Sequence[Sequence[int]], prepared: Prepared) -> list[list[bool]]:
    """Learned flags of each held-out row; empty unless every row is found again."""
    known = {document.input_ids.tobytes(): document.learned.tolist() for document in prepared.validation}
    found = [known.get(np.asarray(row, dtype=np.int32).tobytes()) for row in held_out]
    flags = [one for one in found if one is not None]
    return flags if len(flags) == len(held_out) else []
