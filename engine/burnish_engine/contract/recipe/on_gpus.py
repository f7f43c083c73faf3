"""Lets GPUs share the steps of a recipe, in the way that its method of training allows."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import DevicesSection, Recipe


def with_gpus(recipe: Recipe, gpus: Sequence[int]) -> Recipe:
    """Return the recipe trained by these GPUs, which share each step where there are several.

    Args:
        recipe: recipe of the run. A whole model is shared out, an adapter's base is whole on each GPU.
        gpus: indices of the GPUs.

    Raises:
        UsageError: The recipe's devices section does not allow it.
    """
    strategy = "sharded" if recipe.adapter.method == "full" else "data_parallel"
    changes = {"gpus": list(gpus)} | ({"strategy": strategy} if len(gpus) > 1 else {})
    try:
        devices = DevicesSection.model_validate(recipe.devices.model_dump() | changes)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise UsageError(
            f"With --gpus {len(gpus)} the recipe's devices {reason}.", "Change the recipe, or --gpus."
        ) from None
    return recipe.model_copy(update={"devices": devices})
