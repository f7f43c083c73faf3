"""Detect that the driver moved a run's memory from a full card to system memory, which slows steps many times.

Windows' driver does so instead of failing, under WSL2 too; `models.device.device.cap_memory` keeps torch from causing
it. Other programs can still push the run's memory out. Windows counts a process's GPU memory in system memory;
elsewhere only the time of the steps shows it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import torch

from burnish_engine.contract.units import memory_size
from burnish_engine.hardware.gpu.process_memory import read_windows
from burnish_engine.hardware.host.host_memory import is_wsl

_GIB = 2**30
_EVERY_S = 10.0  # reading Windows' counters takes tens of milliseconds
_SPILLED_BYTES = _GIB // 2  # the driver's own buffers in system memory are well below
_LASTING_READS = 2
_SETTLING_STEPS = 3  # kernels are compiled, graphs captured
_BASE_STEPS = 8
_SLOWER = 3.0
_LASTING_STEPS = 5
_FULL_SHARE, _FULL_BYTES = 0.06, _GIB // 2  # less than this is free: the card is full
_REMEDY = "lower train.micro_batch_tokens or set memory.budget_gib below {budget:.1f}"
_POLICY = (
    'or set "CUDA - Sysmem Fallback Policy" to "Prefer No Sysmem Fallback" in the NVIDIA Control Panel, which ends '
    "such a run instead"
)


class SpillWatch:
    """Watches the steps of one run.

    Args:
        device: device to train on; on the CPU there is nothing to watch.
        locked: function that returns the bytes of host memory that the run page-locked besides torch, which Windows
            counts too.
        shared: function that returns the bytes that Windows counts for this process in system memory, None where it
            does not count.
        memory: function that returns the (free, total) bytes of the device.
        moves: whether the driver can move memory to the system's; decided by the platform when not given.
        clock: function that returns monotonic seconds.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        locked: Callable[[], int] = lambda: 0,
        shared: Callable[[], int | None] | None = None,
        memory: Callable[[], tuple[int, int]] | None = None,
        moves: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watching = device.type == "cuda"
        self._locked, self._clock = locked, clock
        self._shared = shared or shared_bytes
        self._memory = memory or (lambda: torch.cuda.mem_get_info(device))
        self._moves = (sys.platform == "win32" or is_wsl()) if moves is None else moves
        self._steps = 0
        self._base: list[float] = []
        self._slow: list[float] = []
        self._reads = 0
        self._read_at = float("-inf")

    def step(self, seconds: float, tokens: int = 0) -> str:
        """Check the time of a step.

        Args:
            seconds: time of the step.
            tokens: tokens of the step, where steps differ; 0: all steps are alike.

        Returns:
            A sentence on what happened and what to do, once; else empty.
        """
        if not self._watching or seconds <= 0:
            return ""
        self._steps += 1
        message = self._by_counter() or self._by_time(seconds / max(tokens, 1))
        self._watching = not message
        return message

    def _by_counter(self) -> str:
        now = self._clock()
        if not self._moves or now - self._read_at < _EVERY_S:
            return ""
        self._read_at = now
        shared = self._shared()
        spilled = 0 if shared is None else shared - self._locked()
        if spilled < _SPILLED_BYTES or not self._full():
            self._reads = 0
            return ""
        self._reads += 1
        if self._reads < _LASTING_READS:
            return ""
        return (
            f"The card is full and the driver keeps {memory_size(spilled)} of this run in system memory, which makes "
            f"its steps several times slower: {self._remedy()}, {_POLICY}."
        )

    def _by_time(self, pace: float) -> str:
        """Compare a step's pace (seconds, or seconds a token) with that of the first steps."""
        if self._steps <= _SETTLING_STEPS:
            return ""
        if len(self._base) < _BASE_STEPS:
            self._base.append(pace)
            return ""
        usual = median(self._base)
        if pace < _SLOWER * usual:
            self._slow.clear()
            return ""
        self._slow.append(pace)
        if len(self._slow) < _LASTING_STEPS:
            return ""
        slower = median(self._slow) / usual
        self._slow.clear()
        if not self._full():
            return ""
        found = (
            f"Steps are {slower:.1f} times slower than the first ones, {_LASTING_STEPS} in a row, and the card is full"
        )
        if self._moves:
            return (
                f"{found}, so the driver has probably moved some of this run's memory to the system's: "
                f"{self._remedy()}, {_POLICY}."
            )
        return (
            f"{found}: look with nvidia-smi for another program on this GPU, or for one that is hot or saves power; if "
            f"there is none, {self._remedy()}."
        )

    def _full(self) -> bool:
        free, total = self._memory()
        return free < max(_FULL_SHARE * total, _FULL_BYTES)

    def _remedy(self) -> str:
        return _REMEDY.format(budget=0.9 * self._memory()[1] / _GIB)


def shared_bytes() -> int | None:
    """Return the bytes that Windows counts for this process in system memory, less torch's own page-locked ones.

    The answer is None where nothing counts them. Any thread may ask.
    """
    usage = read_windows()
    if usage is None or usage.shared is None:
        return None
    own = torch.cuda.host_memory_stats().get("allocated_bytes.current", 0)
    return max(0, usage.shared - int(own))
