"""How far off are predicted steps? A dozen shapes of 0.4B to 4B in bf16, NF4 and INT8, with what a refit needs.

    python tests/bench speed_accuracy --out rows.jsonl [--limit-s 280] [--only qwen2.5-0.5b ...]

Takes less than five minutes on one GPU: kernels are compiled side by side first, then each step is timed (as `burnish
bench step` does, all in this process), then profiled, as long as `--limit-s` lasts. Prints

- the rates that a large copy and a large product reach on this card, beside those that predictions take;
- a table of steps: predicted and measured milliseconds, their ratio (below 1: predicted too fast), INT8's gain to the
  same step in 16 bits, and the gain that `train.products = "auto"` would go by;
- of each profiled step the milliseconds by kind, predicted and measured, and its longest kernels. `gemm` goes by
  `_GEMM_SHARE`, `attention` by `_ATTENTION_SHARE` and `_BACKWARD` (`fast_shape.py`), `8-bit` by `_INT8_SHARE`, `bytes`
  by `_MEMORY_SHARE`, `_MULTIPROCESSOR_BYTES_S` and the counts of numbers moved, `starts` by `_LAYER_S` (where not said,
  in `advise/predict/fast_speed.py`);
- for each of these kinds the median ratio, and the new value of the constant that it asks for.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from burnish_engine.advise.predict import fast_speed
from burnish_engine.bench.documents import packs
from burnish_engine.bench.shapes import shape
from burnish_engine.bench.step import StepBench
from burnish_engine.bench.step_options import StepOptions, parse_keep
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.data.tokens.pack import MicroBatch
from burnish_engine.train.fast.products_choice import ProductTiming, stack_counts
from burnish_kernels.bench import measure_peaks
from burnish_kernels.timer import CudaTimer

from bench.shared.commands import bench_step
from bench.shared.predictions import predicted_ms
from bench.shared.rows import add_row


class Step(NamedTuple):
    """A step to time: shape, format of the frozen weights, of products, what layers keep, tokens."""

    shape: str
    quantize: str = "none"
    products: str = "16"
    keep: str = "products"
    tokens: int = 16384

    @property
    def name(self) -> str:
        """Name of the step in tables."""
        return f"{self.shape} {'nf4' if self.quantize == 'nf4' else 'bf16'}, {self.products}, {self.tokens}"

    @property
    def beside(self) -> Step:
        """The same step with products in 16 bits."""
        return self._replace(products="16")


# The first ones were off most. Constants of predictions were fitted to all of them.
STEPS = [
    Step("qwen2.5-0.5b"),
    Step("qwen2.5-0.5b", products="int8"),
    Step("qwen3-1.7b"),
    Step("qwen3-1.7b", products="int8"),
    Step("qwen3-0.6b"),
    Step("qwen3-0.6b", products="int8"),
    Step("llama-3.2-1b"),
    Step("llama-3.2-1b", products="int8"),
    Step("qwen2.5-1.5b"),
    Step("smollm2-360m"),
    Step("qwen3-4b", "nf4"),
    Step("qwen3-4b", "nf4", "int8"),
    Step("gemma-3-1b"),
    Step("qwen2.5-3b", "nf4"),
    Step("qwen2.5-0.5b", tokens=4096),
    Step("qwen3-1.7b", tokens=4096),
]
CONSTANTS = {"gemm": "_GEMM_SHARE", "attention": "_ATTENTION_SHARE", "8-bit": "_INT8_SHARE", "bytes": "_MEMORY_SHARE"}
_COMPILING = 6  # processes
_WARM_UP, _PROFILED, _KERNELS_SHOWN = 3, 3, 12  # steps, steps that `StepBench.profile` traces, kernels
_LEAST_MS = 0.05  # below it a ratio says nothing
_EIGHT_BIT_PRODUCTS = ("eight_bit_linear", "mxfp8_linear")


def compile_all(steps: list[Step], device: str) -> None:
    """Fill Triton's cache with the kernels of all steps, several processes at once."""

    def compile_one(step: Step) -> None:
        settings = ["--shape", step.shape, "--quantize", step.quantize, "--products", step.products]
        settings += ["--tokens", step.tokens, "--keep", step.keep.rpartition(",")[2], "--layers", 1, "--device", device]
        row = bench_step([*settings, "--steps", 1, "--warm-up", 2])
        if "error" in row:
            print(f"compiling {step.name}: {row['error']}", flush=True)

    with ThreadPoolExecutor(_COMPILING) as pool:
        list(pool.map(compile_one, steps))


