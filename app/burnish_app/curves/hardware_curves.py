"""The curves of a run's hardware, from the samples that it recorded each second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from burnish_app.curves.curve import NO_CURVE, Curve, Numbers
from burnish_app.curves.run_axis import RunAxis
from burnish_engine.contract.run.columns import GrowingColumn
from burnish_engine.contract.run.hardware_log import GpuHistory, HardwareHistory

_GIB = 2**30


@dataclass(frozen=True)
class HardwareCurves:
    """The curves of the GPU that a run trains on, over its optimizer steps. What the driver does not tell is empty.

    Attributes:
        ours: memory that the run holds, GiB; all that is in use where the driver does not tell whose it is.
        others: memory that other programs hold, GiB.
        spilled: what the driver moved to system memory because the card is full, GiB.
        temperature: temperature, degrees Celsius.
        power: power, watts.
        clock: clock of the multiprocessors, MHz.
        load: share of the time in which a kernel ran, percent.
        gpu: index of the GPU where several were recorded; None: there is one.
    """

    ours: Curve = NO_CURVE
    others: Curve = NO_CURVE
    spilled: Curve = NO_CURVE
    temperature: Curve = NO_CURVE
    power: Curve = NO_CURVE
    clock: Curve = NO_CURVE
    load: Curve = NO_CURVE
    gpu: int | None = None

    def sampled(self) -> dict[str, Curve]:
        """Return the curves that have a chart of their own, by name."""
        return {"temperature": self.temperature, "power": self.power, "clock": self.clock, "load": self.load}


def hardware_curves(history: HardwareHistory, axis: RunAxis) -> HardwareCurves:
    """Make the curves of the GPU that a run holds most memory of.

    Args:
        history: recording of the run so far.
        axis: horizontal axis of the run; samples from before its first and after its last step are left out.
    """
    gpus = [gpu for gpu in history.gpus.values() if len(gpu)]
    if not gpus or len(axis.steps) < 2:
        return HardwareCurves()
    gpu = max(gpus, key=_held_bytes)
    t = _numbers(gpu.t)
    within = (t >= axis.clock[0]) & (t <= axis.clock[-1])
    steps = axis.steps_at(t[within])

    def curve(values: Numbers) -> Curve:
        kept = values[within]
        return Curve(steps, kept) if np.isfinite(kept).any() else NO_CURVE

    used, ours, spilled = (_numbers(column) / _GIB for column in (gpu.used_bytes, gpu.ours_bytes, gpu.spilled_bytes))
    told = bool(np.isfinite(ours).any())
    return HardwareCurves(
        ours=curve(ours if told else used),
        others=curve(np.maximum(used - ours, 0.0)) if told else NO_CURVE,
        spilled=curve(spilled) if np.nansum(spilled) > 0 else NO_CURVE,
        temperature=curve(_numbers(gpu.temperature_c)),
        power=curve(_numbers(gpu.power_w)),
        clock=curve(_numbers(gpu.clock_mhz)),
        load=curve(100 * _numbers(gpu.load)),
        gpu=gpu.facts.index if len(gpus) > 1 else None,
    )


def _held_bytes(gpu: GpuHistory) -> float:
    held = _numbers(gpu.ours_bytes)
    held = held if np.isfinite(held).any() else _numbers(gpu.used_bytes)
    return float(np.nanmax(held)) if np.isfinite(held).any() else 0.0


def _numbers(column: GrowingColumn[float]) -> Numbers:
    return np.asarray(column.values(), dtype=np.float64)
