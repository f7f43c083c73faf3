"""Writes a run's `hardware.jsonl`: lines are appended, and old samples are merged so that the file stays small."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.facts.hardware import (
    GpuSample,
    HardwareLine,
    HardwareSample,
    HardwareStart,
    MemoryUsers,
    ThrottleReason,
    hardware_line_json,
    parse_hardware_line,
)
from burnish_engine.contract.files import refuse_special, write_atomic

MOST_BYTES = 4 * 2**20
FINE_S = 600.0
"""Age up to which samples are kept as they were taken."""
_LONGEST_S = 4096.0
_GAP_S = 5.0  # a longer time without a sample separates processes, or times in which the machine slept
_LARGEST = ("used_bytes", "ours_bytes", "spilled_bytes", "temperature_c")
_MEANS = ("load", "power_w", "clock_mhz", "memory_clock_mhz", "fan", "to_gpu_gb_s", "from_gpu_gb_s")
_DIGITS = 3


class HardwareFile:
    """The one writer of a recording. Nothing here raises: a run must not end because of its samples.

    Opening cuts off a line torn by a crash.

    Args:
        path: path of the file.
        most_bytes: size at which old samples are merged.
        fine_s: age up to which samples are never merged.
    """

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES, fine_s: float = FINE_S) -> None:
        self._path, self._most, self._fine_s = path, most_bytes, fine_s
        self._file: io.FileIO | None = None
        self._size = 0
        self._open()

    def write(self, line: HardwareStart | HardwareSample | MemoryUsers) -> None:
        """Append a line; drop it where it cannot be written whole."""
        data = hardware_line_json(line).encode() + b"\n"
        if self._file is None:
            self._open()
        if self._file is None:
            return
        try:
            if self._file.write(data) != len(data):
                self._file.truncate(self._size)
                return
        except OSError:
            with suppress(OSError):
                self._file.truncate(self._size)
            return
        self._size += len(data)
        if self._size > self._most:
            self._merge()

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def _open(self) -> None:
        with suppress(OSError):
            file = io.FileIO(self._path, "ab+")
            self._size = _whole_bytes(file)
            file.truncate(self._size)
            self._file = file

    def _merge(self) -> None:
        """Replace the file by one of at most half the size; where that fails, try again after as much again."""
        self.close()  # Windows replaces no open file
        with suppress(OSError, NoSpaceError):
            lines = read_lines(self._path)
            kept = merge_old(lines, self._most // 2, self._fine_s)
            write_atomic(self._path, "".join(f"{hardware_line_json(line)}\n" for line in kept), durable=False)
        self._open()
        if self._size > self._most:
            self._most += self._most // 2


def read_lines(path: Path) -> list[HardwareLine]:
    """Read all whole lines of a recording that this version knows.

    Raises:
        OSError: The file cannot be read.
    """
    lines = []
    refuse_special(path)
    for line in path.read_bytes().split(b"\n"):
        with suppress(ValidationError):
            lines.append(parse_hardware_line(line))
    return lines


def merge_old(lines: Sequence[HardwareLine], most_bytes: int, fine_s: float = FINE_S) -> list[HardwareLine]:
    """Merge old samples into longer intervals until the recording is small enough.

    Power times time stays the same, so energy does. Of the processes that held memory only the last list before the
    newest samples stays.

    Args:
        lines: lines of a recording, in order.
        most_bytes: size that the result should have at most.
        fine_s: age up to which samples stay as they are; halved where even they are too many.
    """
    newest = max((line.t for line in lines), default=0.0)
    while True:
        old = [line for line in lines if line.t <= newest - fine_s]
        kept: list[HardwareLine] = list(lines[len(old) :])
        users = [line for line in old if isinstance(line, MemoryUsers)][-1:]
        merged: list[HardwareLine] = [line for line in old if not isinstance(line, MemoryUsers)]
        seconds = 2.0
        while (size := _bytes_of(merged) + _bytes_of(users) + _bytes_of(kept)) > most_bytes and seconds <= _LONGEST_S:
            merged = _merge_to(merged, seconds)
            seconds *= 2
        if size <= most_bytes or fine_s < 1:
            return [*merged, *users, *kept]
        fine_s /= 2


def _merge_to(lines: Sequence[HardwareLine], seconds: float) -> list[HardwareLine]:
    """Merge neighboring samples into intervals of at most so many seconds; starts and gaps stay."""
    merged: list[HardwareLine] = []
    for line in lines:
        before = merged[-1] if merged else None
        if (
            isinstance(line, HardwareSample)
            and isinstance(before, HardwareSample)
            and before.seconds + line.seconds <= seconds * 1.25
            and line.t - line.seconds - before.t < _GAP_S
        ):
            merged[-1] = merge_samples(before, line)
        else:
            merged.append(line)
    return merged


def merge_samples(first: HardwareSample, second: HardwareSample) -> HardwareSample:
    """Merge two samples into one of both intervals: means over time, but the largest memory and temperature."""
    weights = first.seconds, second.seconds
    before = {gpu.index: gpu for gpu in first.gpus}
    after = {gpu.index: gpu for gpu in second.gpus}
    gpus = [
        _merge_gpu(before.get(index, GpuSample(index=index)), after.get(index, GpuSample(index=index)), weights)
        for index in sorted({*before, *after})
    ]
    return HardwareSample(
        t=second.t,
        seconds=round(first.seconds + second.seconds, _DIGITS),
        cpu=_mean((first.cpu, second.cpu), weights),
        ram_used_bytes=_largest(first.ram_used_bytes, second.ram_used_bytes),
        process_bytes=_largest(first.process_bytes, second.process_bytes),
        gpus=gpus,
    )


def _merge_gpu(first: GpuSample, second: GpuSample, weights: tuple[float, float]) -> GpuSample:
    changes: dict[str, Any] = {name: _largest(getattr(first, name), getattr(second, name)) for name in _LARGEST}
    changes |= {name: _mean((getattr(first, name), getattr(second, name)), weights) for name in _MEANS}
    if changes["power_w"] is not None:  # the energy of the whole interval stays that of its parts
        changes["power_w"] = _mean((first.power_w or 0.0, second.power_w or 0.0), weights)
    reasons: dict[ThrottleReason, None] = dict.fromkeys([*first.throttle, *second.throttle])
    shares = {
        reason: _mean((first.throttle.get(reason, 0.0), second.throttle.get(reason, 0.0)), weights)
        for reason in reasons
    }
    changes |= {name: getattr(second, name) or getattr(first, name) for name in ("pcie_generation", "pcie_width")}
    return GpuSample(index=second.index, throttle=shares, **changes)


def _mean(values: tuple[float | None, float | None], weights: tuple[float, float]) -> float | None:
    """Average the known values over their time; None where there are none."""
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    total = sum(weight for _, weight in known)
    return round(sum(value * weight for value, weight in known) / total, 6) if total > 0 else None


def _largest(first: float | None, second: float | None) -> float | None:
    known = [value for value in (first, second) if value is not None]
    return max(known) if known else None


def _bytes_of(lines: Iterable[HardwareLine]) -> int:
    return sum(len(hardware_line_json(line)) + 1 for line in lines)


def _whole_bytes(file: io.FileIO) -> int:
    """Count the bytes up to the end of the last whole line."""
    end = file.seek(0, io.SEEK_END)
    step = 64 * 1024
    while end > 0:
        begin = max(0, end - step)
        file.seek(begin)
        piece = file.read(end - begin)
        found = piece.rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
