"""Measure the speed of copies and all-reduces, as a process that the doctor starts on request. Prints JSON.

Counts GPUs as NVML does. With `--all-reduce RANK GPUS STORE` it is one of the processes of the all-reduce.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # CUDA counts the fastest GPU first unless told to count as NVML does. Before torch looks.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    # One process sees every GPU: positions would otherwise not be NVML's.
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)

import torch

_COPY_BYTES = 256 * 2**20
_PINNED_BYTES = 128 * 2**20
_SMALLEST_BYTES = 16
_SMALLEST_REPEATS = 200
_MEASURE_S = 0.4
_REDUCE_BYTES = 168_000_000
"""The fp32 gradients of a rank-16 adapter on all seven projections of an 8B model (42 million parameters)."""
_REDUCE_S = 1.0
_REDUCE_TIMEOUT_S = 90


def seconds_each(
    queue: Callable[[], object], finish: Callable[[], None], during: Callable[[], None] = lambda: None
) -> float:
    """Measure the seconds of one action, averaged over as many as fill the measuring time.

    Args:
        queue: function that queues the action once.
        finish: function that waits until everything queued is done.
        during: function called once while the measured actions run.
    """
    queue()
    finish()
    began = time.perf_counter()
    queue()
    finish()
    repeats = max(3, min(2000, int(_MEASURE_S / max(time.perf_counter() - began, 1e-6))))
    began = time.perf_counter()
    for _ in range(repeats):
        queue()
    during()
    finish()
    return (time.perf_counter() - began) / repeats


def measure_pcie(gpu: int) -> dict[str, Any]:
    """Measure copies between pinned host memory and one GPU, and the link's generation and width meanwhile."""
    host = torch.empty(_PINNED_BYTES, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(_PINNED_BYTES, dtype=torch.uint8, device=f"cuda:{gpu}")
    link: dict[str, int | None] = {}

    def finish() -> None:
        torch.cuda.synchronize(gpu)

    to_gpu = seconds_each(
        lambda: device.copy_(host, non_blocking=True), finish, during=lambda: link.update(_pcie_link(gpu))
    )
    from_gpu = seconds_each(lambda: host.copy_(device, non_blocking=True), finish)
    return {
        "gpu": gpu,
        "to_gpu_gb_s": _PINNED_BYTES / to_gpu / 1e9,
        "from_gpu_gb_s": _PINNED_BYTES / from_gpu / 1e9,
        **link,
    }


def measure_host_copies(count: int) -> dict[str, Any]:
    """Measure copies between pinned host memory and several GPUs at once: to them, from them, and both ways.

    Returns:
        The fields of `contract.facts.machine.HostCopiesFacts`: sums over all GPUs, each of which has pieces of host
        memory of its own, as ranks have. All copies of a kind begin together, so the slowest GPU sets the rate.
    """
    gpus, ways = range(count), ("to", "from")
    host = {(gpu, way): torch.empty(_PINNED_BYTES, dtype=torch.uint8, pin_memory=True) for gpu in gpus for way in ways}
    device = {(gpu, way): torch.empty_like(piece, device=f"cuda:{gpu}") for (gpu, way), piece in host.items()}
    streams = {(gpu, way): torch.cuda.Stream(device=gpu) for gpu, way in host}

    def copy(*chosen: str) -> None:
        for gpu in gpus:
            for way in chosen:
                source, target = (host, device) if way == "to" else (device, host)
                with torch.cuda.stream(streams[gpu, way]):
                    target[gpu, way].copy_(source[gpu, way], non_blocking=True)

    def finish() -> None:
        for gpu in gpus:
            torch.cuda.synchronize(gpu)

    finish()

    def rate(*chosen: str) -> float:
        return len(chosen) * count * _PINNED_BYTES / seconds_each(lambda: copy(*chosen), finish) / 1e9

    return {
        "gpus": count,
        "to_gpus_gb_s": rate("to"),
        "from_gpus_gb_s": rate("from"),
        "both_ways_gb_s": rate("to", "from"),
    }


def _pcie_link(gpu: int) -> dict[str, int | None]:
    """Return NVML's current generation and width of the link; None where it does not tell."""
    import pynvml

    found: dict[str, int | None] = {"generation": None, "width": None}
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
        found["generation"] = pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)
        found["width"] = pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle)
    return found