def built(step: Step, device: str, count: int) -> StepBench:
    """Make a trainer on random weights of the step's shape."""
    options = StepOptions(
        step.shape, step.tokens, method="qlora" if step.quantize == "nf4" else "lora", products=step.products,
        keep=parse_keep(step.keep), warmup=_WARM_UP, steps=count, device=device,
    )  # fmt: skip
    return StepBench(options)


def free() -> None:
    """Give back the memory of the last step."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def expected_ms(bench: StepBench, batches: Iterable[MicroBatch]) -> list[dict[str, float]]:
    """Predict each of a bench's steps from the lengths of its documents."""
    found = []
    for batch in batches:
        lengths = np.diff(batch.boundaries).astype(float)
        span, tokens = float((lengths**2).sum() / lengths.sum()), round(lengths.sum())
        found.append(predicted_ms(bench, span, int(lengths.max()), tokens))
    return found


def timed(step: Step, device: str, count: int) -> dict[str, Any]:
    """Time a step, beside its prediction."""
    bench = built(step, device, count)
    batches = list(islice(packs(step.tokens), _WARM_UP, _WARM_UP + count))
    lengths = np.concatenate([np.diff(batch.boundaries) for batch in batches]).astype(float)
    span, tokens = float((lengths**2).sum() / lengths.sum()), round(lengths.sum() / count)
    steps = expected_ms(bench, batches)  # of which the median is measured
    expected = {part: statistics.median(one[part] for one in steps) for part in steps[0]}
    report = bench.run()
    return {
        **step._asdict(), "span": span, "filled": tokens, "layers": bench.spec.num_layers, "predicted": expected,
        "measured_ms": report["step_ms"], "tok_s": report["tok_s"], "ratio": expected["total"] / report["step_ms"],
        "device": report["device"], "graphs": report["graphs"], "gib": report.get("peak_allocated_gib"),
    }  # fmt: skip


def profiled(step: Step, device: str) -> dict[str, Any]:
    """Sum up a step's kernels by the kinds of the prediction."""
    bench = built(step, device, 1)
    bench.run()  # the first step runs eagerly, the second captures
    found = bench.profile()
    names = {name.strip(): ms for name, ms in found.items() if name.startswith("  ")}
    eight = sum(ms for name, ms in names.items() if any(part in name for part in _EIGHT_BIT_PRODUCTS))
    kinds = {"gemm": found.get("gemm", 0.0), "attention": found.get("attention", 0.0), "8-bit": eight}
    kinds |= {"bytes": found.get("other", 0.0) + found.get("copy", 0.0) - eight, "starts": found["idle"]}
    first = _WARM_UP + 2  # one step was timed, one more ran before the trace
    steps = expected_ms(bench, islice(packs(step.tokens), first, first + _PROFILED))
    expected = {part: statistics.fmean(one[part] for one in steps) for part in steps[0]}
    return {"kinds": kinds, "kernels": names, "predicted_kinds": expected}


def gain_by_auto(step: Step, device: torch.device) -> float:
    """Return the share of the products' time that INT8 saves, as `train.products = "auto"` times it."""
    spec = shape(step.shape)
    timing = ProductTiming(step.quantize, torch.bfloat16, 4096, device)
    times = timing.times_ms(["16", "int8"], stack_counts(spec, AdapterSection()), CudaTimer)
    return 1 - times["int8"] / times["16"]


def show_table(rows: list[dict[str, Any]]) -> None:
    """Print all timed steps."""
    by_step = {Step(*(row[name] for name in Step._fields)): row for row in rows}
    print(f"\n{'step':34s} {'predicted':>9s} {'measured':>9s} {'ratio':>6s} {'tok/s':>8s}  INT8's gain: "
          "step measured, step predicted, products timed by auto")  # fmt: skip
    for step, row in by_step.items():
        line = f"{step.name:34s} {row['predicted']['total']:9.1f} {row['measured_ms']:9.1f} {row['ratio']:6.3f}"
        line += f" {row['tok_s']:8.0f}"
        if step.products != "16" and (plain := by_step.get(step.beside)):
            real = 1 - row["measured_ms"] / plain["measured_ms"]
            expected = 1 - row["predicted"]["total"] / plain["predicted"]["total"]
            line += f"  {real:+7.1%} {expected:+7.1%} {row.get('auto_gain', float('nan')):+7.1%}"
        print(line)
    ratios = [row["ratio"] for row in rows]
    print(f"all: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}; wanted 0.95 to 1.05")


