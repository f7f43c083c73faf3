"""Stream samples of the hardware to a window, with what of it is Burnish's."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
from pydantic import ValidationError

from burnish_engine.channel.job import Job
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.facts.hardware import HardwareSample, parse_hardware_line
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.model_requests import HardwareRequest
from burnish_engine.hardware.host.system import in_container
from burnish_engine.hardware.sampler import HardwareSampler
from burnish_engine.runs.jobs import lease

_EVERY_S = 1.0
_PROCESSES_EVERY_S = 5.0
_FRESH_S = 5.0
_TAIL_BYTES = 16 * 1024
_MARKS = ("burnish_engine", "burnish_app", "burnish-studio")


def stream_hardware(_request: HardwareRequest, job: Job) -> Result:
    """Send a sample each second until the client cancels.

    Raises:
        StoppedError: The request was canceled.
    """
    with closing(HardwareSampler(own=StudioUse())) as sampler:
        job.hardware(sampler.start())
        due = time.monotonic() + _EVERY_S
        while True:
            job.wait(max(0.0, due - time.monotonic()))
            for line in sampler.sample():
                job.hardware(line)
            due = max(due + _EVERY_S, time.monotonic())


class StudioUse:
    """The use that the window, its engine, and all live runs make of the hardware.

    Args:
        clock: function that returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._listed_at = float("-inf")
        self._pids: frozenset[int] = frozenset()
        self._runs: list[Path] = []
        self._ours: dict[int, bool] = {}
        self._in_container = bool(in_container())

    def pids(self) -> Collection[int]:
        """Return the ids of the window, its engine with its workers, and the processes of live runs."""
        now = self._clock()
        if now - self._listed_at >= _PROCESSES_EVERY_S:
            self._listed_at = now
            running: list[tuple[int, Path]] = []
            with suppress(BurnishError, OSError):
                running = lease.holders()
            self._runs = [run for _, run in running]
            families = [os.getpid(), *(pid for pid, _ in running)]
            self._pids = frozenset(pid for family in families for pid in _family(family)) | _window()
            self._ours.clear()  # process ids are used again
        return self._pids

    def owns(self, pid: int) -> bool:
        """Whether a process is one of those, or another one of Burnish, such as an export of a closed window."""
        if pid not in self._ours:
            self._ours[pid] = pid in self._pids or (not self._in_container and _is_burnish(pid))
        return self._ours[pid]

    def held_bytes(self, gpu: GpuFacts) -> int | None:
        """Return what live runs recorded, where the driver's list does not tell: in containers and under Windows."""
        if not self._in_container and sys.platform != "win32":
            return None
        held = [count for run in self._runs if (count := _recorded(RunPaths(run).hardware, gpu.index)) is not None]
        return sum(held) if held else None

    def spilled_bytes(self, gpu: GpuFacts) -> int | None:
        """Return what live runs recorded: only they know what they locked in system memory themselves."""
        spilled = [_recorded(RunPaths(run).hardware, gpu.index, "spilled_bytes") for run in self._runs]
        known = [count for count in spilled if count is not None]
        return sum(known) if known else None


def _family(pid: int) -> Iterator[int]:
    """List a process and its descendants."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        yield pid
        yield from (child.pid for child in process.children(recursive=True))


def _window() -> frozenset[int]:
    """Return the id of the window that started this process, if one did."""
    return frozenset({os.getppid()}) if _is_burnish(os.getppid()) else frozenset()


def _is_burnish(pid: int) -> bool:
    with suppress(psutil.Error, OSError):
        return any(mark in word for word in psutil.Process(pid).cmdline() for mark in _MARKS)
    return False


def _recorded(path: Path, index: int, name: str = "ours_bytes") -> int | None:
    """Read a value of the newest sample of a live run; None where it is old or unknown."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in reversed(lines):
        with suppress(ValidationError):
            sample = parse_hardware_line(line)
            if isinstance(sample, HardwareSample):
                if abs(time.time() - sample.t) > _FRESH_S:
                    return None
                found: list[int | None] = [getattr(gpu, name) for gpu in sample.gpus if gpu.index == index]
                return found[0] if found else None
    return None
