"""Time every operation on a GPU, against what that GPU can do and against plain PyTorch.

One runner serves all operations: each names what to run and how many bytes or operations it takes at least
(`cases.benchmarks`). The yardsticks are measured in the same process: how fast the GPU copies memory, and how fast
cuBLAS multiplies bf16 matrices. Kernels are timed as CUDA graphs, as training replays them; the reference runs eagerly.

As a program: `python -m burnish_kernels.bench [--op NAME] [--json] [--tune]`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from burnish_kernels import tuning
from burnish_kernels.registry import OPS, Benchmark, ops
from burnish_kernels.timer import CudaTimer, NotCapturedError, Timer, why_not

_COPY_BYTES = 1 << 30
_MATMUL_SIZE = 8192
_WORTH_CHANGING = 0.98  # a candidate must beat the default by more than repeated measurements differ


@dataclass(frozen=True)
class PeakRates:
    """The highest rates that this GPU reaches.

    Attributes:
        device: name of the GPU.
        copy_gb_per_s: rate of bytes read and written by a large copy, in GB/s.
        matmul_tflops: rate of a large matrix product, in 10^12 operations per second.
    """

    device: str
    copy_gb_per_s: float
    matmul_tflops: float


@dataclass(frozen=True)
class BenchmarkRow:
    """The result of one benchmark.

    Attributes:
        op: name of the operation.
        name: name of the benchmark.
        ms: median time; None where it could not be run.
        gb_per_s: bytes that must pass through memory, divided by the time.
        copy_share: the same as a share of the copy's rate.
        tflops: operations that must be done, divided by the time; None for memory-bound kernels.
        matmul_share: the same as a share of the matrix product's rate.
        reference_ms: time of plain PyTorch; None where it was not run.
        speedup: ratio of the reference's time to this one.
        captured: whether it was timed as a CUDA graph.
        problem: error text; empty where nothing went wrong.
    """

    op: str
    name: str
    ms: float | None = None
    gb_per_s: float | None = None
    copy_share: float | None = None
    tflops: float | None = None
    matmul_share: float | None = None
    reference_ms: float | None = None
    speedup: float | None = None
    captured: bool = True
    problem: str = ""


@dataclass(frozen=True)
class Tuned:
    """The outcome of one tuning.

    Attributes:
        op: name of the operation.
        key: name of the choice.
        choice: fastest candidate, or the default where none is clearly faster.
        ms: time of the choice.
        default_ms: time of the default; None where it does not run here.
        failed: number of candidates that do not run here.
    """

    op: str
    key: str
    choice: Any
    ms: float
    default_ms: float | None
    failed: int


def measure_peaks(timer: Timer, device: str = "cuda") -> PeakRates:
    """Measure how fast the device copies and multiplies."""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else device
    size = _COPY_BYTES if device == "cuda" else 1 << 20
    if device == "cuda":
        size = min(size, torch.cuda.mem_get_info()[0] // 4)
    pair = [torch.zeros(size // 4, dtype=torch.int32, device=device) for _ in range(2)]
    # A copy inside a graph may go to a copy engine, which is slower than a kernel that reads and writes: the better.
    copies = (lambda: pair[0].copy_(pair[1]), lambda: torch.bitwise_not(pair[1], out=pair[0]))
    copy_ms = min(timer(copy) for copy in copies)
    pair.clear()
    edge = _MATMUL_SIZE if device == "cuda" else 64
    # Random numbers: zeros draw less power, so that the clock stays higher than with real data.
    left, right = (torch.randn(edge, edge, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(left)
    matmul_ms = timer(lambda: torch.mm(left, right, out=product))
    return PeakRates(name, 2 * size / copy_ms * 1e-6, 2 * edge**3 / matmul_ms * 1e-9)


def measure(names: Sequence[str], timer: Timer, peaks: PeakRates, device: str = "cuda") -> Iterator[BenchmarkRow]:
    """Time the benchmarks of some operations, one row after the other."""
    import torch

    known = ops()
    for op in names:
        benchmarks = known[op].benchmarks(device)
        while True:
            torch.cuda.empty_cache()  # what the last one used; does nothing where there is no GPU
            try:
                benchmark = next(benchmarks, None)
            except torch.OutOfMemoryError:
                yield BenchmarkRow(op, "(rest)", problem="its tensors do not fit into memory")
                break
            if benchmark is None:
                break
            yield _row(op, benchmark, timer, peaks)
            del benchmark  # before the generator makes the next one's tensors


def _row(op: str, benchmark: Benchmark, timer: Timer, peaks: PeakRates) -> BenchmarkRow:
    import torch

    captured, problem = True, ""
    try:
        try:
            ms = timer(benchmark.run)
        except NotCapturedError as error:
            captured, problem = False, f"not capturable: {error}"
            ms = timer(benchmark.run, captured=False)
    except torch.OutOfMemoryError:
        return BenchmarkRow(op, benchmark.name, problem="it does not fit into memory")
    reference_ms = None
    if benchmark.reference is not None:
        try:
            reference_ms = timer(benchmark.reference, captured=False)
        except torch.OutOfMemoryError:
            problem = problem or "PyTorch's way does not fit into memory"
    rate, flops = benchmark.bytes / ms * 1e-6, benchmark.flops / ms * 1e-9
    return BenchmarkRow(
        op=op,
        name=benchmark.name,
        ms=ms,
        gb_per_s=rate,
        copy_share=rate / peaks.copy_gb_per_s,
        tflops=flops if benchmark.flops else None,
        matmul_share=flops / peaks.matmul_tflops if benchmark.flops else None,
        reference_ms=reference_ms,
        speedup=None if reference_ms is None else reference_ms / ms,
        captured=captured,
        problem=problem,
    )


def tune(op: str, timer: Timer, device: str = "cuda") -> Iterator[Tuned]:
    """Time the candidates of an operation's choices; yield nothing for operations without choices."""
    import torch

    tunings = getattr(importlib.import_module(f"burnish_kernels.{op}.cases"), "tunings", None)
    for one in tunings(device) if tunings is not None else ():
        torch.cuda.empty_cache()
        times = [_time_candidate(one, candidate, timer) for candidate in one.candidates]
        working = [ms for ms in times if ms is not None]
        if not working:
            continue
        best, default_ms = min(working), times[0]
        if default_ms is not None and best >= _WORTH_CHANGING * default_ms:
            best = default_ms
        choice = one.candidates[times.index(best)]
        yield Tuned(op, one.key, choice, best, default_ms, failed=len(times) - len(working))


