"""Time many configurations of each kernel on a GPU; the numbers in `config.py` come from it.

Unlike `burnish bench kernels --tune`, which chooses for tiles of one height, this tries other heights as well, shows
everything it timed, and ends with FlashAttention-2's times on the same packs.

As a program: `python -m burnish_kernels.attention.tune [MODEL...]`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from burnish_kernels.attention import op
from burnish_kernels.attention.benchmark_pack import BENCHMARKED, BENCHMARKED_ROWS, BenchmarkPack
from burnish_kernels.attention.candidates import KERNELS
from burnish_kernels.attention.candidates import candidates as listed
from burnish_kernels.attention.config import AttentionConfig, KernelConfig, choose_config, padded
from burnish_kernels.timer import why_not

SEEDS = (2, 5)  # packs that every candidate is timed on: sums of squared lengths of 8.7 and 7.7 million
PRODUCTS = {"forward": 2, "dq": 3, "dkdv": 4}
"""Matrix products of a kernel, of 2 D operations a pair of query and key each."""

OTHER_HEIGHTS: dict[tuple[int, str], tuple[tuple[int, tuple[int, ...]], ...]] = {
    (64, "forward"): ((128, (1, 64, 8, 2, 128, 1)), (32, (4, 64, 8, 2, 128, 1)), (32, (2, 64, 4, 2, 128, 1))),
    (64, "dq"): ((128, (1, 64, 8, 2, 128, 1)), (32, (4, 64, 8, 2, 128, 1)), (32, (2, 64, 4, 2, 128, 1))),
    (64, "dkdv"): ((128, (4, 64, 8, 2, 0, 0)), (128, (2, 32, 8, 3, 128, 0))),
    (128, "forward"): ((128, (1, 32, 8, 3, 128, 1)), (32, (4, 32, 8, 3, 128, 1)), (32, (2, 32, 4, 3, 128, 1))),
    (128, "dq"): ((128, (1, 32, 8, 2, 128, 1)), (32, (4, 32, 8, 2, 128, 1)), (32, (2, 32, 4, 2, 168, 1))),
    (128, "dkdv"): ((128, (4, 32, 8, 2, 0, 0)), (128, (2, 32, 8, 2, 0, 1))),
}
"""Configurations for tiles of another height than the chosen one: height, then fields of `KernelConfig`."""

_COMPILING_THREADS = 12
_FLASH_PACKS = 6  # packs that FlashAttention-2 is compared on
_WRONG = 0.02  # relative difference of two results in bf16 that rounding does not explain


@dataclass(frozen=True)
class Timed:
    """One timed configuration of one kernel.

    Attributes:
        kernel: name of the kernel.
        tile_rows: height of the tiles.
        config: other settings of the kernel.
        ms: mean over the packs of the median time.
        tflops: operations on visible pairs, in 10^12 per second.
        problem: reason why it was not timed; empty where it was.
    """

    kernel: str
    tile_rows: int
    config: KernelConfig
    ms: float = float("inf")
    tflops: float = 0.0
    problem: str = ""


def candidates(head_dim: int, dtype: torch.dtype, *, capability: int, group: int) -> list[Timed]:
    """List the configurations to time, untimed; of each kernel the chosen one first."""
    height = choose_config(head_dim, dtype, capability, group).tile_rows
    found = []
    for kernel in KERNELS:
        found += [Timed(kernel, height, one) for one in listed(kernel, head_dim, dtype, capability, group)]
        others = OTHER_HEIGHTS.get((padded(head_dim), kernel), ()) if dtype != torch.float32 else ()
        tried = [(rows, KernelConfig(*fields)) for rows, fields in others if rows != height]
        found += [Timed(kernel, rows, one) for rows, one in tried if group % one.heads == 0]
    return found


def tune(heads: int, kv_heads: int, head_dim: int) -> list[Timed]:
    """Time all candidates in bf16, fastest first within each kernel; failing ones come last, with the reason.

    Args:
        heads: number of query heads.
        kv_heads: number of key heads.
        head_dim: size of a head.
    """
    dtype, device = torch.bfloat16, "cuda"
    capability = op.capability(device)
    assert capability is not None
    packs = [BenchmarkPack(heads, kv_heads, head_dim, device, seed=seed, dtype=dtype) for seed in SEEDS]
    chosen = choose_config(head_dim, dtype, capability, heads // kv_heads)
    for pack in packs:
        pack.launch("dq", chosen.tile_rows, chosen.dq)  # makes delta, which dK/dV reads
    tried = candidates(head_dim, dtype, capability=capability, group=heads // kv_heads)
    for one in tried:
        packs[0].documents(one.tile_rows)  # before the threads ask for them all at once
    with ThreadPoolExecutor(_COMPILING_THREADS) as pool:
        list(pool.map(lambda one: _problem(one, packs[0]), tried))  # only to have them compiled side by side
    torch.cuda.synchronize()
    expected: dict[str, list[torch.Tensor]] = {}
    timed = [_timed(one, packs, expected) for one in tried]
    return sorted(timed, key=lambda one: (KERNELS.index(one.kernel), one.ms))


def _problem(one: Timed, pack: BenchmarkPack) -> str:
    """Compile and run once; return the error as a line, or an empty text."""
    try:
        pack.launch(one.kernel, one.tile_rows, one.config)
    except Exception as error:  # noqa: BLE001  too much shared memory, a compiler's bug: this one is out
        return f"{type(error).__name__}: {' '.join(str(error).split())[:90]}"
    return ""


def _timed(one: Timed, packs: list[BenchmarkPack], expected: dict[str, list[torch.Tensor]]) -> Timed:
    from triton.testing import do_bench

    problem = _problem(one, packs[0])
    if problem:
        return replace(one, problem=problem)
    results = packs[0].results(one.kernel)
    if one.kernel not in expected:
        expected[one.kernel] = [tensor.float().clone() for tensor in results]
    pairs = zip(results, expected[one.kernel], strict=True)
    if any(not float((found - right).norm()) <= _WRONG * float(right.norm()) for found, right in pairs):
        return replace(one, problem="its result differs from the first one's")
    runs = [partial(pack.launch, one.kernel, one.tile_rows, one.config) for pack in packs]
    times = [float(do_bench(run, warmup=4, rep=25, return_mode="median")) for run in runs]
    flops = 2 * PRODUCTS[one.kernel] * packs[0].width * sum(pack.pairs for pack in packs)
    return replace(one, ms=sum(times) / len(times), tflops=flops / sum(times) * 1e-9)


def fastest(timed: list[Timed], tile_rows: int) -> AttentionConfig:
    """Return the fastest configuration of each kernel at one height."""
    best = {}
    for kernel in KERNELS:
        best[kernel] = next(one.config for one in timed if (one.kernel, one.tile_rows) == (kernel, tile_rows))
    return AttentionConfig(tile_rows, **best)


def against_flash(heads: int, kv_heads: int, head_dim: int, *, config: AttentionConfig) -> str:
    """Time both passes with a configuration and with FlashAttention-2, as means over more packs."""
    from triton.testing import do_bench

    def ms(run: Callable[[], Any]) -> float:
        return float(do_bench(run, warmup=5, rep=30, return_mode="median"))

    ours, theirs, visible = [], [], 0
    for seed in range(_FLASH_PACKS):
        pack = BenchmarkPack(heads, kv_heads, head_dim, "cuda", seed=seed, dtype=torch.bfloat16)
        visible += pack.pairs
        launches = [partial(pack.launch, kernel, config.tile_rows, getattr(config, kernel)) for kernel in KERNELS]
        ours.append([ms(launch) for launch in launches])
        flash = pack.flash()
        if flash is not None:
            forward = ms(flash[0])
            theirs.append([forward, ms(flash[1]) - forward])
    means = [sum(column) / _FLASH_PACKS for column in zip(*ours, strict=True)]
    flops = 2 * head_dim * visible / _FLASH_PACKS
    text = f"ours: forward {means[0]:.4f} ms ({2 * flops / means[0] * 1e-9:.0f} TFLOP/s)"
    text += f", backward {means[1] + means[2]:.4f} = dq {means[1]:.4f} + dkdv {means[2]:.4f}"
    text += f" ({5 * flops / (means[1] + means[2]) * 1e-9:.0f} TFLOP/s of five products)"
    if theirs:
        flash_ms = [sum(column) / _FLASH_PACKS for column in zip(*theirs, strict=True)]
        text += f"\nFlashAttention-2: forward {flash_ms[0]:.4f} ms, backward {flash_ms[1]:.4f} ms"
    return text


def line(one: Timed) -> str:
    """Format one row of the table."""
    fields = one.config
    text = f"{one.kernel:<8} tile {one.tile_rows:>3} heads {fields.heads} block {fields.block:>3} warps {fields.warps}"
    text += f" stages {fields.stages} registers {fields.registers or '-':>3} branch {fields.branch}"
    return f"{text}  {one.problem}" if one.problem else f"{text}  {one.ms:8.4f} ms {one.tflops:6.0f} TFLOP/s"


def main(arguments: list[str] | None = None) -> int:
    """Tune for the models named, all by default; return 1 where there is no GPU."""
    parser = argparse.ArgumentParser(prog="burnish_kernels.attention.tune", description=main.__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(BENCHMARKED)}")
    options = parser.parse_args(arguments)
    problem = why_not()
    if problem:
        sys.stderr.write(problem + "\n")
        return 1
    for name in options.models or BENCHMARKED:
        heads, kv_heads, head_dim = BENCHMARKED[name]
        sys.stdout.write(f"{name}: {heads}/{kv_heads} heads of {head_dim}, {BENCHMARKED_ROWS} rows\n")
        timed = tune(heads, kv_heads, head_dim)
        sys.stdout.write("".join(f"  {line(one)}\n" for one in timed))
        height = op.tile_rows(head_dim, torch.bfloat16, "cuda")
        config = fastest(timed, height)
        sys.stdout.write(f"  {config}\n")
        sys.stdout.write(against_flash(heads, kv_heads, head_dim, config=config).replace("\n", "\n  ") + "\n")
        sys.stdout.flush()
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