def measure_pair(first: int, second: int) -> dict[str, Any]:
    """Measure copies between two GPUs (one way, both ways, the smallest one) and check that data arrives intact."""
    gpus = (first, second)
    source = [torch.randint(0, 256, (_COPY_BYTES,), dtype=torch.uint8, device=f"cuda:{gpu}") for gpu in gpus]
    target = [torch.zeros_like(tensor) for tensor in source]
    streams = [torch.cuda.Stream(device=gpu) for gpu in gpus]

    def send(sender: int, count: int = _COPY_BYTES) -> None:
        with torch.cuda.stream(streams[sender]):
            target[1 - sender][:count].copy_(source[sender][:count], non_blocking=True)

    def both() -> None:
        send(0)
        send(1)

    def finish() -> None:
        for gpu in gpus:
            torch.cuda.synchronize(gpu)

    finish()  # the copies run on streams of their own, which do not wait for what made the tensors

    def smallest() -> None:
        for _ in range(_SMALLEST_REPEATS):
            send(0, _SMALLEST_BYTES)

    ways = [_COPY_BYTES / seconds_each(lambda way=way: send(way), finish) / 1e9 for way in (0, 1)]  # type: ignore[misc]
    two_ways = 2 * _COPY_BYTES / seconds_each(both, finish) / 1e9
    intact = all(torch.equal(target[1 - way].cpu(), source[way].cpu()) for way in (0, 1))
    return {
        "first": first,
        "second": second,
        "copy_gb_s": min(ways),
        "both_ways_gb_s": two_ways,
        "latency_us": seconds_each(smallest, finish) / _SMALLEST_REPEATS * 1e6,
        "peer_access": torch.cuda.can_device_access_peer(first, second)
        and torch.cuda.can_device_access_peer(second, first),
        "intact": intact,
    }


def measure_all_reduce(count: int) -> tuple[float | None, str]:
    """Return (bytes of the buffer / time in 10^9 bytes/s, reason of a failure) with one process a GPU."""
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return None, "this torch has no NCCL (Windows has none)"
    with tempfile.TemporaryDirectory() as folder:
        processes = [_Member(rank, count, Path(folder)) for rank in range(count)]
        try:
            deadline = time.monotonic() + _REDUCE_TIMEOUT_S
            while (codes := [member.process.poll() for member in processes]).count(None) and not any(codes):
                if time.monotonic() > deadline:
                    return None, f"no answer within {_REDUCE_TIMEOUT_S} s: NCCL hangs on these links"
                time.sleep(0.05)
        finally:
            for member in processes:
                member.end()
        failed = next((member for member, code in zip(processes, codes, strict=True) if code), None)
        if failed:
            return None, f"exit code {failed.process.returncode}: {failed.last_line(failed.stderr)}"
        return min(float(member.last_line(member.stdout)) for member in processes), ""


class _Member:
    """One process of the all-reduce. It writes to files, since a pipe that no one reads fills up and blocks."""

    def __init__(self, rank: int, count: int, folder: Path) -> None:
        self.stdout, self.stderr = folder / f"{rank}.out", folder / f"{rank}.err"
        module = "burnish_engine.models.device.link_check"
        command = [sys.executable, "-P", "-m", module, "--all-reduce", str(rank), str(count), str(folder / "store")]
        with self.stdout.open("wb") as out, self.stderr.open("wb") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err)

    def end(self) -> None:
        """Make sure that the process is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def last_line(self, file: Path) -> str:
        """Return the last line that the process wrote to a file."""
        lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "no message"


def all_reduce(rank: int, count: int, store: str) -> float:
    """Run one process of the all-reduce; return its rate in 10^9 bytes/s.

    Raises:
        RuntimeError: The sum that arrived is wrong.
    """
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method=Path(store).as_uri(), rank=rank, world_size=count)
    try:
        values = torch.full((_REDUCE_BYTES // 4,), float(rank + 1), device=f"cuda:{rank}")
        torch.distributed.all_reduce(values)
        if not bool((values == count * (count + 1) / 2).all()):
            raise RuntimeError("the all-reduce gave a wrong sum")
        values.zero_()  # repeated sums would overflow
        once = _all_reduce_s(values, 3)
        repeats = torch.tensor([max(3, min(5000, int(_REDUCE_S / once)))], device=values.device)
        torch.distributed.broadcast(repeats, src=0)  # all must join in each
        return _REDUCE_BYTES / _all_reduce_s(values, int(repeats)) / 1e9
    finally:
        torch.distributed.destroy_process_group()


def _all_reduce_s(values: torch.Tensor, repeats: int) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        torch.distributed.all_reduce(values)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / repeats


def main() -> None:
    """Measure everything, or take part in an all-reduce."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--all-reduce"]:
        sys.stdout.write(f"{all_reduce(int(arguments[1]), int(arguments[2]), arguments[3])}\n")
        return
    began = time.perf_counter()
    count = torch.cuda.device_count()
    result: dict[str, Any] = {
        "pcie": [measure_pcie(gpu) for gpu in range(count)],
        "host_copies": measure_host_copies(count) if count > 1 else None,
        "links": [measure_pair(first, second) for first, second in combinations(range(count), 2)],
        "all_reduce_gb_s": None,
        "all_reduce_problem": "",
    }
    torch.cuda.empty_cache()  # the processes of the all-reduce need room of their own
    if count > 1:
        result["all_reduce_gb_s"], result["all_reduce_problem"] = measure_all_reduce(count)
    result["seconds"] = time.perf_counter() - began
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
