"""Times of 8-bit and 16-bit products on a card: frozen stacks of three models, both directions, at 16,384 rows.

    python tests/bench eight_bit_products [--seconds 85] [--models qwen3-4b ...] [--codes int8]
        [--out results.jsonl]

For every stack: cuBLAS in bf16 (`mm`), our 16-bit stacked product with its adapters (`stacked`), `torch._scaled_mm`
with row-wise scales (`scaled`: fast accumulation, `slow`: without; for INT8 `torch._int_mm`, which has no scales), our
8-bit product with every candidate tile (the fastest is `ours`; in INT8 the input's gradient is rotated back, and `flat`
is without it, with the tile that is chosen then), and what comes with it: rows quantized (`quant`), the weight's codes
transposed (`turn`), the adapter's narrow product (`narrow`). Ratios are to `mm`: `ours` alone, with `turn`
(quantization fused into the kernels before), with `quant` too; the last compares all of ours with `stacked`. Errors are
relative to the product of the quantized operands in double precision, on some rows. Returns 1 where one is above 2^-7.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from burnish_kernels.eight_bit_linear.op import (
    CODES,
    INT8,
    EightBitRows,
    eight_bit_linear,
    quantize_rows,
    transpose_codes,
)
from burnish_kernels.eight_bit_linear.reference import rotate, rotation_of
from burnish_kernels.eight_bit_linear.tiles import HOPPER_CANDIDATES, HOPPERS, OTHERS, EightBitTile
from burnish_kernels.lora_linear import op as lora_linear
from burnish_kernels.lora_linear.stack import Stack, StackedAdapter

from bench.kernels.timing import compile_in_processes, milliseconds
from bench.shared.rows import Rows

# Outputs of each projection and inputs of the stack.
MODELS = {
    "qwen3-4b": {
        "qkv": ((4096, 1024, 1024), 2560),
        "o": ((2560,), 4096),
        "gate-up": ((9728, 9728), 2560),
        "down": ((2560,), 9728),
    },
    "llama-3.2-1b": {
        "qkv": ((2048, 512, 512), 2048),
        "o": ((2048,), 2048),
        "gate-up": ((8192, 8192), 2048),
        "down": ((2048,), 8192),
    },
    "qwen3-0.6b": {
        "qkv": ((2048, 1024, 1024), 1024),
        "o": ((1024,), 2048),
        "gate-up": ((3072, 3072), 1024),
        "down": ((1024,), 3072),
    },
}
RANK, TOKENS = 16, 16384
CHECKED_ROWS = 128
LARGEST_ERROR = 2.0**-7
WORKERS = 4
COLUMNS = ("mm", "stacked", "scaled", "slow", "ours", "quant", "turn", "flat", "narrow")


FORMATS = {"fp8": CODES, "int8": INT8}


def candidates() -> tuple[EightBitTile, ...]:
    """Return the tiles to try on this card."""
    major, minor = torch.cuda.get_device_capability()
    return HOPPER_CANDIDATES if 10 * major + minor in HOPPERS else (OTHERS,)


def tile_text(tile: EightBitTile) -> str:
    """Return a tile in one word: tokens x outputs x columns, warps, stages, group, persistent programs, kind."""
    kind = f" p{tile.persistent}{' promoted' * tile.promoted}"
    return f"{tile.tokens}x{tile.outputs}x{tile.reduction} w{tile.warps} s{tile.stages} g{tile.group}{kind}"


class StackBench:
    """Operands of one stack, and the products that are timed.

    Args:
        outputs: output features of each projection.
        columns: input features.
        tokens: number of rows.
        kind: type of the codes.
        rotated: whether INT8 is rotated, as a run does in every stack but `o`.
    """

    def __init__(
        self, outputs: tuple[int, ...], columns: int, tokens: int, kind: torch.dtype, *, rotated: bool = True
    ) -> None:
        first, adapters = 0, []
        for rows in outputs:
            adapters.append(StackedAdapter(first, rows, RANK, 1.0))
            first += rows
        self.stack = Stack(first, columns, tuple(adapters))
        n, k, r = first, columns, self.stack.R

        def draw(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device="cuda").bfloat16()

        self.buffer = draw(n + r, k + r).mul_(k**-0.5)
        self.buffer[n:, k:] = 0
        self.x_ext, self.dy_ext = draw(tokens, k + r), draw(tokens, n + r)
        self.y, self.dx = torch.empty_like(self.dy_ext)[:, :n], torch.empty_like(self.x_ext)[:, :k]
        self.weight = self.buffer[:n, :k].contiguous()
        self.rotation = rotation_of(k) if kind == INT8 and rotated else 0
        self.codes = quantize_rows(self.weight, codes=kind, rotation=self.rotation)
        self.turned = transpose_codes(self.codes.codes, torch.empty(k, n, dtype=kind, device="cuda"))
        self.x, self.dy = self.x_ext[:, :k], self.dy_ext[:, :n]
        self.x8 = quantize_rows(self.x, codes=kind, rotation=self.rotation)
        self.dy8 = quantize_rows(self.dy, factor_K=self.codes.scale, codes=kind)
        self.ones = torch.ones(k, device="cuda")
        self.flops = 2 * tokens * n * k

    def ours(self, backward: bool, tile: EightBitTile | None, *, flat: bool = False) -> torch.Tensor:
        """Run our product of quantized rows with the adapters; flat: without rotating the input's gradient back."""
        n, k = self.stack.N, self.stack.K
        if backward:
            tail = {"narrow_TR": self.dy_ext[:, n:], "adapter_NR": self.buffer[n:, :k].t()}
            tail["rotation"] = 0 if flat else self.rotation
            return eight_bit_linear(self.dy8, self.turned, out=self.dx, tile=tile, **tail)
        tail = {"narrow_TR": self.x_ext[:, k:], "adapter_NR": self.buffer[:n, k:]}
        return eight_bit_linear(self.x8, self.codes.codes, scale_N=self.codes.scale, out=self.y, tile=tile, **tail)

    def scaled(self, backward: bool, fast: bool) -> torch.Tensor:
        """Run PyTorch's row-wise scaled product, without adapters; of INT8 that without scales."""
        rows, weight = (self.dy8, self.turned) if backward else (self.x8, self.codes.codes)
        if weight.dtype == INT8:
            return torch._int_mm(rows.codes, weight.t())
        scale = self.ones if backward else self.codes.scale
        words = {"out_dtype": torch.bfloat16, "use_fast_accum": fast}
        return torch._scaled_mm(rows.codes, weight.t(), rows.scale[:, None], scale[None, :], **words)

    def jobs(self, backward: bool) -> dict[str, Callable[[], object]]:
        """Return what is timed beside our product, by column."""
        n, k, stack = self.stack.N, self.stack.K, self.stack
        if not backward:
            return {
                "mm": partial(torch.mm, self.x.contiguous(), self.weight.t(), out=self.y.new_empty(len(self.x), n)),
                "stacked": partial(lora_linear.forward, self.x_ext, self.buffer, stack, out=self.y),
                "quant": partial(quantize_rows, self.x, rotation=self.rotation, out=self.x8),
                "narrow": partial(lora_linear.project, self.x, self.buffer[n:, :k], self.x_ext[:, k:]),
            }
        found = {
            "mm": partial(torch.mm, self.dy.contiguous(), self.weight, out=self.dx.new_empty(len(self.dy), k)),
            "stacked": partial(lora_linear.input_gradient, self.dy_ext, self.buffer, stack, dx_out=self.dx),
            "quant": partial(quantize_rows, self.dy, factor_K=self.codes.scale, out=self.dy8),
            "turn": partial(transpose_codes, self.codes.codes, self.turned),
            "narrow": partial(lora_linear.project_gradient, self.dy_ext, self.buffer[:n, k:], stack),
        }
        if self.rotation:
            found["flat"] = partial(self.ours, True, None, flat=True)
        return found

    def error(self, backward: bool, found: torch.Tensor, *, adapter: bool) -> float:
        """Return the relative error of some rows against the quantized operands in double precision."""
        own = torch.linspace(0, len(found) - 1, CHECKED_ROWS, device="cuda").long()
        rows = self.dy8 if backward else self.x8
        weight = self.codes.codes.double()
        wide = EightBitRows(rows.codes[own], rows.scale[own])
        exact = wide.codes.double() @ (weight if backward else weight.t()) * wide.scale.double()[:, None]
        if not backward:
            exact *= self.codes.scale.double()
        elif adapter and self.rotation:
            exact = rotate(exact, self.rotation)
        if adapter:
            n, k = self.stack.N, self.stack.K
            if backward:
                exact += self.dy_ext[own, n:].double() @ self.buffer[n:, :k].double()
            else:
                exact += self.x_ext[own, k:].double() @ self.buffer[:n, k:].double().t()
        return float((found[own].double() - exact).norm() / exact.norm())


