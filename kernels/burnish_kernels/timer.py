"""Time an action on a GPU, in the way training runs it: as a CUDA graph, with a cold L2 cache."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from typing import Protocol

from typing_extensions import override

_BUDGET_MS = 300.0  # GPU time of a measurement
_FEWEST, _MOST = 7, 101  # repetitions of which the median is taken
_GRAPH_MS, _MOST_REPEATS = 2.0, 10  # runs in one graph: about so long, at most so many

Run = Callable[[], object]


class Timer(Protocol):
    """Times an action on a device."""

    def __call__(self, run: Run, *, captured: bool = True) -> float:
        """Return the median milliseconds of one run.

        Raises:
            NotCapturedError: The run was to be captured, but cannot be.
        """
        ...


class NotCapturedError(RuntimeError):
    """Raised when the action cannot be part of a CUDA graph: it waits for the device or allocates outside its pool."""


def why_not() -> str:
    """Explain why nothing can be timed here, as a sentence; empty where it can."""
    import torch

    if os.environ.get("TRITON_INTERPRET") == "1":
        return "TRITON_INTERPRET is set, so kernels are interpreted, not compiled."
    if not torch.cuda.is_available():
        return "There is no GPU that PyTorch can use, so nothing can be timed."
    return ""


class CudaTimer(Timer):
    """Times with CUDA events; before each run a filler replaces the content of the L2 cache.

    The filler is read, not written: lines waiting to be written back would be charged to the run. Lines that the run
    itself leaves in the cache are not waited for, so small outputs look a little fast.

    Starting a graph takes as long as a small kernel. So a graph holds several fillers and runs, and a second graph with
    the fillers alone gives the time to subtract. An action that is not captured is timed by itself, behind a filler
    that keeps the GPU busy while the processor enqueues it.
    """

    def __init__(self) -> None:
        import torch

        cache = int(getattr(torch.cuda.get_device_properties(), "L2_cache_size", 0))
        self._filler = torch.zeros(max(256 << 20, 4 * cache) // 4, dtype=torch.float32, device="cuda")
        self._filler_ms: dict[int, float] = {}

    @override
    def __call__(self, run: Run, *, captured: bool = True) -> float:
        for _ in range(2):  # compiles, and lets libraries choose their algorithms
            run()
        estimate = statistics.median(self._times(run, 3))
        if not captured:
            return statistics.median(self._times(run, _count(estimate)))
        repeats = int(min(max(_GRAPH_MS / max(estimate, 1e-3), 1), _MOST_REPEATS))
        if repeats not in self._filler_ms:
            self._filler_ms[repeats] = self._graph_ms(lambda: None, repeats)
        both = self._graph_ms(run, repeats)
        return max(both - self._filler_ms[repeats], 1e-6) / repeats

    def _graph_ms(self, run: Run, repeats: int) -> float:
        """Return the time of a graph of `repeats` fillers and runs."""

        def all_of_them() -> None:
            for _ in range(repeats):
                self._filler.sum()
                run()

        launch = _capture(all_of_them)
        estimate = statistics.median(self._times(launch, 3))
        return statistics.median(self._times(launch, _count(estimate)))

    def _times(self, launch: Run, count: int) -> list[float]:
        import torch

        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
        for before, after in pairs:
            self._filler.sum()
            before.record()
            launch()
            after.record()
        torch.cuda.synchronize()
        return [before.elapsed_time(after) for before, after in pairs]


def _count(estimate_ms: float) -> int:
    """Return how often to repeat an action that takes about `estimate_ms`."""
    return int(min(max(_BUDGET_MS / max(estimate_ms, 1e-3), _FEWEST), _MOST))


def _capture(run: Run) -> Run:
    """Capture the action in a CUDA graph and return its replay."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        # `torch.cuda.graph` leaves its own stream in use where the capture cannot be ended.
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph):
            run()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as problem:
        raise NotCapturedError(str(problem).partition("\n")[0]) from problem
    return graph.replay
