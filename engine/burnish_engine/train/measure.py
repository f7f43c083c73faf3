"""What a run really takes: measured while it goes on, and kept for the predictions of the next ones."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Literal

import psutil
import torch
from pydantic import ValidationError

from burnish_engine.advise.past_runs import PastRun, remember
from burnish_engine.contract.advice import PlanBasis
from burnish_engine.contract.events import Measured
from burnish_engine.contract.version import burnish_version
from burnish_engine.hardware.peak_memory import held_bytes, peak_bytes, reset_peak
from burnish_engine.hardware.probe import probe
from burnish_engine.hardware.process_memory import ProcessMemory

Outcome = Literal["finished", "stopped", "suspended"]

_EVERY_S = 0.5
_EVERY_S_WINDOWS = 10.0  # its counters take tens of milliseconds
_WARM_UP_STEPS = 3  # kernels are compiled and graphs captured
_LEAST_STEPS = 4
_MOST_BESIDE_BYTES = 4 * 2**30  # what a process may hold beside torch; more is another process's


class Measure:
    """Peaks of memory and the speed of one run in this process.

    Made before the run uses its device, so that what it takes can be told from what others hold.

    Args:
        device: Where it trains.
        held: Bytes that the process holds of the device now, None where not known; found out when not given.
        clock: Seconds that only grow.

    Attributes:
        engine: Which one trains; set when it is known.
        process_bytes: Peak of all that the process holds of the device; 0 where it is not known.
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
        self._looked = float("-inf")
        self._beside = 0
        self._rates: deque[float] = deque(maxlen=2000)
        self._steps = 0
        self._comparable = True
        self.engine = ""
        self.process_bytes = 0

    def look(self, *, now: bool = False) -> None:
        """Measure the memory, at most every so often.

        Args:
            now: However short ago it was measured.
        """
        moment = self._clock()
        if not now and moment - self._looked < self._every:
            return
        self._looked = moment
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
        """What the process holds beside torch's allocator now; None where it is not known."""
        self.look(now=True)
        return self._beside or None

    def step(self, tokens: int, seconds: float) -> None:
        """Count a step.

        Args:
            tokens: Real tokens of it.
            seconds: From the step before.
        """
        self._steps += 1
        if self._steps > _WARM_UP_STEPS and tokens and seconds > 0:
            self._rates.append(tokens / seconds)
        self.look()

    def not_as_planned(self) -> None:
        """The run goes on otherwise than it was planned, so that the prediction is not to be compared with it."""
        self._comparable = False

    def taken(self) -> Measured:
        """What the run took so far."""
        self.look(now=True)
        cuda = self._device.type == "cuda"
        return Measured(
            process_bytes=self.process_bytes,
            allocated_bytes=torch.cuda.max_memory_allocated(self._device) if cuda else 0,
            reserved_bytes=torch.cuda.max_memory_reserved(self._device) if cuda else 0,
            tokens_per_s=median(self._rates) if len(self._rates) >= _LEAST_STEPS else None,
        )

    def keep(self, basis: PlanBasis | None, taken: Measured, outcome: Outcome) -> bool:
        """Keep what the run took for later predictions. Never fails.

        Args:
            basis: What was predicted, where something was.
            taken: What it took.
            outcome: How it ended.

        Returns:
            Whether there was something to keep.
        """
        if basis is None or self.engine != basis.engine or not (self._comparable and self._steps):
            return False
        run = {
            **basis.model_dump(include={"device", "engine", "kind", "memory", "tokens_per_s"}),
            **taken.model_dump(include={"process_bytes", "allocated_bytes", "reserved_bytes"}),
            "measured_tokens_per_s": taken.tokens_per_s,
        }
        try:
            remember(
                PastRun(
                    when=time.time(),
                    burnish=burnish_version(),
                    steps=self._steps,
                    outcome=outcome,
                    true_peak=peak_bytes() is not None,
                    **run,
                )
            )
        except ValidationError:  # a figure beyond reason, which is no use for predictions
            return False
        return True


def memory_reader(device: torch.device) -> Callable[[], int | None]:
    """What tells how many bytes this process holds of a device, None where not known; made before it is used."""
    if device.type != "cuda":
        reset_peak()
        return lambda: peak_bytes() or held_bytes()
    # By NVML: asking torch would make the context that is to be measured.
    uuid = next((gpu.uuid for gpu in probe().gpus if gpu.index == (device.index or 0)), "")
    return ProcessMemory(uuid).read