def table(rows: Rows) -> None:
    """Print the stacks, a sum for each model, and the tiles' sums."""
    print(f"\n{'model':13} {'stack':8} {'':3}" + "".join(f"{name:>9}" for name in COLUMNS) + RATIO_HEADER)
    for model, stacks in MODELS.items():
        own = [row for row in rows if row.get("model") == model and "mm" in row]
        for row in own:
            print(_line(row["model"], row["stack"], "dx" if row["backward"] else "fwd", row))
        if len(own) == 2 * len(stacks):
            total = {name: sum(row[name] for row in own) for name in (*COLUMNS, "flops")}
            print(_line(model, "all", "", total))
    tiles: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        if "tile" in row:
            one = tiles[row["model"], row["tile"], row["backward"]]
            one[0] += row["ms"]
            one[1] = max(one[1], row["error"])
    print(f"\n{'model':13} {'tile':44} {'':3} {'ms':>9} {'error':>9}")
    for (model, tile, backward), (ms, error) in tiles.items():
        print(f"{model:13} {tile:44} {'dx' if backward else 'fwd':3} {ms:9.3f} {error:9.1e}")


RATIO_HEADER = f"{'ours/mm':>9}{'+turn':>8}{'+quant':>8}{'/stacked':>9}{'mm TF/s':>9}{'ours TF/s':>10}"


