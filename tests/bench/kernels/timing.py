"""How kernels are timed, and compiled before."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import torch

from bench.shared.commands import script

GRAPH_MS, MOST_RUNS, REPLAYS = 8.0, 50, 5


def milliseconds(run: Callable[[], object]) -> float:
    """Return the median time of one run in captured graphs long enough for the clock under load."""
    run()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    events[0].record()
    run()
    events[1].record()
    torch.cuda.synchronize()
    runs = max(1, min(MOST_RUNS, round(GRAPH_MS / max(events[0].elapsed_time(events[1]), 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(runs):
            run()
    times = []
    graph.replay()
    for _ in range(REPLAYS):
        events[0].record()
        graph.replay()
        events[1].record()
        torch.cuda.synchronize()
        times.append(events[0].elapsed_time(events[1]) / runs)
    return float(sorted(times)[REPLAYS // 2])


def compile_in_processes(name: str, *words: str, workers: int, limit_s: float) -> float:
    """Start a script several times with `--warm SHARE`, which compiles that share of its kernels into Triton's cache.

    Args:
        name: name of the script.
        words: its other arguments.
        workers: number of processes, and of shares.
        limit_s: seconds after which a process is given up.

    Returns:
        Seconds that it took.
    """
    began = time.perf_counter()
    running = [subprocess.Popen(script(name, *words, "--warm", share)) for share in range(workers)]
    for one in running:
        one.wait(timeout=limit_s)
    return time.perf_counter() - began
