"""Words for a run at a place elsewhere: how GPUs share it there, and the machines of the place with their prices."""

from __future__ import annotations

from burnish_app.look.language import tr
from burnish_app.wording.machine_text import place_text
from burnish_app.wording.numbers import duration_text, plural
from burnish_engine.contract.facts.advice import PlaceOffers, PlannedOffer, RunPlan, SharedSteps
from burnish_engine.contract.units import memory_size, short_time

_MOST_SHOWN = 5


def planned_place(where: str, offers: PlaceOffers | None) -> str:
    """Return what to call the machine that is planned for; empty: this one.

    Args:
        where: place as the recipe names it; empty: this machine.
        offers: machines of a cluster or a service, of which the best is planned for; None: it has not said them.
    """
    place = place_text(where) if where else ""
    return f"{place}, {offers.best.name}" if offers is not None else place


def plan_there_text(plan: RunPlan, usd_per_hour: float | None = None) -> str:
    """Return how GPUs share a run on a machine elsewhere, and its price; the plan's own card has memory and time.

    Args:
        plan: plan of the run on that machine.
        usd_per_hour: price of the machine; None: nothing is asked, it is not known, or it stands elsewhere.
    """
    if not plan.fits:
        return ""
    lines = _shared_lines(plan, plan.shared) if plan.shared is not None else []
    price = [] if usd_per_hour is None else [_price(usd_per_hour, plan.total_seconds)]
    return "\n".join([*lines, *price])


def _shared_lines(plan: RunPlan, shared: SharedSteps) -> list[str]:
    text = (
        tr("Each of {gpus} processes takes {memory}, with at most {passes} in a step.")
        if shared.exchange_ms is None
        else tr("Takes {memory} of each of {gpus} GPUs, with at most {passes} each in a step.")
    )
    memory, passes = memory_size(plan.memory_bytes), plural(shared.passes, "pass", "passes")
    lines = [text.format(memory=memory, gpus=shared.gpus, passes=passes)]
    if shared.exchange_ms is not None:
        exchange, step = short_time(shared.exchange_ms / 1000), short_time(shared.step_ms / 1000)
        sent = (
            tr("The exchange takes {exchange} of {step} a step, while the GPUs compute.")
            if shared.while_computing
            else tr("The exchange takes {exchange} of {step} a step.")
        )
        lines.append(sent.format(exchange=exchange, step=step))
    if shared.idle:
        lines.append(tr("{idle} of them would have nothing to do.").format(idle=shared.idle))
    return lines


def offers_text(found: PlaceOffers) -> str:
    """Return a line for each machine of a place: the one that would be taken first, then those that fit.

    Args:
        found: machines of the place, with plans.
    """
    others = sorted(
        (one for one in found.offers if one is not found.best), key=lambda one: (not one.plan.fits, one.usd or 0.0)
    )
    shown = [found.best, *others][:_MOST_SHOWN]
    lines = [_offer_line(one) for one in shown]
    left = len(found.offers) - len(shown)
    return "\n".join([*lines, *([tr("and {count} more").format(count=left)] if left else [])])


def _offer_line(one: PlannedOffer) -> str:
    if not one.plan.fits:
        return tr("{name}: does not fit").format(name=one.name)
    seconds = one.plan.total_seconds
    gpus = (
        tr("{used} of {gpus} GPUs").format(used=one.used_gpus, gpus=one.gpus) if one.used_gpus and one.gpus > 1 else ""
    )
    time = duration_text(seconds) if seconds is not None else ""
    price = _price(one.usd_per_hour, seconds) if one.usd_per_hour is not None else ""
    return f"{one.name}: {', '.join(filter(None, (gpus, time, price))) or tr('fits')}"


def _price(usd_per_hour: float, seconds: float | None) -> str:
    if seconds is None:
        return tr("{price} USD an hour").format(price=f"{usd_per_hour:.2f}")
    return tr("{price} USD at {hourly} an hour").format(
        price=f"{usd_per_hour * seconds / 3600:.2f}", hourly=f"{usd_per_hour:.2f}"
    )
