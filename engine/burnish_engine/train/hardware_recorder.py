"""Samples the hardware once a second, in a thread of its own, into the run's `hardware.jsonl`."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil
import torch

from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.paths import RunPaths
from burnish_engine.hardware.sampler import HardwareSampler
from burnish_engine.runs.hardware_file import HardwareFile
from burnish_engine.train.lifecycle.measure import Measure
from burnish_engine.train.lifecycle.progress import Tally
from burnish_engine.train.lifecycle.spill_watch import shared_bytes

EVERY_S = 1.0
_END_S = 2.0
_MISSED_IN_A_ROW = 10  # samples; a single one may fail, as while a model is being loaded again
_WINDOWS_EVERY = 5  # samples from one reading of Windows' counters to the next; each takes tens of milliseconds

_log = logging.getLogger(__name__)

MakeSampler = Callable[[Collection[int], "RunUse"], HardwareSampler]


class RunUse:
    """The use that a run makes of the hardware.

    Args:
        tally: tally of the run; its measurements tell the memory of this process as soon as there are any.
        gpu: index of this process's GPU. Further ones are held by processes that it started.
    """

    def __init__(self, tally: Tally, gpu: int = 0) -> None:
        self._tally, self._gpu = tally, gpu
        self._asked = 0
        self._held: int | None = None
        self._spilled: int | None = None

    def pids(self) -> Collection[int]:
        """Return the id of this process."""
        return (os.getpid(),)

    def owns(self, pid: int) -> bool:
        """Whether it is this process, or a rank that it started."""
        if pid == os.getpid():
            return True
        with suppress(psutil.Error):
            return psutil.Process(pid).ppid() == os.getpid()
        return False

    def held_bytes(self, gpu: GpuFacts) -> int | None:
        """Return the bytes that this process holds of its GPU; None of others, for which the driver's list is asked."""
        measure = self._tally.measure
        if measure is None or gpu.index != self._gpu:
            return None
        if not psutil.WINDOWS:
            return measure.held_bytes()
        if self._asked % _WINDOWS_EVERY == 0:
            self._held, self._spilled = measure.held_bytes(), _spilled(measure)
        self._asked += 1
        return self._held

    def spilled_bytes(self, gpu: GpuFacts) -> int | None:
        """Return the bytes of the run in system memory, as Windows counted them a moment ago."""
        return self._spilled if gpu.index == self._gpu else None


@contextmanager
def recorded_hardware(
    paths: RunPaths, devices: Sequence[torch.device], tally: Tally, make: MakeSampler | None = None
) -> Iterator[None]:
    """Record samples of the hardware inside the context. Whatever fails here is logged, and the run continues.

    Args:
        paths: run folder.
        devices: devices of the run, that of this process first; where there are none, nothing is recorded.
        tally: tally of the run.
        make: function that makes the sampler from the indices of the run's GPUs and its own use.
    """
    if not devices:
        yield
        return
    stop = threading.Event()
    gpus = [device.index or 0 for device in devices if device.type == "cuda"]
    own = RunUse(tally, *gpus[:1])
    making = make or (lambda only, own: HardwareSampler(only, own=own))
    thread = threading.Thread(
        target=_record, args=(paths, lambda: making(gpus, own), stop), name="hardware", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_END_S)  # a driver that hangs keeps it for good


def _record(paths: RunPaths, make: Callable[[], HardwareSampler], stop: threading.Event) -> None:
    try:
        _sample_until(stop, paths, make)
    except Exception as error:  # noqa: BLE001  nothing that a driver or a disk does may reach the run
        _log.warning("The hardware is not recorded from here on: %s: %s", type(error).__name__, error)


def _sample_until(stop: threading.Event, paths: RunPaths, make: Callable[[], HardwareSampler]) -> None:
    sampler = make()
    file = HardwareFile(paths.hardware)
    try:
        file.write(sampler.start())
        due, ended, missed = time.monotonic() + EVERY_S, False, 0
        while not ended:
            ended = stop.wait(max(0.0, due - time.monotonic()))
            try:
                for line in sampler.sample():
                    file.write(line)
                missed = 0
            except Exception as error:  # noqa: BLE001  the next second has another sample
                missed += 1
                if missed == _MISSED_IN_A_ROW:
                    _log.warning("The hardware cannot be sampled: %s: %s", type(error).__name__, error)
            due = max(due + EVERY_S, time.monotonic())
    finally:
        file.close()
        sampler.close()


def _spilled(measure: Measure) -> int | None:
    shared = shared_bytes()
    return None if shared is None else max(0, shared - measure.locked())