def _line(model: str, stack: str, direction: str, row: dict[str, Any]) -> str:
    mm, ours = row["mm"], row["ours"]
    turned = ours + row["turn"]
    ratios = f"{ours / mm:9.3f}{turned / mm:8.3f}{(turned + row['quant']) / mm:8.3f}"
    ratios += f"{(turned + row['quant'] + row['narrow']) / row['stacked']:9.3f}"
    rates = f"{row['flops'] / mm / 1e9:9.0f}{row['flops'] / ours / 1e9:10.0f}"
    return f"{model:13} {stack:8} {direction:3}" + "".join(f"{row[name]:9.4f}" for name in COLUMNS) + ratios + rates


def warm(share: int, kind: torch.dtype) -> None:
    """Compile a share of our products in a process of its own; they come from Triton's cache afterwards."""
    benches = [StackBench((512,) * number, 1024, 256, kind) for number in (1, 2, 3)]
    for index, tile in enumerate(candidates()):
        if index % WORKERS == share:
            for bench in benches:
                for backward in (False, True):
                    try:
                        bench.ours(backward, tile)
                    except Exception as error:  # noqa: BLE001  the main process tells it
                        print(f"{tile_text(tile)}: {type(error).__name__}", file=sys.stderr)


def measure(model: str, name: str, rows: Rows, kind: torch.dtype) -> None:
    """Time one stack in both directions."""
    bench = StackBench(*MODELS[model][name], TOKENS, kind, rotated=name != "o")
    for backward in (False, True):
        words = {"model": model, "stack": name, "backward": backward}
        times: dict[str, float] = {"turn": 0.0, "flat": 0.0, "ours": float("inf")}
        for column, run in bench.jobs(backward).items():
            times[column] = milliseconds(run)
        times["slow"] = float("nan")
        for column, fast in (("scaled", True), ("slow", False))[: 1 if kind == INT8 else 2]:
            try:
                times[column] = milliseconds(partial(bench.scaled, backward, fast))
                row = {"ms": round(times[column], 4)}
                if kind != INT8:
                    row["error"] = bench.error(backward, bench.scaled(backward, fast), adapter=False)
                rows.add(**words, method=column, **row)
            except Exception as problem:  # noqa: BLE001  a card or PyTorch without it is a finding
                times[column] = float("nan")
                rows.add(**words, method=column, problem=f"{type(problem).__name__}: {problem}"[:160])
        for tile in candidates():
            try:
                ms = milliseconds(partial(bench.ours, backward, tile))
            except Exception as problem:  # noqa: BLE001  a tile that does not fit the card is a finding
                rows.add(**words, method=tile_text(tile), problem=f"{type(problem).__name__}: {problem}"[:160])
                continue
            error = bench.error(backward, bench.ours(backward, tile), adapter=True)
            rows.add(**words, tile=tile_text(tile), ms=round(ms, 4), error=error)
            times["ours"] = min(times["ours"], ms)
        rows.add(**words, flops=bench.flops, **{column: round(ms, 4) for column, ms in times.items()})


def main() -> int:
    """Measure; return 1 where a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=85.0, help="no new stack is begun after")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--codes", choices=FORMATS, default="fp8")
    parser.add_argument("--out", type=Path, help="file that JSON lines are added to")
    parser.add_argument("--warm", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.warm is not None:
        warm(options.warm, FORMATS[options.codes])
        return 0
    deadline = time.perf_counter() + options.seconds
    rows = Rows(options.out)
    took = compile_in_processes(
        "eight_bit_products", "--codes", options.codes, workers=WORKERS, limit_s=options.seconds
    )
    device = torch.cuda.get_device_name()
    rows.add(method="compiled", codes=options.codes, seconds=round(took, 1), device=device)
    for model in options.models:
        for name in MODELS[model]:
            if time.perf_counter() < deadline:
                measure(model, name, rows, FORMATS[options.codes])
                torch.cuda.empty_cache()
    table(rows)
    wrong = [row for row in rows if row.get("error", 0.0) > LARGEST_ERROR]
    print(f"{len(wrong)} of {sum('error' in row for row in rows)} results are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
