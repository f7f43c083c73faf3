"""Measure the memory and speed of a run while it is running, and keep them for the predictions of later runs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from statistics import median
from typing import Literal

import psutil
import torch
from pydantic import ValidationError

from burnish_engine.advise.facts.past_runs import PastRun, remember
from burnish_engine.contract.facts.advice import PlanBasis
from burnish_engine.contract.run.events import RunMeasurement
from burnish_engine.contract.version import burnish_version
from burnish_engine.hardware.gpu.process_memory import ProcessMemory
from burnish_engine.hardware.host.peak_memory import held_bytes, peak_bytes, reset_peak
from burnish_engine.hardware.probe import probe

KeptOutcome = Literal["finished", "stopped", "suspended"]

_EVERY_S = 0.5
_EVERY_S_WINDOWS = 10.0  # Windows' counters take tens of milliseconds
_WARM_UP_STEPS = 3  # kernels are compiled and graphs captured
_LEAST_STEPS = 4
_MOST_BESIDE_BYTES = 4 * 2**30  # most that a process holds beside torch; more is another process's


class Measure:
    """Measures the memory peaks and the speed of one run in this process.

    Args:
        device: device to train on.
        held: function that reads how many bytes of the device the process holds, None where not known; by default
            `memory_reader`'s, which must be made before the process uses the device.
        clock: function that returns monotonic seconds.

    Attributes:
        engine: name of the engine; set when it is known.
        locked: function that returns the engine's bytes of page-locked host memory; set when it is known.
        took: function that returns the measured seconds of one of each part of the run's time, by `TimePart.name`.
        process_bytes: peak of the device memory that the process holds; 0 where not known.
    """

    def __init__(
        self,
        device: torch.device,
        held: Callable[[], int | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._device, self._clock = device, clock
        self._held = held or memory_reader(device)
        self._every = _EVERY_S_WINDOWS if psutil.WINDOWS and device.type == "cuda" else _EVERY_S
        self._read_at = float("-inf")
        self._beside = 0
        self._rates: deque[float] = deque(maxlen=2000)
        self._steps = 0
        self._comparable = True
        self.engine = ""
        self.process_bytes = 0
        self.locked: Callable[[], int] = lambda: 0
        self.took: Callable[[], Mapping[str, float]] = dict

    def held_bytes(self) -> int | None:
        """Read how many bytes of the device the process holds now; None where not known. Any thread may ask."""
        return self._held()

    def read_memory(self, *, now: bool = False) -> None:
        """Measure the memory, unless it was measured a moment ago.

        Args:
            now: whether to measure in any case.
        """
        moment = self._clock()
        if not now and moment - self._read_at < self._every:
            return
        self._read_at = moment
        held = self._held()
        if held is None:
            return
        if self._device.type != "cuda":
            self.process_bytes = max(self.process_bytes, held)
            return
        beside = held - torch.cuda.memory_reserved(self._device)
        if 0 < beside <= _MOST_BESIDE_BYTES:
            self._beside = max(self._beside, beside)
            # torch counts every moment, the driver is asked now and then.
            self.process_bytes = torch.cuda.max_memory_reserved(self._device) + self._beside

    def beside(self) -> int | None:
        """Return the device bytes that the process holds beside torch's allocator; None where not known."""
        self.read_memory(now=True)
        return self._beside or None

    def step(self, tokens: int, seconds: float) -> None:
        """Record a step's speed.

        Args:
            tokens: real tokens of the step.
            seconds: time of the step.
        """
        self._steps += 1
        if self._steps > _WARM_UP_STEPS and tokens and seconds > 0:
            self._rates.append(tokens / seconds)
        self.read_memory()

    def not_as_planned(self) -> None:
        """Note that the run deviates from its plan, so that it says nothing about the prediction."""
        self._comparable = False

    def taken(self) -> RunMeasurement:
        """Return the memory and speed of the run so far."""
        self.read_memory(now=True)
        cuda = self._device.type == "cuda"
        return RunMeasurement(
            process_bytes=self.process_bytes,
            allocated_bytes=torch.cuda.max_memory_allocated(self._device) if cuda else 0,
            reserved_bytes=torch.cuda.max_memory_reserved(self._device) if cuda else 0,
            tokens_per_s=median(self._rates) if len(self._rates) >= _LEAST_STEPS else None,
        )

    def keep(self, basis: PlanBasis | None, taken: RunMeasurement, outcome: KeptOutcome) -> bool:
        """Keep the run's measurements for later predictions. Never fails.

        Args:
            basis: prediction for the run; None where there was none.
            taken: measurements of the run.
            outcome: how the run ended.

        Returns:
            Whether the measurements were kept.
        """
        if basis is None or self.engine != basis.engine or not (self._comparable and self._steps):
            return False
        run = {
            **basis.model_dump(include={"device", "engine", "kind", "memory", "tokens_per_s"}),
            **taken.model_dump(include={"process_bytes", "allocated_bytes", "reserved_bytes"}),
            "measured_tokens_per_s": taken.tokens_per_s,
            "times": {name: (basis.times.get(name, 0.0), took) for name, took in self.took().items()},
        }
        if not taken.reserved_bytes and peak_bytes() is None:  # what is held between steps is far less than the peak
            run["process_bytes"] = 0
        try:
            remember(PastRun(when=time.time(), burnish=burnish_version(), steps=self._steps, outcome=outcome, **run))
        except ValidationError:  # a figure beyond reason, which is no use for predictions
            return False
        return True


class ProcessorShare:
    """Measures how much of its threads' time this process is given processor cores; others take the rest."""

    def __init__(self) -> None:
        self._at, self._used = time.monotonic(), time.process_time()

    def since_last(self) -> float:
        """Return the share since the last call, 0 to 1."""
        at, used = time.monotonic(), time.process_time()
        share = (used - self._used) / max((at - self._at) * torch.get_num_threads(), 1e-9)
        self._at, self._used = at, used
        return min(share, 1.0)


def memory_reader(device: torch.device) -> Callable[[], int | None]:
    """Make a function that reads how many bytes of a device this process holds (None where not known).

    It must be made before the process uses the device.
    """
    if device.type != "cuda":
        reset_peak()
        return lambda: peak_bytes() or held_bytes()
    # By NVML: asking torch would make the context that is to be measured.
    uuid = next((gpu.uuid for gpu in probe().gpus if gpu.index == (device.index or 0)), "")
    return ProcessMemory(uuid).read
