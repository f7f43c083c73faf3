"""Fold samples of the hardware into an immutable history, and read them from a growing file. Qt-free, torch-free.

The same fold serves the strip of the window (live), the charts of a run (recorded), and the energy that it took.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Self

from typing_extensions import override

from burnish_engine.contract.facts.hardware import (
    GpuSample,
    HardwareLine,
    HardwareSample,
    HardwareStart,
    MemoryHolder,
    MemoryUsers,
    SampledGpu,
    ThrottleReason,
    parse_hardware_line,
)
from burnish_engine.contract.run.columns import GrowingColumn, numbers
from burnish_engine.contract.run.growing_file import FoldedFile

_WORKING = 0.3  # load from which a card has its connection at full speed


@dataclass(frozen=True)
class GpuHistory:
    """The samples of one GPU. All columns have one number per sample; NaN where the driver did not tell it.

    A column has the name of the `GpuSample` field that it holds.

    Attributes:
        facts: properties of the GPU that do not change meanwhile.
        t: end of each interval, seconds since the epoch, rising.
        seconds: length of each interval.
        throttled: share of each interval in which clocks were held down for another reason than idleness.
        last: newest sample; None before the first.
        holders: processes that hold its memory now, largest first.
        pcie_under_load: newest (generation, lanes) of the connection to the host while the GPU worked, since idle cards
            slow theirs down; None before that.
        energy_j: energy taken, joules: power times time over all samples.
        throttle_s: seconds for each reason of lower clocks, over all samples.
    """

    facts: SampledGpu
    t: GrowingColumn[float] = field(default_factory=numbers)
    seconds: GrowingColumn[float] = field(default_factory=numbers)
    used_bytes: GrowingColumn[float] = field(default_factory=numbers)
    ours_bytes: GrowingColumn[float] = field(default_factory=numbers)
    spilled_bytes: GrowingColumn[float] = field(default_factory=numbers)
    load: GrowingColumn[float] = field(default_factory=numbers)
    temperature_c: GrowingColumn[float] = field(default_factory=numbers)
    power_w: GrowingColumn[float] = field(default_factory=numbers)
    clock_mhz: GrowingColumn[float] = field(default_factory=numbers)
    memory_clock_mhz: GrowingColumn[float] = field(default_factory=numbers)
    fan: GrowingColumn[float] = field(default_factory=numbers)
    to_gpu_gb_s: GrowingColumn[float] = field(default_factory=numbers)
    from_gpu_gb_s: GrowingColumn[float] = field(default_factory=numbers)
    throttled: GrowingColumn[float] = field(default_factory=numbers)
    last: GpuSample | None = None
    holders: tuple[MemoryHolder, ...] = ()
    pcie_under_load: tuple[int, int] | None = None
    energy_j: float = 0.0
    throttle_s: Mapping[ThrottleReason, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.t)

    def add(self, t: float, seconds: float, sample: GpuSample) -> Self:
        """Return the history with one more sample.

        Args:
            t: end of the interval, seconds since the epoch.
            seconds: length of the interval.
            sample: values of the GPU.
        """
        held = sum(share for reason, share in sample.throttle.items() if reason != "idle")
        throttle_s = self.throttle_s
        if sample.throttle:
            more = {reason: throttle_s.get(reason, 0.0) + share * seconds for reason, share in sample.throttle.items()}
            throttle_s = {**throttle_s, **more}
        pcie = self.pcie_under_load
        if (sample.load or 0.0) >= _WORKING and sample.pcie_generation and sample.pcie_width:
            pcie = sample.pcie_generation, sample.pcie_width
        columns = {name: getattr(self, name).append(_number(getattr(sample, name))) for name in _COLUMNS}
        return replace(
            self,
            **columns,
            t=self.t.append(t),
            seconds=self.seconds.append(seconds),
            throttled=self.throttled.append(min(held, 1.0)),
            last=sample,
            pcie_under_load=pcie,
            energy_j=self.energy_j + (sample.power_w or 0.0) * seconds,
            throttle_s=throttle_s,
        )


_COLUMNS = tuple(column.name for column in fields(GpuHistory) if column.name in GpuSample.model_fields)
"""Columns that hold a field of the samples as it is."""


@dataclass(frozen=True)
class HardwareHistory:
    """The samples of a machine, or of a run, so far. Immutable; adding a sample costs the same however long it is.

    Attributes:
        start: what the newest process samples; None before the first line.
        gpus: history of each GPU, by its index.
        t: end of each interval, seconds since the epoch, rising.
        seconds: length of each interval.
        cpu: load of all processor cores, 0 to 1.
        ram_used_bytes: system memory in use.
        process_bytes: system memory of the run's process, or of all of Burnish's.
        last: newest sample; None before the first.
    """

    start: HardwareStart | None = None
    gpus: Mapping[int, GpuHistory] = field(default_factory=dict)
    t: GrowingColumn[float] = field(default_factory=numbers)
    seconds: GrowingColumn[float] = field(default_factory=numbers)
    cpu: GrowingColumn[float] = field(default_factory=numbers)
    ram_used_bytes: GrowingColumn[float] = field(default_factory=numbers)
    process_bytes: GrowingColumn[float] = field(default_factory=numbers)
    last: HardwareSample | None = None

    def __len__(self) -> int:
        return len(self.t)

    @property
    def energy_j(self) -> float | None:
        """Energy that the GPUs took, joules; None where no card tells its power."""
        known = [gpu.energy_j for gpu in self.gpus.values() if gpu.energy_j]
        return sum(known) if known else None


def fold_line(history: HardwareHistory, line: HardwareLine) -> HardwareHistory:
    """Return the history after one more line."""
    match line:
        case HardwareStart():
            gpus = {gpu.index: replace(_of(history, gpu.index), facts=gpu) for gpu in line.gpus}
            return replace(history, start=line, gpus={**history.gpus, **gpus})
        case HardwareSample():
            return _sample(history, line)
        case MemoryUsers():
            held = {
                entry.index: replace(_of(history, entry.index), holders=tuple(entry.holders)) for entry in line.gpus
            }
            return replace(history, gpus={**history.gpus, **held})


def newest(history: HardwareHistory, seconds: float) -> HardwareHistory:
    """Return the history with the columns of the last seconds only, so that a live one stays small. Sums stay whole.

    Args:
        history: any history.
        seconds: length of what stays, counted from the newest sample.
    """
    if history.t.last is None:
        return history
    after = history.t.last - seconds
    gpus = {index: _gpu_after(gpu, after) for index, gpu in history.gpus.items()}
    names = ("t", "seconds", "cpu", "ram_used_bytes", "process_bytes")
    first = history.t.count_up_to(after)
    return replace(history, gpus=gpus, **{name: getattr(history, name).without_first(first) for name in names})


class HardwareReader(FoldedFile[HardwareHistory]):
    """Reads a growing `hardware.jsonl`. Its writer replaces it when it merges old samples."""

    @override
    def _empty(self) -> HardwareHistory:
        return HardwareHistory()

    @override
    def _add(self, state: HardwareHistory, line: bytes) -> HardwareHistory:
        return fold_line(state, parse_hardware_line(line))


def read_history(path: Path) -> HardwareHistory:
    """Read a whole recording; empty where there is none."""
    reader = HardwareReader(path)
    while reader.read():
        pass
    return reader.state


def _of(history: HardwareHistory, index: int) -> GpuHistory:
    known = history.gpus.get(index)
    return GpuHistory(SampledGpu(index=index)) if known is None else known


def _sample(history: HardwareHistory, sample: HardwareSample) -> HardwareHistory:
    t = max(sample.t, history.t.last or 0.0)  # a clock that was set back must not disorder the columns
    gpus = {gpu.index: _of(history, gpu.index).add(t, sample.seconds, gpu) for gpu in sample.gpus}
    return replace(
        history,
        gpus={**history.gpus, **gpus},
        t=history.t.append(t),
        seconds=history.seconds.append(sample.seconds),
        cpu=history.cpu.append(_number(sample.cpu)),
        ram_used_bytes=history.ram_used_bytes.append(_number(sample.ram_used_bytes)),
        process_bytes=history.process_bytes.append(_number(sample.process_bytes)),
        last=sample,
    )


def _gpu_after(gpu: GpuHistory, after: float) -> GpuHistory:
    first = gpu.t.count_up_to(after)
    names = ("t", "seconds", "throttled", *_COLUMNS)
    return replace(gpu, **{name: getattr(gpu, name).without_first(first) for name in names})


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
