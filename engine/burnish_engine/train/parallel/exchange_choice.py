"""Choose how a run's ranks exchange gradients: as the recipe says, or by measuring an exchange as the run starts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.units import memory_size, short_time
from burnish_engine.hardware.gpu.interconnect import (
    PASS_S,
    exchange_rate,
    is_slow_exchange,
    rounds_gradients,
)
from burnish_engine.hardware.probe import probe
from burnish_engine.models.device.device import MEMORY_ERRORS, is_out_of_memory
from burnish_engine.train.base.exchange import ExchangeTimes
from burnish_engine.train.parallel.ranks import Ranks

SLICES = 4
"""Slices where the recipe asks for them."""
_SLOW = 1.5  # times the expected time from which on an exchange is worth a word
_TIMED = 10  # exchanges that are timed


@dataclass(frozen=True)
class ExchangeChoice:
    """Form in which gradients are exchanged.

    Attributes:
        slices: most slices, exchanged while the backward pass goes on; 1: all after it.
        rounded: whether they travel in bf16.
        notes: sentences for the user.
        times: measured and expected time; None where it was not measured.
    """

    slices: int = 1
    rounded: bool = False
    notes: tuple[str, ...] = ()
    times: ExchangeTimes | None = None


def choose_exchange(
    ranks: Ranks, gradient: torch.Tensor, devices: DevicesSection, passes: float, precision: str
) -> ExchangeChoice:
    """Measure an exchange of gradients, and choose what suits it; a CPU is too slow for it to matter.

    Args:
        ranks: other ranks.
        gradient: buffer of the size that is exchanged.
        devices: the recipe's section.
        passes: passes of each rank in a step.
        precision: precision of the run; gradients in fp16 are scaled, and the scale changes, so they are not rounded.
    """
    asked = devices.exchange
    measured, expected = _measured_s(ranks, gradient), None
    is_slow, notes = False, tuple[str, ...]()
    if measured is not None and gradient.device.type != "cpu":
        machine = probe()
        gpus = devices.first_gpus(min(ranks.size, len(machine.gpus)))
        is_slow = is_slow_exchange(machine, gpus, measured, PASS_S * passes)
        if ranks.size > 1 and len(gpus) == ranks.size:
            expected = gradient.nbytes / (1e9 * exchange_rate(machine, gpus)[1])
        notes = _slow_note(gradient, measured, expected)
    slices = SLICES if asked == "sliced" else 1  # not of its own accord: a captured pass was never cut on GPUs
    rounds = rounds_gradients(devices, precision, is_slow=is_slow)
    if rounds and asked == "auto" and measured:
        notes += (
            f"Gradients are rounded to bf16 for their exchange, which took {1000 * measured:.0f} ms in fp32; what that "
            'leaves out is added in the next step. devices.exchange = "whole" exchanges them in fp32.',
        )
    times = None
    if measured is not None:
        times = ExchangeTimes(ranks.size, gradient.nbytes, measured, expected, rounds)
    return ExchangeChoice(slices, rounds, notes, times)


def _measured_s(ranks: Ranks, gradient: torch.Tensor) -> float | None:
    """Measure one exchange, seconds; None where memory does not suffice: that is not worth a smaller plan."""
    try:
        return ranks.time_exchange(gradient.nbytes, gradient.device, _TIMED)
    except MEMORY_ERRORS as error:
        if not is_out_of_memory(error):
            raise
        return None


def _slow_note(gradient: torch.Tensor, measured_s: float, expected_s: float | None) -> tuple[str, ...]:
    """Say where an exchange takes much longer than these links should need."""
    if expected_s is None or measured_s <= max(_SLOW * expected_s, 0.001):
        return ()
    took, expected = short_time(measured_s), short_time(expected_s)
    return (
        f"One exchange of gradients ({memory_size(gradient.nbytes)}) takes {took}; these links should need {expected}. "
        "`burnish doctor --bandwidth` measures them.",
    )
