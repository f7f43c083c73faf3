"""Speed of training on the CPU beside as many other programs as cores, by how long OpenMP's threads spin.

    python tests/bench busy_cpu [--spins 10000 1000 100 0] [--cores 2] [--turns 2] [--seconds 6]

Each figure is a process of its own, by turns, on the first cores alone: forward and backward of eight decoder layers of
the embedded model's sizes, first with the cores idle, then beside one endless loop for each core. Threads are as many
as cores; last, one thread alone. The ratio of both speeds is the result. Linux only.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

TOKENS, HIDDEN, WIDE, HEADS, LAYERS, RANK = 256, 576, 1536, 9, 8, 16
_STEP, _LOOP = "--step", "while True: pass"


def run_steps(threads: int, seconds: float) -> float:
    """Return the tokens per second of steps through frozen layers with adapters."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    sizes = [(HIDDEN, 3 * HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 2 * WIDE), (WIDE, HIDDEN)]
    layers = [
        [(torch.randn(k, n) * k**-0.5, *(torch.full(size, 1e-3, requires_grad=True) for size in ((k, RANK), (RANK, n))))
         for k, n in sizes]
        for _ in range(LAYERS)
    ]  # fmt: skip

    def project(x: torch.Tensor, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        weight, a, b = parts
        return x @ weight + (x @ a) @ b

    def step() -> None:
        x = torch.randn(TOKENS, HIDDEN)
        for mix, out, up, down in layers:
            joined = project(functional.rms_norm(x, (HIDDEN,)), mix)
            q, k, v = joined.view(TOKENS, 3, HEADS, -1).permute(1, 2, 0, 3)
            mixed = functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
            x = x + project(mixed.transpose(0, 1).reshape(TOKENS, HIDDEN), out)
            gate, wide = project(functional.rms_norm(x, (HIDDEN,)), up).chunk(2, dim=1)
            x = x + project(functional.silu(gate) * wide, down)
        x.square().mean().backward()

    step()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        count += 1
    return count * TOKENS / (time.perf_counter() - began)


def measure(loops: int, threads: int, spins: int, seconds: float) -> float:
    """Return the speed of a process of its own beside endless loops on the same cores."""
    others = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(loops)]
    try:
        environment = os.environ | {"GOMP_SPINCOUNT": str(spins)}
        command = [sys.executable, __file__, _STEP, str(threads), str(seconds)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return float(done.stdout)
    finally:
        for loop in others:
            loop.kill()
            loop.wait()


def main() -> int:
    """Measure each way by turns and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spins", type=int, nargs="+", default=[10000, 1000, 100, 0])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=6.0)
    asked = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: asked.cores])  # all processes below inherit it
    ways = [(asked.cores, spins) for spins in asked.spins] + [(1, asked.spins[0])]
    found: dict[tuple[tuple[int, int], bool], list[float]] = {}
    for _ in range(asked.turns):
        for way in ways:
            for busy in (False, True):
                loops = asked.cores if busy else 0
                found.setdefault((way, busy), []).append(measure(loops, *way, asked.seconds))
    for way in ways:
        idle, loaded = (statistics.median(found[way, busy]) for busy in (False, True))
        print(
            f"{way[0]} threads, GOMP_SPINCOUNT={way[1]}: {idle:.0f} tok/s idle, {loaded:.0f} busy, {loaded / idle:.2f}"
        )
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == [_STEP]:
        print(run_steps(int(sys.argv[2]), float(sys.argv[3])))
    else:
        sys.exit(main())
