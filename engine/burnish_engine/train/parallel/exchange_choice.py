"""Choose how a run's ranks exchange gradients: as the recipe says, or by measuring an exchange as the run starts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from burnish_engine.contract.facts.machine import ExchangeFacts
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.run.events import ExchangeMeasured
from burnish_engine.contract.units import memory_size
from burnish_engine.hardware.gpu.interconnect import PASS_S, exchange_ms, is_slow_exchange, rounds_gradients
from burnish_engine.hardware.gpu.kept_links import keep_exchange
from burnish_engine.hardware.probe import probe
from burnish_engine.models.device.device import MEMORY_ERRORS, is_out_of_memory
from burnish_engine.train.parallel.ranks import Ranks

SLICES = 4
"""Slices where the recipe asks for them."""
_SLOW = 1.5  # times the expected time from which on an exchange is worth a word
_TIMED = 10  # exchanges that are timed


@dataclass(frozen=True)
class ExchangeChoice:
    """Form in which gradients are exchanged.

    Attributes:
        slices: most slices, exchanged while the backward pass continues; 1: all after it.
        rounded: whether they travel in bf16.
        notes: sentences for the user.
        measured: what one exchange took beside what was expected; None where it was not measured.
    """

    slices: int = 1
    rounded: bool = False
    notes: tuple[str, ...] = ()
    measured: ExchangeMeasured | None = None


def choose_exchange(
    ranks: Ranks, gradient: torch.Tensor, devices: DevicesSection, passes: float, precision: str
) -> ExchangeChoice:
    """Measure an exchange of gradients, keep what GPUs took for later predictions, and choose what suits it.

    Args:
        ranks: other ranks.
        gradient: buffer of the size that is exchanged.
        devices: the recipe's section.
        passes: passes of each rank in a step.
        precision: precision of the run; gradients in fp16 are scaled, and the scale changes, so they are not rounded.
    """
    asked, on_gpus = devices.exchange, gradient.device.type != "cpu"
    measured, expected_ms = _measured_s(ranks, gradient), None
    is_slow, notes = False, tuple[str, ...]()
    if measured is not None and on_gpus:
        machine = probe()
        gpus = devices.first_gpus(min(ranks.size, len(machine.gpus)))
        is_slow = is_slow_exchange(machine, gpus, measured, PASS_S * passes)
        if len(gpus) == ranks.size:  # on this machine; of a network nothing is known
            expected_ms = exchange_ms(machine, gpus, gradient.nbytes)
            keep_exchange(machine, ExchangeFacts(gpus=sorted(gpus), bytes=gradient.nbytes, ms=1000 * measured))
            of_links = exchange_ms(machine.model_copy(update={"exchanges": []}), gpus, gradient.nbytes)
            notes = _slow_note(gradient, measured, of_links)
    slices = SLICES if asked == "sliced" else 1  # not of its own accord: a captured pass was never cut on GPUs
    rounds = rounds_gradients(devices, precision, is_slow=is_slow)
    if rounds and asked == "auto" and measured:
        notes += (
            f"Gradients are rounded to bf16 for their exchange, which took {1000 * measured:.0f} ms in fp32; what that "
            'leaves out is added in the next step. devices.exchange = "whole" exchanges them in fp32.',
        )
    event = measured and ExchangeMeasured(
        gpus=ranks.size,
        form="exact" if devices.exact else "bf16" if rounds else "sliced" if slices > 1 else "whole",
        gradient_bytes=gradient.nbytes,
        measured_ms=1000 * measured,
        expected_ms=expected_ms,
    )
    return ExchangeChoice(slices, rounds, notes, event or None)


def _measured_s(ranks: Ranks, gradient: torch.Tensor) -> float | None:
    """Measure one exchange, seconds; None where memory does not suffice: that is not worth a smaller plan."""
    try:
        return ranks.time_exchange(gradient.nbytes, gradient.device, _TIMED)
    except MEMORY_ERRORS as error:
        if not is_out_of_memory(error):
            raise
        return None


def _slow_note(gradient: torch.Tensor, measured_s: float, expected_ms: float) -> tuple[str, ...]:
    """Say where an exchange takes much longer than these links should need."""
    measured = 1000 * measured_s
    if measured <= max(_SLOW * expected_ms, 1.0):
        return ()
    return (
        f"One exchange of gradients ({memory_size(gradient.nbytes)}) takes {measured:.1f} ms; these links should need "
        f"{expected_ms:.1f} ms. `burnish doctor --bandwidth` measures them.",
    )
