"""A recipe that takes less memory and trains the same tokens in a step."""

from __future__ import annotations

from burnish_engine.contract.recipe.memory_plan import MemorySection
from burnish_engine.contract.recipe.recipe import Recipe

_LEAST_TOKENS = 128


def smaller_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe with passes of half the tokens, and twice as many of them to a step.

    Rows that are longer than such a pass are cut at its length. A pinned memory plan is released, because it was made
    for the larger passes.

    Args:
        recipe: recipe that ran out of memory.
    """
    tokens = max(recipe.train.micro_batch_tokens // 2, min(_LEAST_TOKENS, recipe.train.micro_batch_tokens))
    share = recipe.train.micro_batch_tokens / tokens
    row_tokens = tokens // 2 if recipe.preference.learns_pairs else tokens
    train = recipe.train.model_copy(
        update={"micro_batch_tokens": tokens, "accumulation": max(round(recipe.train.accumulation * share), 1)}
    )
    data = recipe.data.model_copy(update={"max_length": min(recipe.data.max_length, row_tokens)})
    memory = MemorySection(budget_gib=recipe.memory.budget_gib)
    return recipe.model_copy(update={"train": train, "data": data, "memory": memory})
