"""Measure the energy of a GPU during a run: sampled beside the run, written to a file, and summed over its steps.

NVML counts millijoules since the driver was loaded on Volta and newer (nvmlDeviceGetTotalEnergyConsumption); on older
cards the power draw is integrated. Both measure the whole card, including idle draw and other processes.
"""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.hardware.gpu.nvml import Driver
from burnish_engine.hardware.probe import probe

EVERY_S = 0.25
LONGEST_GAP_S = 5.0
"""Longest time between two samples, seconds; a longer gap was not measured."""

TimeWindow = tuple[float, float]
EnergySample = tuple[float, float]


class GpuMeter:
    """Read joules of one GPU, counted from an arbitrary zero.

    Args:
        uuid: UUID of the GPU.
        nvml: module pynvml, or an object with its functions.
        clock: function that returns wall-clock seconds.

    Attributes:
        source: description of the way it measures; empty where it cannot.
    """

    def __init__(self, uuid: str, nvml: Any = None, clock: Callable[[], float] = time.time) -> None:
        self.source = ""
        self._clock = clock
        self._joules, self._at, self._watts = 0.0, 0.0, 0.0
        try:
            library = nvml or import_module("pynvml")
            library.nvmlInit()
            self._driver = Driver(library)
            self._handle = library.nvmlDeviceGetHandleByUUID(uuid)
        except Exception:  # noqa: BLE001  no library, no driver, an unknown name: then there is no figure
            return
        if self._driver.integer("nvmlDeviceGetTotalEnergyConsumption", self._handle) is not None:
            self.source = "NVML energy counter"
        elif self._driver.integer("nvmlDeviceGetPowerUsage", self._handle) is not None:
            self.source = "NVML power draw, integrated"

    def read(self) -> EnergySample | None:
        """Read (moment, joules) now; None where the GPU cannot be measured."""
        now = self._clock()
        if self.source == "NVML energy counter":
            millijoules = self._driver.integer("nvmlDeviceGetTotalEnergyConsumption", self._handle)
            return None if millijoules is None else (now, millijoules / 1000)
        if not self.source:
            return None
        milliwatts = self._driver.integer("nvmlDeviceGetPowerUsage", self._handle)
        if milliwatts is None:
            return None
        watts = milliwatts / 1000
        if self._at:
            self._joules += (now - self._at) * (watts + self._watts) / 2
        self._at, self._watts = now, watts
        return now, self._joules


def meter_for(devices: DevicesSection) -> GpuMeter | None:
    """Make the meter of the device that a recipe trains on; None for the CPU, whose energy is not measured."""
    gpus = [] if devices.kind == "cpu" else probe().gpus
    uuid = next((gpu.uuid for gpu in gpus if gpu.index == devices.gpus[0]), "")
    meter = GpuMeter(uuid) if uuid else None
    return meter if meter and meter.source else None


class EnergyWatch:
    """Append samples to a file from a thread, as a context manager.

    Args:
        meter: source of the samples; None: nothing is written.
        path: file of the samples. Each watch begins a new piece of it, since a meter's zero is arbitrary.
    """

    def __init__(self, meter: GpuMeter | None, path: Path) -> None:
        self._meter, self._path = meter, path
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="energy", daemon=True)

    def __enter__(self) -> EnergyWatch:
        if self._meter:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._meter:
            self._thread.join()

    def _watch(self) -> None:
        assert self._meter
        try:
            with self._path.open("a", encoding="ascii", buffering=1) as file:
                file.write('\n"piece"\n')  # after a line that a killed watch may have torn
                while not self._ended.wait(EVERY_S):
                    sample = self._meter.read()
                    if sample:
                        file.write(f"{json.dumps([round(sample[0], 3), round(sample[1], 3)])}\n")
        except OSError:
            return  # a full disk: the run then has no energy figure


def energy_along(path: Path, windows: Sequence[TimeWindow]) -> list[float | None]:
    """Compute the joules within the windows, up to the end of each; None from the first window that has no samples.

    Args:
        path: file of samples; it may be missing.
        windows: (begin, end) of each counted step, wall-clock seconds.
    """
    pieces, found = _pieces(path), list[float | None]()
    total: float | None = 0.0
    for window in windows:
        used = next((joules for piece in pieces if (joules := _within(piece, window)) is not None), None)
        total = None if total is None or used is None else total + used
        found.append(total)
    return found


def _pieces(path: Path) -> list[list[EnergySample]]:
    """Read stretches of samples without a gap."""
    pieces: list[list[EnergySample]] = [[]]
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        sample = _sample(line)
        if sample is None or (pieces[-1] and not 0 <= sample[0] - pieces[-1][-1][0] <= LONGEST_GAP_S):
            pieces.append([])
        if sample:
            pieces[-1].append(sample)
    return [piece for piece in pieces if len(piece) > 1]


def _sample(line: str) -> EnergySample | None:
    try:
        moment, joules = json.loads(line)
        return float(moment), float(joules)
    except (ValueError, TypeError):
        return None


def _within(piece: Sequence[EnergySample], window: TimeWindow) -> float | None:
    """Compute the joules of the part of a window that the piece covers, with a tolerance of one sample at its ends."""
    begin, end = window
    if begin < piece[0][0] - 2 * EVERY_S or end > piece[-1][0] + 2 * EVERY_S:
        return None
    return max(0.0, _at(piece, end) - _at(piece, begin))


def _at(piece: Sequence[EnergySample], moment: float) -> float:
    """Interpolate the joules at a moment between samples, and extrapolate beyond the ends from the outermost two."""
    right = min(max(bisect_right(piece, moment, key=lambda sample: sample[0]), 1), len(piece) - 1)
    (t0, j0), (t1, j1) = piece[right - 1], piece[right]
    return j0 + (j1 - j0) * (moment - t0) / (t1 - t0) if t1 > t0 else j1
