"""The recipe as another machine trains it: with the GPUs that are asked for, by the numbers that they have there."""

from __future__ import annotations

from burnish_engine.contract.recipe.on_gpus import with_gpus
from burnish_engine.contract.recipe.place import HERE
from burnish_engine.contract.recipe.recipe import Recipe


def recipe_there(recipe: Recipe, gpus: int = 0) -> Recipe:
    """Return the recipe for the machine there, where it is a run of that machine's own.

    A host that ssh reaches has GPUs with numbers that a recipe may choose from. A cluster or a service gives a job GPUs
    of its own, numbered from 0.

    Args:
        recipe: recipe of the run.
        gpus: number of GPUs that share the steps; 0: as the recipe says.

    Raises:
        UsageError: The recipe's devices section does not allow so many.
    """
    devices = recipe.devices
    if gpus:
        recipe = with_gpus(recipe, devices.first_gpus(gpus))
    chosen = recipe.devices.gpus
    if devices.place.kind != "ssh":
        chosen = list(range(len(chosen)))
    changes = {"where": HERE, "timeout_hours": 0.0, "gpus": chosen}
    return recipe.model_copy(update={"devices": recipe.devices.model_copy(update=changes)})
