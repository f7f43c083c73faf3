"""A run's card on disk."""

from __future__ import annotations

import json

from pydantic import ValidationError

from burnish_engine.contract.card import CARD_VERSION, RunCard
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import read_with_retry, write_atomic
from burnish_engine.contract.paths import RunPaths


def write_card(paths: RunPaths, card: RunCard) -> None:
    """Replace `card.json`.

    Raises:
        NoSpaceError: It cannot be written.
    """
    write_atomic(paths.card, card.model_dump_json(indent=1) + "\n")


def read_card(paths: RunPaths) -> RunCard | None:
    """The run's card; None where it has none: it has not begun to train, or is older than cards are.

    Raises:
        UsageError: The card is damaged, cannot be read, or is of another version.
    """
    try:
        raw = json.loads(read_with_retry(paths.card))
        version = raw.get("v") if isinstance(raw, dict) else None
        if version != CARD_VERSION:
            raise UsageError(
                f"The card of the run {paths.root.name} has version {version!r}; this Burnish reads {CARD_VERSION}.",
                "Open it with the Burnish that made it.",
            )
        return RunCard.model_validate(raw)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # pydantic's and JSON's errors are ValueErrors
        found = f"{error.error_count()} values are wrong" if isinstance(error, ValidationError) else str(error)
        raise UsageError(
            f"The card of the run {paths.root.name} (card.json) cannot be used: {found.splitlines()[0]}.",
            "Copy the file back if you have it; the run itself does not need it.",
        ) from None
