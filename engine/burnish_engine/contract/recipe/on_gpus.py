"""Says which GPUs train a recipe, here and on another machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.place import HERE
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


def refuse_missing_gpu(wanted: int, names: Mapping[int, str]) -> None:
    """Check that a GPU that a recipe names is there.

    Args:
        wanted: index of the GPU.
        names: index of each GPU that is there, to its name.

    Raises:
        UsageError: The GPU is not there.
    """
    if wanted in names:
        return
    there = f"this machine has {gpus_text(names)}"
    if not names:
        raise UsageError(f"The recipe names GPU {wanted}; {there}.", 'Set devices.kind to "auto" or "cpu".')
    nearest = min(names, key=lambda index: abs(index - wanted))
    raise UsageError(
        f"The recipe names GPU {wanted}; {there}.",
        f"Set devices.gpus to {'[0]' if len(names) == 1 else f'one of them, such as [{nearest}]'}.",
    )


def gpus_text(names: Mapping[int, str]) -> str:
    """List GPUs as "GPUs 0 and 1 (NVIDIA GeForce RTX 4090)".

    Args:
        names: index of each GPU, to its name.
    """
    alike: dict[str, list[str]] = {}
    for index, name in sorted(names.items()):
        alike.setdefault(name, []).append(str(index))
    parts = [
        f"GPU {found[0]} ({name})" if len(found) == 1 else f"GPUs {', '.join(found[:-1])} and {found[-1]} ({name})"
        for name, found in alike.items()
    ]
    return ", ".join(parts) or "no GPU that Burnish can use"


def recipe_there(recipe: Recipe, gpus: int = 0) -> Recipe:
    """Return a recipe that names another machine as that machine trains it: a run of its own.

    A host that ssh reaches has GPUs with numbers that a recipe may choose from. A cluster or a service gives a job GPUs
    of its own, numbered from 0.

    Args:
        recipe: recipe of the run.
        gpus: number of GPUs that share the steps; 0: as the recipe says.

    Raises:
        UsageError: The recipe's devices section does not allow so many.
    """
    kind = recipe.devices.place.kind
    if gpus:
        recipe = with_gpus(recipe, recipe.devices.first_gpus(gpus))
    chosen = recipe.devices.gpus
    if kind not in ("here", "ssh"):
        chosen = list(range(len(chosen)))
    changes = {"where": HERE, "timeout_hours": 0.0, "gpus": chosen}
    return recipe.model_copy(update={"devices": recipe.devices.model_copy(update=changes)})
