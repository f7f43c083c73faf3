"""Counts bytes as they come, for their rate and the time that is left, and stops those who fetch them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from burnish_engine.contract.errors import StoppedError

_WINDOW_S = 8.0  # time over which the rate is taken
_SAMPLE_S = 0.2


class FetchReading(NamedTuple):
    """The state of a fetch.

    Attributes:
        done_bytes: bytes that are there.
        total_bytes: bytes of all files.
        rate: bytes per second lately; None: nothing came yet.
        left_s: seconds left at that rate; None: not known.
    """

    done_bytes: int
    total_bytes: int
    rate: float | None = None
    left_s: float | None = None


class Meter:
    """Counts the bytes of a fetch. Several threads add to it.

    Args:
        total_bytes: bytes of all files.
        stop: event that ends the fetch; what came so far is kept.
        clock: function that returns seconds.
    """

    def __init__(self, total_bytes: int, stop: threading.Event, clock: Callable[[], float] = time.monotonic) -> None:
        self._stop, self._is_over = stop, False
        self._total, self._done, self._clock = total_bytes, 0, clock
        self._lock = threading.Lock()
        self._came: deque[tuple[float, int]] = deque([(clock(), 0)])  # what came until when, files at hand not counted
        self._came_bytes = 0

    def found(self, count: int) -> None:
        """Count bytes that are there already."""
        with self._lock:
            self._done += count

    def lost(self, count: int) -> None:
        """Count bytes that were there and have to come again."""
        with self._lock:
            self._done -= count

    def came(self, count: int) -> None:
        """Count bytes that came.

        Raises:
            StoppedError: The fetch is to end.
        """
        with self._lock:
            self._done += count
            self._came_bytes += count
            now = self._clock()
            if now - self._came[-1][0] >= _SAMPLE_S:
                self._came.append((now, self._came_bytes))
            while len(self._came) > 2 and now - self._came[1][0] > _WINDOW_S:
                self._came.popleft()
        self.check()

    def end(self) -> None:
        """Let all who fetch end, as one of them failed."""
        self._is_over = True

    def check(self) -> None:
        """Raise if the fetch is to end.

        Raises:
            StoppedError: The fetch was stopped.
        """
        if self._is_over or self._stop.is_set():
            raise StoppedError("The set-up was paused.", "It continues where it is.")

    def reading(self) -> FetchReading:
        """Return the state of the fetch."""
        with self._lock:
            since, before = self._came[0]
            took = self._clock() - since
            came = self._came_bytes - before
            rate = came / took if came > 0 and took > 0 else None
            left = (self._total - self._done) / rate if rate else None
            return FetchReading(self._done, self._total, rate, left)
