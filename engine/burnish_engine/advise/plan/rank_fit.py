"""Finds the largest rank of an adapter that a run has room for, by planning with lower ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from burnish_engine.contract.facts.advice import FittingRank
from burnish_engine.contract.recipe.recipe_train import AdapterSection


def fitting_rank(
    adapter: AdapterSection, of_experts: int, fits: Callable[[AdapterSection], bool]
) -> FittingRank | None:
    """Return the largest lower rank that fits; None where none does, or where the recipe does not choose the rank.

    Where experts have adapters, their rank is lowered, and that of all others stays. If that is not enough, it is
    `adapter.rank`, of which experts then get their share.

    Args:
        adapter: adapter section of the recipe, which does not fit.
        of_experts: rank of each expert's adapter; 0: they have none.
        fits: function that says whether a run with another adapter section fits.
    """
    if adapter.method == "full" or adapter.start:
        return None
    if of_experts and (rank := _largest(of_experts, lambda rank: fits(_with(adapter, expert_rank=rank)))):
        return FittingRank(key="adapter.expert_rank", rank=rank)
    if rank := _largest(adapter.rank, lambda rank: fits(_with(adapter, rank=rank, expert_rank=0))):
        return FittingRank(key="adapter.rank", rank=rank, clears_expert_rank=bool(adapter.expert_rank))
    return None


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest rank below a limit that fits; 0: none does."""
    return limit - 1 - bisect_left(range(limit - 1), True, key=lambda lower: fits(limit - 1 - lower))


def _with(adapter: AdapterSection, **ranks: int) -> AdapterSection:
    return adapter.model_copy(update=ranks)
