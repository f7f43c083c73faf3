"""Counts what ranks of adapters take, finds the largest that fits, and writes a plan's sentences on them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from burnish_engine.advise.facts.planned_run import PlannedRun
from burnish_engine.advise.facts.shape import BYTES_OF, adapter_parameters
from burnish_engine.advise.facts.trained_bytes import flat_optimizer_bytes
from burnish_engine.contract.facts.advice import FittingRank
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.contract.units import memory_size
from burnish_engine.models.families.adapter_targets import expert_rank


def expert_notes(run: PlannedRun) -> list[str]:
    """Tell a person which rank the experts' adapters have, why, what they take, and where `expert_rank` is not used."""
    adapter, slots = run.recipe.adapter, run.spec.experts_per_token
    rough = []
    if run.spec.num_experts and not run.engine.fast:
        rough = ["A mixture of experts: the prediction is rougher than for dense models."]
    if adapter.method == "full":
        return rough
    unused = ", so adapter.expert_rank does not apply" if adapter.expert_rank else ""
    if not run.spec.num_experts:
        return [f"The model has no experts{unused}."] if unused else []
    if not _of_experts(run, 1):
        return [*rough, f"The adapter leaves the experts as they are{unused}."]
    rank = expert_rank(adapter, slots)
    text = f"Each expert's adapter has rank {rank}; with gradients and optimizer they take "
    text += memory_size(expert_bytes(run, rank))
    if rank < adapter.rank and not adapter.expert_rank:
        text += (
            f". That is adapter.rank shared out over the {slots} experts of a token, so that a token passes as many "
            f"trained weights as in a dense model; rank {adapter.rank} on all experts would take "
            f"{memory_size(expert_bytes(run, adapter.rank))} (adapter.expert_rank)"
        )
    return [*rough, f"{text}."]


def expert_bytes(run: PlannedRun, rank: int) -> int:
    """Count what the experts' adapters take on the device: fp32, gradients, optimizer and the fast engine's copies.

    Args:
        run: the run.
        rank: rank of each expert's adapter.
    """
    return _state_bytes(run, rank) + _of_experts(run, rank) * (8 + _copy_width(run))


def adapter_copy_bytes(run: PlannedRun) -> int:
    """Count the fast engine's copies of all adapters in the compute dtype, which lie among the base weights."""
    adapter = run.recipe.adapter
    return 0 if adapter.method == "full" else adapter_parameters(run.spec, adapter) * _copy_width(run)


def adapter_bytes(run: PlannedRun) -> int:
    """Count what the adapter takes on the device, counted as `expert_bytes`; 0 where every weight is trained."""
    recipe = run.recipe
    if recipe.adapter.method == "full":
        return 0
    state = flat_optimizer_bytes(
        run.spec, recipe.adapter, recipe.train.optimizer, cuda=run.device.cuda, masked=recipe.masking.is_active
    )
    return state.device + adapter_parameters(run.spec, recipe.adapter) * (8 + _copy_width(run))


def rank_of_experts(run: PlannedRun) -> int:
    """Return the rank of each expert's adapter; 0 where experts have none."""
    return expert_rank(run.recipe.adapter, run.spec.experts_per_token) if _of_experts(run, 1) else 0


def adapter_text(run: PlannedRun) -> str:
    """Say what an adapter takes on the device and of which rank it is, as a clause."""
    of_experts = rank_of_experts(run)
    each = f" and rank {of_experts} for each expert" if of_experts else ""
    size = memory_size(adapter_bytes(run))
    return f"the adapter of rank {run.recipe.adapter.rank}{each} takes {size} with its gradients and optimizer"


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
    if of_experts and (rank := _largest_rank(of_experts, lambda rank: fits(_with_ranks(adapter, expert_rank=rank)))):
        return FittingRank(key="adapter.expert_rank", rank=rank)
    if rank := _largest_rank(adapter.rank, lambda rank: fits(_with_ranks(adapter, rank=rank, expert_rank=0))):
        return FittingRank(key="adapter.rank", rank=rank, clears_expert_rank=bool(adapter.expert_rank))
    return None


def lower_rank_text(found: FittingRank | None) -> str:
    """Name a setting and the rank that fits, as what completes "lower"; empty for None."""
    if found is None:
        return ""
    cleared = ", with adapter.expert_rank = 0" if found.clears_expert_rank else ""
    return f"{found.key}: {found.rank} fits{cleared}"


def _copy_width(run: PlannedRun) -> int:
    """The bytes of a number in the fast engine's copies of adapters; 0 on the plain engine, which has none."""
    return BYTES_OF[run.device.precision] if run.engine.fast else 0


def _of_experts(run: PlannedRun, rank: int) -> int:
    """The number of weights in the experts' adapters at a rank."""
    adapter = run.recipe.adapter.model_copy(update={"expert_rank": rank})
    return adapter_parameters(run.spec, adapter, form="stacked")


def _state_bytes(run: PlannedRun, rank: int) -> int:
    """The share of the experts' adapters in the optimizer's state, bytes."""
    recipe = run.recipe
    adapter = recipe.adapter.model_copy(update={"expert_rank": rank})
    state = flat_optimizer_bytes(
        run.spec, adapter, recipe.train.optimizer, cuda=run.device.cuda, masked=recipe.masking.is_active
    )
    return state.device * _of_experts(run, rank) // adapter_parameters(run.spec, adapter)


def _largest_rank(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest rank below a limit that fits; 0: none does."""
    return limit - 1 - bisect_left(range(limit - 1), True, key=lambda lower: fits(limit - 1 - lower))


def _with_ranks(adapter: AdapterSection, **ranks: int) -> AdapterSection:
    return adapter.model_copy(update=ranks)