def tune_and_save(op: str, timer: Timer) -> Iterator[Tuned]:
    """Tune an operation on the current GPU, and keep each choice in the user's table as soon as it is made.

    Raises:
        ValueError: No folder for the table is set.
        OSError: The table cannot be written.
    """
    device = tuning.device_of(None)
    assert device is not None
    for tuned in tune(op, timer):
        tuning.save(op, {tuned.key: tuned.choice}, device)
        yield tuned


def _time_candidate(one: tuning.Tuning, candidate: Any, timer: Timer) -> float | None:
    try:
        return timer(lambda: one.run(candidate))
    except Exception:  # noqa: BLE001  too much shared memory, a compiler's bug: this candidate is out
        return None


def header(peaks: PeakRates) -> str:
    """Format the yardsticks as a line."""
    return (
        f"{peaks.device}: copies at {peaks.copy_gb_per_s:,.0f} GB/s (read + written), "
        f"multiplies bf16 at {peaks.matmul_tflops:,.0f} TFLOP/s"
    )


def line(row: BenchmarkRow) -> str:
    """Format a row as a line with columns."""
    text = f"{row.op:<14} {row.name:<40}"
    if row.ms is None:
        return f"{text} {row.problem}"
    text += f" {row.ms:9.4f} ms"
    if row.tflops is not None and row.matmul_share is not None:
        text += f" {row.tflops:7,.0f} TFLOP/s {row.matmul_share:5.0%} of matmul"
    elif row.gb_per_s is not None and row.copy_share is not None:
        text += f" {row.gb_per_s:7,.0f} GB/s    {row.copy_share:5.0%} of copying"
    if row.speedup is not None:
        text += f" {row.speedup:6.1f}x PyTorch"
    return text + (f"  ({row.problem})" if row.problem else "")


def tuned_line(tuned: Tuned) -> str:
    """Format an outcome of tuning as a line."""
    before = "the default does not run here" if tuned.default_ms is None else f"default {tuned.default_ms:.4f} ms"
    failed = f", {tuned.failed} candidates do not run here" if tuned.failed else ""
    return f"{tuned.op:<14} {tuned.key:<40} {tuned.ms:9.4f} ms ({before}{failed})  {tuned.choice}"


def document(peaks: PeakRates, rows: Sequence[BenchmarkRow]) -> str:
    """Return everything as one JSON document."""
    import torch
    import triton

    versions = {"torch": torch.__version__, "triton": triton.__version__}
    return json.dumps({**asdict(peaks), **versions, "rows": [asdict(row) for row in rows]}, indent=1)


def main(arguments: list[str] | None = None) -> int:
    """Time and print; return 1 where there is no GPU."""
    parser = argparse.ArgumentParser(prog="burnish_kernels.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--op", action="append", choices=OPS, help="this operation only; may be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--tune", action="store_true", help=f"first tune, into the folder {tuning.CACHE_VARIABLE}")
    options = parser.parse_args(arguments)
    problem = why_not()
    if problem:
        sys.stderr.write(problem + "\n")
        return 1
    timer, names = CudaTimer(), options.op or OPS

    def say(text: str) -> None:
        (sys.stderr if options.json else sys.stdout).write(text + "\n")

    for op in names if options.tune else ():
        for tuned in tune_and_save(op, timer):
            say(tuned_line(tuned))
    peaks = measure_peaks(timer)
    say(header(peaks))
    rows = []
    for row in measure(names, timer, peaks):
        rows.append(row)
        say(line(row))
    if options.json:
        sys.stdout.write(document(peaks, rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
