"""Read and write a run's card, `card.json`."""

from __future__ import annotations

from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.card import CARD_VERSION, RunCard
from burnish_engine.runs.versioned import read_versioned


def write_card(paths: RunPaths, card: RunCard) -> None:
    """Replace `card.json`.

    Raises:
        NoSpaceError: The file cannot be written.
    """
    write_atomic(paths.card, card.model_dump_json(indent=1) + "\n")


def read_card(paths: RunPaths) -> RunCard | None:
    """Read the run's card; None where the run has not begun to train.

    Raises:
        UsageError: The card is damaged, cannot be read, or is of another version.
    """
    what = f"The card of the run {paths.root.name} (card.json)"
    remedy = "Copy the file back if you have it; the run itself does not need it."
    try:
        return read_versioned(paths.card, RunCard, CARD_VERSION, what=what, remedy=remedy)
    except FileNotFoundError:
        return None