def show_profile(row: dict[str, Any]) -> None:
    """Print a step's time by kind, and its longest kernels."""
    step, kinds = Step(*(row[name] for name in Step._fields)), row["kinds"]
    print(f"\n{step.name}: milliseconds by kind, predicted and measured ('starts' measured: idle)")
    print("  " + "   ".join(f"{kind} {row['predicted_kinds'][kind]:.2f} {kinds[kind]:.2f}" for kind in kinds))
    for name, ms in islice(row["kernels"].items(), _KERNELS_SHOWN):
        print(f"  {ms:8.3f} {name}")


def show_refit(rows: list[dict[str, Any]]) -> None:
    """Print what each constant would have to be, by the median of the profiled steps."""
    print("\nkind: predicted / measured of each profiled step; median; the constant that it asks for")
    for kind, constant in CONSTANTS.items():
        ratios = [
            row["predicted_kinds"][kind] / row["kinds"][kind]
            for row in rows
            if min(row["predicted_kinds"][kind], row["kinds"][kind]) > 0.05
        ]
        if ratios:
            middle, now = statistics.median(ratios), getattr(fast_speed, constant)
            listed = " ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"{kind}: {listed}; {middle:.3f}; {constant} {now} -> {now * middle:.3f}")
    kernels = [
        (row["predicted_kinds"]["bytes"], row["layers"], row["kinds"]["bytes"] + row["kinds"]["starts"]) for row in rows
    ]
    if len(kernels) > 2:
        matrix, wanted = np.array([one[:2] for one in kernels]), np.array([one[2] for one in kernels])
        (factor, each), *_ = np.linalg.lstsq(matrix, wanted, rcond=None)
        print(f"least squares of bytes + starts: bytes x {factor:.3f}, {1000 * each:.0f} us a layer (_LAYER_S: "
              f"{1e6 * fast_speed._LAYER_S:.0f} us)")  # fmt: skip


def measure(options: argparse.Namespace, steps: list[Step], began: float) -> Iterator[dict[str, Any]]:
    """Time all steps, then profile them, until the time is up; yields each row when it is whole."""
    rows: dict[Step, dict[str, Any]] = {}

    def on_time(share: float) -> bool:
        return time.monotonic() - began < share * options.limit_s

    for step in (one for one in steps if on_time(0.8)):
        try:
            rows[step] = timed(step, options.device, options.steps)
            if step.products != "16" and options.device == "cuda":
                rows[step]["auto_gain"] = gain_by_auto(step, torch.device("cuda"))
            print(f"{time.monotonic() - began:5.0f} s  {step.name:34s} ratio {rows[step]['ratio']:.3f}", flush=True)
        except Exception as problem:  # noqa: BLE001 the other steps are still worth their time
            print(f"{step.name}: {type(problem).__name__}: {problem}", flush=True)
        free()
    if options.device == "cuda":  # after all timing: the profiler's hooks stay
        for step in (one for one in rows if on_time(1.0)):
            rows[step] |= profiled(step, options.device)
            free()
    yield from rows.values()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", choices=sorted({step.shape for step in STEPS}))
    parser.add_argument("--limit-s", type=float, default=280, help="no further step begins after that")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tokens", type=int, default=0, help="of each step, instead of what the list says")
    options = parser.parse_args()
    began = time.monotonic()
    steps = [step for step in STEPS if not options.only or step.shape in options.only]
    if options.tokens:
        steps = list(dict.fromkeys(step._replace(tokens=options.tokens) for step in steps))
    if options.device == "cuda":
        compile_all(steps, options.device)
        peaks = measure_peaks(CudaTimer())
        print(f"{peaks.device}: a large copy {peaks.copy_gb_per_s:.0f} GB/s, a large product {peaks.matmul_tflops:.0f} "
              "TFLOP/s")  # fmt: skip
    rows = list(measure(options, steps, began))
    for row in rows:
        if options.out:
            add_row(options.out, row)
    whole = [row for row in rows if "kinds" in row]
    for row in whole:
        show_profile(row)
    show_refit(whole)
    show_table(rows)
    print(f"{time.monotonic() - began:.0f} s in all, {len(rows)} of {len(steps)} steps timed, {len(whole)} profiled")


if __name__ == "__main__":
    main()
