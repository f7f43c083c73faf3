"""Rollback: after too many bad steps a run goes back to the last checkpoint before them, once, and on more slowly.

Later checkpoints are deleted, and the checkpoint is saved again with the decision. A run killed before that meets the
same trouble again and decides the same.
"""

from __future__ import annotations

from pathlib import Path

from burnish_engine.contract.errors import DivergedError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.card import CardRollback
from burnish_engine.train.guard.watch import Trouble
from burnish_engine.train.lifecycle import checkpoint as checkpoints

_LOWER_RATE = 0.5  # factor on the learning rates after a rollback


def choose_rollback(folder: Path, trouble: Trouble) -> tuple[Path | None, CardRollback]:
    """Find the last checkpoint before the trouble, and delete those after it.

    Args:
        folder: folder of the checkpoints.
        trouble: too many bad steps.

    Returns:
        The checkpoint to go back to (None: the start of the run), and the rollback as card and event say it.
    """
    good, _ = checkpoints.find_checkpoint(folder, before=trouble.first)
    to_step = checkpoints.read_position(good).step if good else 0
    checkpoints.discard_from(folder, to_step + 1)
    return good, CardRollback(step=trouble.step, to_step=to_step, factor=_LOWER_RATE, reason=trouble.reason)


def current_recipe(recipe: Recipe, rollback: CardRollback | None) -> Recipe:
    """Return the recipe with the current learning rate, which a rollback lowers."""
    section, factor = recipe.train, rollback.factor if rollback else 1.0
    lower = section.model_copy(update={"learning_rate": factor * section.learning_rate})
    return recipe.model_copy(update={"train": lower})


def diverged(trouble: Trouble, rollback: CardRollback | None, recipe: Recipe, precision: str) -> DivergedError:
    """Build the error that ends a run which has no rollback left.

    Args:
        trouble: too many bad steps.
        rollback: earlier rollback of the run; None where the recipe allows none.
        recipe: recipe of the run.
        precision: compute precision.
    """
    again, rate = "", current_recipe(recipe, rollback).train.learning_rate
    if rollback:
        lower = f"at {rollback.factor:g} times the learning rate"
        again = f" The run had gone back to step {rollback.to_step} before, {lower}."
    return DivergedError(
        f"{trouble.reason}{again}",
        f"Start a new run with a lower train.learning_rate (now {rate:g})"
        f"{'' if precision == 'fp32' else ', or in fp32'}; earlier checkpoints are kept.",
    )
