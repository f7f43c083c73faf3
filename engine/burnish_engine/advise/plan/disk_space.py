"""The disk space that a run takes: what training writes, and what its exports need afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from burnish_engine.advise.facts.gguf_size import predicted_file_bytes
from burnish_engine.advise.facts.shape import parameters
from burnish_engine.advise.facts.trained_bytes import optimizer_bytes, trained_parameters
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.units import file_size

_CHECKPOINT_COPIES_ASIDE = 1  # a checkpoint is written whole before an old one is deleted


def training_disk(recipe: Recipe, spec: DecoderSpec) -> int:
    """The disk space for checkpoints and trained weights, bytes."""
    trained = trained_parameters(spec, recipe.adapter)
    state = optimizer_bytes(spec, recipe.adapter, recipe.train.optimizer, cuda=False).total
    copies = recipe.train.keep_checkpoints + _CHECKPOINT_COPIES_ASIDE
    return copies * (trained * 4 + state) + trained * 4


def export_disk_bytes(recipe: Recipe, spec: DecoderSpec) -> int:
    """The disk space for the recipe's files and the 16-bit ones that they are made from, bytes; 0 without files."""
    files = 0
    for quant in recipe.export.quants:
        try:
            files += predicted_file_bytes(spec, quant) or parameters(spec) * 2
        except UsageError:
            files += parameters(spec) * 2
    return files + parameters(spec) * 2 * 2 if files else 0


def export_space_note(quants: Sequence[str], needed: int, free: int) -> str:
    """Say that the exports after a run will not fit on the disk as it is now; empty where they will.

    Args:
        quants: types of the recipe's files.
        needed: disk space of the exports, bytes.
        free: disk space that training leaves free, bytes.
    """
    if needed <= free:
        return ""
    return (
        f"The export ({', '.join(quants)}) will need about {file_size(needed)} of disk after training, which leaves "
        f"{file_size(max(free, 0))} free. Free some space until then, export fewer types, or none "
        "(export.quants = [])."
    )
