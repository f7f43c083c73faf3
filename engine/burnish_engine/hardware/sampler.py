"""Samples the machine: GPUs through NVML, processor, memory. Loads no torch, never fails; a hanging driver blocks it.

Whoever samples gives it a thread of its own. Almost all of its time passes inside the driver, without Python's lock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib import import_module
from typing import Any, Protocol

import psutil

from burnish_engine.contract.facts.hardware import (
    GpuHolders,
    GpuSample,
    HardwareSample,
    HardwareStart,
    MemoryHolder,
    MemoryUsers,
)
from burnish_engine.contract.facts.machine import GpuFacts, MachineFacts
from burnish_engine.hardware.gpu.gpu_sampler import GpuSampler
from burnish_engine.hardware.gpu.nvml import Driver
from burnish_engine.hardware.host.host_memory import host_memory
from burnish_engine.hardware.host.system import process_name
from burnish_engine.hardware.probe import probe

_LONGEST_S = 5.0  # a longer interval is one in which the machine slept
_NOTABLE_BYTES = 256 * 2**20  # holders are told again when one of them changed by so much


class OwnUse(Protocol):
    """Tells which use of the hardware is Burnish's own."""

    def pids(self) -> Collection[int]:
        """Return the ids of the processes whose system memory is counted."""
        ...

    def owns(self, pid: int) -> bool:
        """Whether a process that holds GPU memory is Burnish's."""
        ...

    def held_bytes(self, gpu: GpuFacts, /) -> int | None:
        """Return the bytes of a GPU that Burnish holds, where the driver's list of processes does not tell it."""
        ...

    def spilled_bytes(self, gpu: GpuFacts, /) -> int | None:
        """Return the bytes of ours that the driver moved from a full GPU to system memory; None where not known."""
        ...


class OwnProcess:
    """The own use of a program of one process: this one, as far as the driver lists processes."""

    def pids(self) -> Collection[int]:
        """Return the id of this process."""
        return (os.getpid(),)

    def owns(self, pid: int) -> bool:
        """Whether it is this process."""
        return pid == os.getpid()

    def held_bytes(self, gpu: GpuFacts, /) -> int | None:
        """Return None: only the driver's list is asked."""

    def spilled_bytes(self, gpu: GpuFacts, /) -> int | None:
        """Return None: it is not known."""


class HardwareSampler:
    """Samples the machine, or some of its GPUs.

    Args:
        only: index of the only GPUs to sample, as in the machine's facts; None: all that are visible.
        own: source of what is Burnish's own.
        machine: facts of the machine; probed when not given, which may take seconds.
        nvml: pynvml module, or an object with its functions; by default pynvml.
        clock: function that returns monotonic seconds.
        now: function that returns the wall-clock time, seconds since the epoch.
        name_of: function from a process id to its name.
    """

    def __init__(
        self,
        only: Collection[int] | None = None,
        *,
        own: OwnUse | None = None,
        machine: MachineFacts | None = None,
        nvml: Any = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        name_of: Callable[[int], str] = process_name,
    ) -> None:
        self._own, self._clock, self._name_of = own or OwnProcess(), clock, name_of
        machine = machine or probe()
        gpus = [gpu for gpu in machine.gpus if only is None or gpu.index in only]
        self._problem = machine.gpu_problem or ""
        self._driver = self._open(nvml) if gpus else None
        self._gpus = [GpuSampler(self._driver, gpu) for gpu in gpus] if self._driver else []
        self._names: dict[int, str] = {}
        self._told: dict[int, list[MemoryHolder]] = {}
        self._processes: dict[int, psutil.Process] = {}
        self._at = clock()
        # A wall clock that is set meanwhile must not disorder the samples.
        self._offset = now() - self._at
        psutil.cpu_percent(None)

    def start(self) -> HardwareStart:
        """Describe what is sampled."""
        return HardwareStart(
            t=round(self._at + self._offset, 3),
            pid=os.getpid(),
            gpus=[gpu.describe() for gpu in self._gpus],
            ram_total_bytes=host_memory()[0],
            problem=self._problem,
        )

    def sample(self) -> list[HardwareSample | MemoryUsers]:
        """Sample once: what the hardware did since the last call, before it the holders of memory if they changed."""
        at = self._clock()
        seconds, self._at = at - self._at, at
        total, free = host_memory()
        pids = self._own.pids()
        gpus, holders = [], []
        for gpu in self._gpus:
            held = self._own.held_bytes(gpu.facts)
            found = gpu.holders(self._name, self._own.owns, held)
            holders.append(GpuHolders(index=gpu.facts.index, holders=found))
            gpus.append(self._complete(gpu, gpu.sample(seconds), held, found, total - free))
        sample = HardwareSample(
            t=round(at + self._offset, 3),
            seconds=round(min(seconds, _LONGEST_S), 3),
            cpu=round(psutil.cpu_percent(None) / 100, 3),
            ram_used_bytes=total - free,
            process_bytes=self._resident(pids),
            gpus=gpus,
        )
        return [*self._changed(sample.t, holders), sample]

    def close(self) -> None:
        """Let go of the driver, so that an idle laptop card may switch itself off."""
        if self._driver is not None:
            self._driver.ask("nvmlShutdown")
            self._driver, self._gpus = None, []

    def _open(self, nvml: Any) -> Driver | None:
        try:
            driver = Driver(nvml or import_module("pynvml"))
            driver.nvml.nvmlInit()
        except Exception as error:  # noqa: BLE001  whatever the library throws: then there are no GPUs to sample
            self._problem = f"NVML: {error}"
            return None
        return driver

    def _complete(
        self, gpu: GpuSampler, sample: GpuSample, held: int | None, found: list[MemoryHolder], ram_used: int
    ) -> GpuSample:
        """Add to a sample what of the memory is ours."""
        if held is None:
            ours = [holder.bytes for holder in found if holder.ours]
            told = all(holder.bytes is not None for holder in found)  # Windows tells processes without bytes
            held = sum(count or 0 for count in ours) if told else None
        changes: dict[str, int | None] = {"ours_bytes": held, "spilled_bytes": self._own.spilled_bytes(gpu.facts)}
        if gpu.facts.unified_memory:
            changes["used_bytes"] = ram_used
        return sample.model_copy(update=changes)

    def _changed(self, t: float, gpus: list[GpuHolders]) -> list[HardwareSample | MemoryUsers]:
        if not any(_differ(self._told.get(entry.index), entry.holders) for entry in gpus):
            return []
        self._told = {entry.index: entry.holders for entry in gpus}
        return [MemoryUsers(t=t, gpus=gpus)]

    def _name(self, pid: int) -> str:
        if pid not in self._names:
            self._names[pid] = self._name_of(pid)
        return self._names[pid]

    def _resident(self, pids: Collection[int]) -> int | None:
        """Sum the resident memory of processes; None where none of them can be read."""
        found = []
        self._processes = {pid: known for pid, known in self._processes.items() if pid in pids}
        for pid in pids:
            with suppress(psutil.Error):
                if pid not in self._processes:
                    self._processes[pid] = psutil.Process(pid)
                found.append(int(self._processes[pid].memory_info().rss))
        return sum(found) if found else None


def _differ(before: list[MemoryHolder] | None, after: list[MemoryHolder]) -> bool:
    """Whether holders came, went, or hold notably more or less."""
    if before is None:
        return bool(after)
    known = {holder.pid: holder for holder in before}
    if known.keys() != {holder.pid for holder in after}:
        return True
    return any(abs((holder.bytes or 0) - (known[holder.pid].bytes or 0)) >= _NOTABLE_BYTES for holder in after)
