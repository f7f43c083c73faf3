"""How a step's time grows with the documents' length, predicted beside measured, and attention's kernels alone.

    python tests/bench row_lengths --out rows.jsonl [--only qwen2.5-0.5b ...] [--steps 6]

Each shape is built once; passes of 16,384 tokens with documents of one length each, and of the lengths of instruction
data (0), go through the same captured graphs. For the shortest and the longest documents the kernels of a step are
summed up by kind. Then attention's kernels are timed alone, which runs the card cooler than a step does.
"""

from __future__ import annotations

import argparse
import gc
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from burnish_engine.bench.documents import packs
from burnish_engine.bench.step import StepBench
from burnish_engine.bench.step_options import StepOptions, parse_keep
from burnish_kernels.attention import op
from burnish_kernels.attention.benchmark_pack import BENCHMARKED_ROWS, BenchmarkPack
from burnish_kernels.attention.candidates import KERNELS
from burnish_kernels.attention.config import choose_config

from bench.shared.predictions import predicted_ms
from bench.shared.rows import add_row

TOKENS = BENCHMARKED_ROWS
LENGTHS = (0, 181, 1024, 4096, 16384)
# Shape: method, and what layers keep.
SHAPES = {
    "qwen2.5-0.5b": ("lora", "products"),
    "llama-3.2-1b": ("lora", "products"),
    "qwen3-4b": ("qlora", "narrow:29,products"),
    "qwen3-0.6b": ("lora", "products"),
    "lfm2.5-1.2b": ("lora", "rotated"),
    "gemma-3-4b": ("qlora", "narrow:20,products"),
}
USUAL = ("qwen2.5-0.5b", "llama-3.2-1b", "qwen3-4b")
# Query heads, key heads, size of a head: those of the shapes, and groups of two and of one with as many heads.
HEADS = ((14, 2, 64), (32, 8, 64), (32, 8, 128), (16, 8, 128), (8, 4, 256), (40, 8, 128), (9, 3, 64))
_COMPILING_THREADS = 12
_WARM_UP = 2  # steps: the first runs eagerly, the second captures


def steps_of(shape: str, steps: int, lengths: list[int]) -> list[dict[str, Any]]:
    """Time steps of a shape at each length of the documents."""
    method, keep = SHAPES[shape]
    options = StepOptions(shape, TOKENS, method=method, keep=parse_keep(keep), steps=steps, warmup=_WARM_UP)
    bench, rows = StepBench(options), []
    for length in lengths:
        bench.packs = packs(TOKENS, 20 * -(-TOKENS // (length or 200)), length=length)
        counts = np.concatenate([np.diff(one.boundaries) for one in islice(bench.packs, _WARM_UP, _WARM_UP + steps)])
        with bench.prefetcher(0, _WARM_UP + steps) as prefetcher:
            for _ in range(_WARM_UP):
                bench.step(prefetcher)
            list(bench.trainer.results(wait=True))
            tokens, times = bench.time_steps(prefetcher, steps)
            list(bench.trainer.results(wait=True))
        mean = sum(tokens) / steps
        span, measured = float((counts.astype(float) ** 2).sum() / counts.sum()), float(np.median(times))
        expected = predicted_ms(bench, span, int(counts.max()), round(mean))["total"]
        row = {
            "shape": shape, "length": length, "span": span, "tokens": mean, "measured_ms": measured,
            "predicted_ms": expected, "tok_s": 1000 * mean / measured, "off": measured / expected - 1,
        }  # fmt: skip
        if length in (lengths[0], lengths[-1]):
            row["profile"] = bench.profile()
        rows.append(row)
    return rows


def kernels_of(heads: tuple[int, int, int], lengths: list[int]) -> list[dict[str, Any]]:
    """Time attention's kernels alone on documents of each length."""
    from triton.testing import do_bench

    count, keys, width = heads
    capability = op.capability("cuda")
    config, rows = choose_config(width, torch.bfloat16, capability, count // keys), []
    for length in lengths:
        several = [length] * (TOKENS // length) if length else None
        if several and (left := TOKENS - sum(several)):
            several.append(left)
        pack = BenchmarkPack(count, keys, width, "cuda", seed=2, dtype=torch.bfloat16, lengths=several)
        row: dict[str, Any] = {"heads": heads, "length": length, "pairs": pack.pairs / count}
        for kernel in KERNELS:
            launch = partial(pack.launch, kernel, config.tile_rows, getattr(config, kernel))
            row[kernel] = float(do_bench(launch, warmup=5, rep=20, return_mode="median"))
        rows.append(row)
    return rows


def compile_all() -> None:
    """Compile the kernels of all heads side by side."""

    def compile_one(heads: tuple[int, int, int]) -> None:
        pack = BenchmarkPack(*heads, "cuda", seed=2, dtype=torch.bfloat16)
        pack.backward()

    with ThreadPoolExecutor(_COMPILING_THREADS) as pool:
        list(pool.map(compile_one, HEADS))
    torch.cuda.synchronize()


def main() -> None:
    """Measure, write a row for each measurement, and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=SHAPES, default=USUAL)
    parser.add_argument("--lengths", nargs="*", type=int, default=LENGTHS)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--no-kernels", action="store_true")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()

    def write(row: dict[str, Any]) -> None:
        add_row(options.out, row)
        kinds = {name: round(value, 2) for name, value in row.pop("profile", {}).items() if not name.startswith("  ")}
        shown = {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}
        print(f"{time.perf_counter() - began:6.1f} s", shown, kinds or "", flush=True)

    for shape in options.only:
        for row in steps_of(shape, options.steps, list(options.lengths)):
            write(row)
        gc.collect()
        torch.cuda.empty_cache()
    if not options.no_kernels:
        compile_all()
        for heads in HEADS:
            for row in kernels_of(heads, list(options.lengths)):
                write(row)


if __name__ == "__main__":
    main()
