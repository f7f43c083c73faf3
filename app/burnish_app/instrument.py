"""Measures how long the window's event handlers take, for tests and to find the cause of a stutter."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication


@dataclass
class HandlerTimes:
    """The times of event handlers in the window's thread.

    Attributes:
        wall_ms: wall time of each outermost handler, milliseconds.
        slowest_cpu_ms: largest CPU time of one handler, milliseconds.
        slowest: event and receiver of that handler.
    """

    wall_ms: list[float] = field(default_factory=list)
    slowest_cpu_ms: float = 0.0
    slowest: str = ""

    @property
    def wall_p99_ms(self) -> float:
        """The 99th percentile of the handlers' wall times, milliseconds; 0 if none ran."""
        ordered = sorted(self.wall_ms)
        return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))] if ordered else 0.0

    def add(self, wall_ms: float, cpu_ms: float, what: str) -> None:
        """Add the times of one handler."""
        self.wall_ms.append(wall_ms)
        if cpu_ms > self.slowest_cpu_ms:
            self.slowest_cpu_ms, self.slowest = cpu_ms, what


def process_age_s() -> float:
    """Return the seconds since this process was created, the interpreter's start included."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        # Field 22 of /proc/PID/stat, counted after the command name, is the start in ticks since boot: proc(5). psutil
        # adds the moment of boot in whole seconds, which is off by up to one.
        ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    import psutil

    return time.time() - psutil.Process().create_time()


class MeasuredApplication(QApplication):
    """An application that times every event it delivers. Nested handlers count as one.

    Each event passes through Python, so a handler that causes many events is about twice as slow as in the studio.
    """

    def __init__(self, arguments: list[str]) -> None:
        super().__init__(arguments)
        self.times = HandlerTimes()
        self._depth = 0

    def notify(self, receiver: QObject, event: QEvent) -> bool:
        """Deliver an event and measure its handler."""
        if self._depth:
            return super().notify(receiver, event)
        what = f"{event.type().name} of {type(receiver).__name__} {receiver.objectName()}".strip()
        self._depth += 1
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            return super().notify(receiver, event)
        finally:
            self._depth -= 1
            self.times.add((time.perf_counter() - wall) * 1e3, (time.thread_time() - cpu) * 1e3, what)
