"""Plans a run on machines elsewhere: does it fit, how long does it take, what does it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from burnish_engine.advise.plan.plan_recipe import plan_recipe
from burnish_engine.contract.errors import DoesNotFitError, SetupError
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.remote.backends.backend import Offer

UNKNOWN_TIMEOUT_S = 24 * 3600
_SPARE, _SPARE_S = 2.0, 1800.0


@dataclass(frozen=True)
class PlanThere:
    """The plan of a run on one machine elsewhere.

    Attributes:
        offer: the machine.
        plan: what the run takes on one of its GPUs.
        seconds: predicted time of the run on the GPUs that are used; None where the data was not read.
    """

    offer: Offer
    plan: RunPlan
    seconds: float | None

    @property
    def usd(self) -> float | None:
        """Predicted price; None where nothing is asked, or the time is not known."""
        if self.offer.usd_per_hour is None or self.seconds is None:
            return None
        return self.offer.usd_per_hour * self.seconds / 3600

    def timeout_s(self, asked_hours: float) -> int:
        """Return the longest time there, seconds: as asked, or with room for what was predicted too low."""
        if asked_hours:
            wanted = max(1, round(asked_hours * 3600))
        else:
            wanted = UNKNOWN_TIMEOUT_S if self.seconds is None else round(_SPARE * self.seconds + _SPARE_S)
        return min(wanted, self.offer.longest_s or wanted)


def plan_there(
    recipe: Recipe, offers: Sequence[Offer], *, gpus: int = 0, dataset: DatasetFacts | None = None
) -> list[PlanThere]:
    """Plan a run on each machine that has enough GPUs.

    Args:
        recipe: recipe of the run.
        offers: machines that can be had.
        gpus: number of GPUs to share the steps; 0: as the recipe says.
        dataset: facts on the data; None where it was not read.

    Raises:
        SetupError: No machine has so many GPUs.
    """
    used = gpus or (len(recipe.devices.gpus) if recipe.devices.shares else 1)
    able = [offer for offer in offers if offer.gpus >= used or (used == 1 and not offer.gpus)]
    if not able:
        most = max((offer.gpus for offer in offers), default=0)
        raise SetupError(f"{used} GPUs are wanted, and no machine there has more than {most}.", "Ask for fewer.")
    devices = recipe.devices.model_copy(update={"gpus": [0], "strategy": "single"})
    one = recipe.model_copy(update={"devices": devices})
    shares = min(used, recipe.train.accumulation)
    found = []
    for offer in able:
        plan = plan_recipe(one, dataset=dataset, machine=offer.machine)
        found.append(PlanThere(offer, plan, plan.total_seconds / shares if plan.total_seconds else None))
    return found


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
