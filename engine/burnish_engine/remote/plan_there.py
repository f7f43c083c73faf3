"""Plans a run on machines elsewhere: does it fit, how long does it take, what does it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from burnish_engine.advise.plan.plan_recipe import plan_recipe
from burnish_engine.contract.errors import DoesNotFitError, SetupError, UsageError
from burnish_engine.contract.facts.advice import PlaceOffers, PlannedOffer, RunPlan
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.on_gpus import recipe_there
from burnish_engine.contract.recipe.recipe import DevicesSection, Recipe
from burnish_engine.hardware.gpu.topology import with_edges
from burnish_engine.remote.backends.backend import Offer

UNKNOWN_TIMEOUT_S = 24 * 3600
Planner = Callable[..., RunPlan]
_SPARE, _SPARE_S = 2.0, 1800.0


@dataclass(frozen=True)
class PlanThere:
    """The plan of a run on one machine elsewhere.

    Attributes:
        offer: the machine.
        plan: what the run takes on each of the GPUs that are used, and how these share its steps.
        used_gpus: number of its GPUs that train; 0: its processor does.
    """

    offer: Offer
    plan: RunPlan
    used_gpus: int = 0

    @property
    def seconds(self) -> float | None:
        """Predicted time of the run; None where the data was not read."""
        return self.plan.total_seconds

    def timeout_s(self, asked_hours: float) -> int:
        """Return the longest time there, seconds: as asked, or with room for what was predicted too low."""
        if asked_hours:
            wanted = max(1, round(asked_hours * 3600))
        else:
            wanted = UNKNOWN_TIMEOUT_S if self.seconds is None else round(_SPARE * self.seconds + _SPARE_S)
        return min(wanted, self.offer.longest_s or wanted)


def plan_there(
    recipe: Recipe,
    offers: Sequence[Offer],
    *,
    gpus: int = 0,
    dataset: DatasetFacts | None = None,
    planner: Planner = plan_recipe,
) -> list[PlanThere]:
    """Plan a run on each machine that has enough GPUs and can do what the recipe asks for.

    Args:
        recipe: recipe of the run.
        offers: machines that can be had.
        gpus: number of GPUs to share the steps; 0: as the recipe says.
        dataset: facts on the data; None where it was not read.
        planner: function that plans a recipe on a machine with these facts.

    Raises:
        SetupError: No machine has so many GPUs.
        UsageError: The recipe does not allow so many, or asks for what no machine there can do.
    """
    there = recipe_there(recipe, gpus)
    devices = there.devices
    able = [offer for offer in offers if _is_able(devices, offer)]
    if not able and devices.shares and not any(offer.gpus for offer in offers):
        able = list(offers)  # as many processes share the processor
    if not able:
        most = max((offer.gpus for offer in offers), default=0)
        used = max(devices.gpus) + 1
        raise SetupError(f"{used} GPUs are wanted, and no machine there has more than {most}.", "Ask for fewer.")
    found, refused = list[PlanThere](), list[UsageError]()
    for offer in able:
        used = 0 if devices.kind == "cpu" or not offer.gpus else len(devices.gpus)
        try:
            found.append(PlanThere(offer, planner(there, dataset=dataset, machine=offer.machine), used))
        except UsageError as error:  # this GPU cannot do what the recipe asks for; another may
            refused.append(error)
    if not found:
        raise refused[0]
    return found


def _is_able(devices: DevicesSection, offer: Offer) -> bool:
    """Whether a machine has the GPUs that are wanted; one GPU may be wanted where the processor trains instead."""
    if devices.kind == "cpu" or offer.gpus > max(devices.gpus):
        return True
    return not offer.gpus and devices.gpus == [0]


def place_offers(where: str, plans: Sequence[PlanThere], asked_hours: float = 0.0) -> PlaceOffers:
    """Describe what a place has to offer a run.

    Args:
        where: place as the recipe names it.
        plans: plans of the run on its machines.
        asked_hours: longest time that the recipe allows, hours; 0: by the predicted time.
    """
    chosen = choose(plans, anyway=True)
    offers = [
        PlannedOffer(
            name=one.offer.name,
            machine=with_edges(one.offer.machine),
            gpus=one.offer.gpus,
            used_gpus=one.used_gpus,
            usd_per_hour=one.offer.usd_per_hour,
            plan=one.plan,
        )
        for one in plans
    ]
    return PlaceOffers(where=where, offers=offers, chosen=plans.index(chosen), longest_s=chosen.timeout_s(asked_hours))


def choose(plans: Sequence[PlanThere], *, anyway: bool = False) -> PlanThere:
    """Choose the cheapest machine that the run fits on; where no price is asked, the fastest.

    Raises:
        DoesNotFitError: The run fits on none.
    """
    fitting = [one for one in plans if one.plan.fits]
    if not fitting and not anyway:
        best = max(plans, key=lambda one: one.plan.memory_free_bytes)
        raise DoesNotFitError(
            f"The run does not fit on {best.offer.name}. {' '.join(best.plan.problems)}",
            "Choose a smaller pass, 4 bits (model.quantize) or another machine; --anyway tries it all the same.",
        )
    return min(fitting or plans, key=_cost)


def _cost(one: PlanThere) -> tuple[float, float]:
    speed = one.plan.tokens_per_s or 1e-9
    hourly = one.offer.usd_per_hour
    work = one.seconds if one.seconds is not None else 1e6 / speed
    return (0.0 if hourly is None else hourly * work, work)
