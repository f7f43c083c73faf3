"""Text about samples of the hardware: figures, reasons of lower clocks, alarms, energy and its price."""

from __future__ import annotations

import math
from collections.abc import Mapping

from burnish_app.look.language import tr
from burnish_app.state.hardware_alarms import Alarm
from burnish_app.wording.numbers import percent
from burnish_engine.contract.facts.hardware import MemoryHolder, ThrottleReason
from burnish_engine.contract.run.fold import EvaluationHistory
from burnish_engine.contract.run.hardware_log import GpuHistory
from burnish_engine.contract.units import KWH_J, memory_of, memory_size

_NOTABLE = 0.02  # share of the time from which a reason is worth a word


def load_text(load: float | None) -> str:
    """Return a load such as "98 %"."""
    return "–" if load is None or math.isnan(load) else f"{load * 100:.0f} %"


def celsius_text(celsius: float | None) -> str:
    """Return a temperature such as "67 °C"."""
    return "–" if celsius is None or math.isnan(celsius) else f"{celsius:.0f} °C"


def watts_text(watts: float | None) -> str:
    """Return a power such as "318 W"."""
    return "–" if watts is None or math.isnan(watts) else f"{watts:.0f} W"


def used_of_text(used: float | None, total: int) -> str:
    """Return used and total memory in one unit, such as "10.3 / 24.0 GiB"."""
    if not total or used is None or math.isnan(used):
        return memory_size(total) if total else "–"
    return memory_of(used, total)


def memory_split_text(gpu: GpuHistory) -> str:
    """Return what of a GPU's memory is Burnish's and what other programs hold."""
    last = gpu.last
    if last is None or last.used_bytes is None:
        return ""
    if last.ours_bytes is None:
        return tr("{used} in use").format(used=memory_size(last.used_bytes))
    free = max(0, gpu.facts.memory_total_bytes - last.used_bytes)
    return tr("{ours} Burnish, {others} other programs, {free} free").format(
        ours=memory_size(last.ours_bytes), others=memory_size(last.others_bytes or 0), free=memory_size(free)
    )


def reason_text(reason: ThrottleReason) -> str:
    """Return why clocks are below their best, as half a sentence."""
    return {
        "idle": tr("it has nothing to do"),
        "set_clocks": tr("clocks were set by hand (application clocks)"),
        "power_limit": tr("it is at its power limit, which is normal under full load"),
        "hardware_slowdown": tr("the board slows it down for heat or power"),
        "sync_boost": tr("it follows the other cards of its group"),
        "heat": tr("it is too warm: better air lets it run faster"),
        "hardware_heat": tr("the chip is too hot: look after the cooling"),
        "power_brake": tr("the power supply asks for less"),
        "display_clocks": tr("a display setting limits them"),
    }[reason]


def clocks_text(gpu: GpuHistory) -> str:
    """Return why a GPU's clocks are below their best now, as a sentence; empty where nothing is known."""
    last = gpu.last
    if last is None or last.clock_mhz is None:
        return ""
    reasons = [reason_text(reason) for reason, share in last.throttle.items() if share > 0]
    if reasons:
        return tr("Clocks are below their best because {reasons}.").format(reasons=tr(", and because ").join(reasons))
    return tr("Nothing holds the clocks down now.")


def throttled_text(seconds: Mapping[ThrottleReason, float], total_s: float) -> str:
    """Return for how much of a time clocks were held down and why, as a sentence; empty where they were not.

    Args:
        seconds: seconds for each reason.
        total_s: length of the whole time, seconds.
    """
    held = {reason: time / total_s for reason, time in seconds.items() if reason != "idle"} if total_s > 0 else {}
    told = [
        tr("{share} of the time because {reason}").format(share=percent(min(share, 1.0)), reason=reason_text(reason))
        for reason, share in sorted(held.items(), key=lambda item: -item[1])
        if share >= _NOTABLE
    ]
    return tr("Clocks were held down {reasons}.").format(reasons=", ".join(told)) if told else ""


def pcie_now_text(gpu: GpuHistory) -> str:
    """Return the connection to the host under load, and the traffic on it now."""
    facts, last = gpu.facts, gpu.last
    best = facts.best_pcie_generation, facts.best_pcie_width
    parts = []
    if gpu.pcie_under_load:
        parts.append(tr("PCIe {generation}.0 x{width} under load").format(
            generation=gpu.pcie_under_load[0], width=gpu.pcie_under_load[1]
        ))  # fmt: skip
        if None not in best and gpu.pcie_under_load != best:
            parts.append(tr("card and slot could do {generation}.0 x{width}").format(
                generation=best[0], width=best[1]
            ))  # fmt: skip
    elif last is not None and last.pcie_generation and last.pcie_width:
        parts.append(tr("PCIe {generation}.0 x{width}, idle").format(
            generation=last.pcie_generation, width=last.pcie_width
        ))  # fmt: skip
    if last is not None and last.to_gpu_gb_s is not None and last.from_gpu_gb_s is not None:
        parts.append(tr("{to:.1f} GB/s to the card, {back:.1f} GB/s back").format(
            to=last.to_gpu_gb_s, back=last.from_gpu_gb_s
        ))  # fmt: skip
    return ", ".join(parts)


def holder_text(holder: MemoryHolder) -> str:
    """Return the name of a process that holds memory, with its id."""
    name = holder.name or tr("unnamed process")
    return tr("{name} (Burnish, {pid})").format(name=name, pid=holder.pid) if holder.ours else f"{name} ({holder.pid})"


def alarm_text(alarm: Alarm) -> tuple[str, str]:
    """Return (what happened, what to do about it) of an alarm."""
    amount = memory_size(alarm.bytes)
    if alarm.kind == "spill":
        return (
            tr("The card is full: {amount} of the run were moved to system memory.").format(amount=amount),
            tr("Steps are several times slower. With less memory the run is at full speed, with the same numbers."),
        )
    culprit = tr("Other programs") if not alarm.culprit else alarm.culprit
    return (
        tr("{culprit} filled the card: {amount} are not the run's.").format(culprit=culprit, amount=amount),
        tr("Free some of it, or let the run continue with less memory: a little slower, with the same numbers."),
    )


def price_text(joules: float, price_per_kwh: float) -> str:
    """Return the price of an energy, in whatever currency the price per kWh is; empty where that is not set.

    Args:
        joules: energy, J.
        price_per_kwh: price of a kilowatt hour; 0: not set.
    """
    if price_per_kwh <= 0:
        return ""
    price = joules / KWH_J * price_per_kwh
    return f"{price:,.2f}" if price >= 0.095 else f"{price:.4f}"


def energy_per_point(joules: float, evaluations: EvaluationHistory) -> float | None:
    """Compute the energy for each point (1 nat) by which the held-out loss fell, joules; None where it did not fall.

    Args:
        joules: energy of the run so far.
        evaluations: evaluations of the run, from before the first step on.
    """
    losses = [loss for loss in evaluations.loss.values() if math.isfinite(loss)]
    if len(losses) < 2 or min(losses) >= losses[0]:
        return None
    return joules / (losses[0] - min(losses))
