"""Put several runs beside each other: what their recipes, base models, data, machines and versions do differently."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.sweep import MAX_RUNS
from burnish_engine.contract.run.card import HashedFile, RunCard
from burnish_engine.contract.run.comparison import DifferenceGroup, DifferenceRow, RunsComparison
from burnish_engine.runs.card import read_card
from burnish_engine.runs.compare.compare import compared_run, comparison_notes, flat_recipe
from burnish_engine.runs.store import read_recipe

_SHOWN_HASH = 8  # characters


def side_by_side(runs: Sequence[RunPaths]) -> RunsComparison:
    """Compare runs, finished or not.

    Args:
        runs: one run or more.

    Raises:
        UsageError: There are too many, or the recipe or the state of one cannot be read.
    """
    if not 1 <= len(runs) <= MAX_RUNS:
        raise UsageError(f"{len(runs)} runs cannot be compared at once.", f"Choose 1 to {MAX_RUNS}.")
    recipes, outcomes = [read_recipe(paths) for paths in runs], [compared_run(paths) for paths in runs]
    cards = [_card(paths) for paths in runs]
    missing = [paths.root.name for paths, card in zip(runs, cards, strict=True) if card is None]
    notes = list(comparison_notes(recipes, outcomes))
    if missing:
        notes.append(f"What is not in a recipe is not known of {', '.join(missing)}: no card of it can be read.")
    return RunsComparison(
        folders=[str(paths.root) for paths in runs],
        outcomes=outcomes,
        rows=[row for row in (*_recipe_rows(recipes), *_card_rows(cards)) if _differs(row)],
        notes=notes,
    )


def _card(paths: RunPaths) -> RunCard | None:
    with suppress(UsageError):
        return read_card(paths)
    return None


def _differs(row: DifferenceRow) -> bool:
    """Whether known values differ; a run of which nothing is known makes no difference."""
    known = [value for value in row.values if value is not None]
    return any(value != known[0] for value in known)


def _recipe_rows(recipes: Sequence[Recipe]) -> Iterator[DifferenceRow]:
    flat = [flat_recipe(recipe) for recipe in recipes]
    for key in flat[0]:
        if key != "name":
            yield DifferenceRow(group="recipe", key=key, values=[values[key] for values in flat])


def _card_rows(cards: Sequence[RunCard | None]) -> Iterator[DifferenceRow]:
    facts = [_facts(card) if card is not None else {} for card in cards]
    for place in dict.fromkeys(place for found in facts for place in found):
        group, key = place
        yield DifferenceRow(group=group, key=key, values=[found.get(place) for found in facts])


def _facts(card: RunCard) -> dict[tuple[DifferenceGroup, str], Any]:
    """Return what a card says, by group and name."""
    files = {role: [file for file in card.data.files if file.role == role] for role in ("train", "held out")}
    found: dict[tuple[DifferenceGroup, str], Any] = {
        ("model", "base model"): _named([file for file in card.base.files if file.is_weights], card.base.name),
        ("data", "training files"): _named(files["train"]),
        ("data", "held-out files"): _named(files["held out"]) if files["held out"] else "",
        ("data", "tokenized data"): card.data.tokens_sha256[:_SHOWN_HASH],
        ("data", "training rows"): card.data.train_rows,
        ("data", "held-out rows"): card.data.held_out_rows,
        ("data", "training tokens"): card.data.tokens,
    }
    versions = card.circumstances.versions
    for name, value in card.now().items():
        if value is not None:
            found["versions" if name in versions else "machine", name] = value
    return found


def _named(files: Sequence[HashedFile], name: str = "") -> str:
    """Name files with the beginning of a hash over their contents, or of their sizes where a hash is not known."""
    parts = [file.sha256 or f"{file.bytes} bytes" for file in files]
    names = name or ", ".join(file.name for file in files)
    return f"{names} ({hashlib.sha256(' '.join(parts).encode()).hexdigest()[:_SHOWN_HASH]})" if parts else names
