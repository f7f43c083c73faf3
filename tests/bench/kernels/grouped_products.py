"""The experts' products on one GPU: tiles, storages and peers at the sizes of published mixtures.

    python tests/bench grouped_products [--seconds 170] [--out results.jsonl]

For each model: sorting, the gate-up product and its input's gradient from 16 bits, from four bits decoded in the loop
and from groups of experts unpacked before, with every tile of `DENSE` and `PACKED`; beside them `torch._grouped_mm` and
a loop over the experts with cuBLAS. Then the best tiles at other numbers of tokens and with a Zipf-spread router. Every
result is compared with fp32 on some rows. Prints a JSON line for each measurement and a table of the best ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

from burnish_kernels.grouped_linear.op import LinearTile, grouped_linear
from burnish_kernels.moe_sort.op import empty_order, sort_by_expert
from burnish_kernels.moe_unpack import reference
from burnish_kernels.moe_unpack.cases import random_stack
from burnish_kernels.moe_unpack.op import Nf4Experts, nf4_scales

from bench.kernels.timing import compile_in_processes, milliseconds
from bench.shared.rows import Rows

# Experts, experts of a token, hidden size, outputs of gate and up, four-bit storage, sizes of groups to unpack.
MODELS = {
    "qwen3-30b-a3b": (128, 8, 2048, 1536, "nf4-double", (3, 6, 12, 32)),
    "gpt-oss-20b": (32, 4, 2880, 5760, "mxfp4", (1, 2, 4)),
    "olmoe": (64, 8, 2048, 2048, "nf4-double", (5, 10, 32)),
}
TOKENS = 16384
FEWER = (8192, 4096, 2048, 1024, 512)
# Rows of a tile and the rest of it.
DENSE = [
    (128, LinearTile(128, 64, 8, 3)),
    (128, LinearTile(128, 64, 4, 3)),
    (128, LinearTile(256, 64, 8, 3)),
    (128, LinearTile(256, 64, 8, 4)),
    (128, LinearTile(256, 64, 8, 3, 16)),
    (128, LinearTile(256, 64, 8, 3, 4)),
]
PACKED = [
    (128, LinearTile(128, 64, 8, 3)),
    (128, LinearTile(128, 64, 4, 3)),
    (128, LinearTile(128, 64, 4, 4)),
    (128, LinearTile(256, 64, 8, 3)),
    (128, LinearTile(64, 64, 4, 3)),
    (256, LinearTile(128, 64, 8, 3)),
    (256, LinearTile(128, 64, 8, 4)),
    (128, LinearTile(128, 64, 4, 3, 8, swap=1)),
    (256, LinearTile(128, 64, 8, 3, 8, swap=1)),
]
WORKERS = 8


class Product:
    """The operands of a model's gate-up product.

    Args:
        model: name in MODELS.
        tokens: number of tokens.
        spread: "even" or "zipf".
        experts: number of experts; None: the model's.
    """

    def __init__(self, model: str, tokens: int, spread: str, experts: int | None = None) -> None:
        given, self.slots, self.hidden, self.outputs, self.kind, self.groups = MODELS[model]
        self.experts = experts or given
        self.ids = experts_of(tokens, self.slots, self.experts, spread)
        self.x = torch.randn(tokens, self.hidden, device="cuda").bfloat16()
        self.dy = torch.randn(tokens * self.slots, self.outputs, device="cuda").bfloat16()
        self.y, self.dx = torch.empty_like(self.dy), self.dy.new_empty(len(self.dy), self.hidden)
        self.dense = torch.randn(self.experts, self.outputs, self.hidden, device="cuda", dtype=torch.bfloat16)
        self.packed = random_stack(self.kind, self.experts, self.outputs, self.hidden, "cuda")
        self.orders = {rows: sort_by_expert(self.ids, self.experts, tile_rows=rows) for rows in (128, 256)}
        self.flops = 2 * len(self.dy) * self.hidden * self.outputs

    def run(self, storage: str, transposed: bool, rows: int, tile: LinearTile, group: int = 0) -> torch.Tensor:
        """The product or the input's gradient; with a group, from experts unpacked so many at a time."""
        x, out = (self.dy, self.dx) if transposed else (self.x, self.y)
        options: dict[str, Any] = {"by_token": not transposed, "transposed": transposed, "out": out, "tile": tile}
        order = self.orders[rows]
        if group:
            return grouped_linear(x, self.packed, order, scratch_GNK=self.scratch(group), **options)
        weight = self.dense if storage == "dense" else self.packed
        return grouped_linear(x, weight, order, **options)

    def scratch(self, group: int) -> torch.Tensor:
        """Memory for a group of experts."""
        return torch.empty(group, self.outputs, self.hidden, device="cuda", dtype=torch.bfloat16)

    def error(self, storage: str, transposed: bool) -> float:
        """The worst relative error of some rows of three experts, compared with fp32."""
        order, worst = self.orders[128], 0.0
        edges = order.offsets.tolist()
        for expert in (0, self.experts // 2, self.experts - 1):
            own = torch.arange(edges[expert], min(edges[expert + 1], edges[expert] + 48), device="cuda")
            own = torch.cat((own, torch.arange(max(edges[expert], edges[expert + 1] - 16), edges[expert + 1]).cuda()))
            if not len(own):
                continue
            if storage == "dense":
                weight = self.dense[expert].float()
            else:
                weight = reference.unpack(self.packed, expert, 1, torch.bfloat16)[0].float()
            if transposed:
                exact, found = self.dy[own].float() @ weight, self.dx[own].float()
            else:
                exact, found = self.x[order.order[own].long() // self.slots].float() @ weight.t(), self.y[own].float()
            worst = max(worst, float((found - exact).norm() / exact.norm()))
        return worst


def experts_of(tokens: int, slots: int, experts: int, spread: str) -> torch.Tensor:
    """Distinct experts of each token: evenly drawn, or the r-th with a weight of 1 / r."""
    weights = torch.ones(experts) if spread == "even" else 1.0 / torch.arange(1, experts + 1)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(weights.expand(tokens, experts), slots, generator=generator)
    return torch.randperm(experts, generator=generator).int()[drawn].cuda().contiguous()


def tile_text(rows: int, tile: LinearTile) -> str:
    """A tile in one word: rows x outputs x columns, warps, stages, group, swapped."""
    return f"{rows}x{tile.outputs}x{tile.reduction} w{tile.warps} s{tile.stages} g{tile.group}{' swap' * tile.swap}"


def attempts() -> list[tuple[str, str, bool, int, LinearTile]]:
    """Model, storage, direction and tile of every product that is tried; all tiles with one model of each storage."""
    found = []
    for model, storage, tiles in (
        ("qwen3-30b-a3b", "dense", DENSE),
        ("qwen3-30b-a3b", "nf4-double", PACKED),
        ("gpt-oss-20b", "mxfp4", PACKED),
        ("gpt-oss-20b", "dense", DENSE[:5]),
    ):
        found += [(model, storage, transposed, rows, tile) for transposed in (False, True) for rows, tile in tiles]
    return found


def warm(share: int) -> None:
    """Compile a share of the kernels in a process of its own; they come from Triton's cache afterwards."""
    made: dict[str, Product] = {}
    for index, (model, storage, transposed, rows, tile) in enumerate(attempts()):
        if index % WORKERS == share:
            product = made.setdefault(model, Product(model, 256, "even", experts=16))
            try:
                product.run(storage, transposed, rows, tile)
                if storage != "dense":
                    product.run(storage, transposed, rows, tile, group=2)
            except Exception as error:  # noqa: BLE001  the main process tells it
                print(f"{tile_text(rows, tile)}: {type(error).__name__}", file=sys.stderr)


def measure(
    product: Product, all_rows: Rows, storage: str, transposed: bool, rows: int, tile: LinearTile, **more: Any
) -> float:
    """Time one product and tell its figures; return milliseconds, infinite where it cannot run."""
    group = more.get("group", 0)
    words = {"product": "dx" if transposed else "forward", "storage": storage, "tile": tile_text(rows, tile), **more}
    try:
        ms = milliseconds(lambda: product.run(storage, transposed, rows, tile, group))
        error = product.error(storage, transposed)
    except Exception as problem:  # noqa: BLE001  a tile that does not fit the card is a finding
        all_rows.add(**words, error_text=f"{type(problem).__name__}: {problem}"[:160])
        return float("inf")
    all_rows.add(
        **words, ms=round(ms, 4), tflops=round(product.flops / ms / 1e9, 1), relative_error=float(f"{error:.2e}")
    )
    return ms


def peers(product: Product, all_rows: Rows, model: str, spread: str) -> None:
    """Time PyTorch's grouped product and a loop over the experts, with the rows gathered before; and the gather."""
    order = product.orders[128]
    gathered = product.x[order.order.long() // product.slots]
    edges, offsets = order.offsets.tolist(), order.offsets[1:].contiguous()
    ms = milliseconds(lambda: torch.index_select(product.x, 0, order.order // product.slots, out=gathered))
    all_rows.add(model=model, spread=spread, method="gather of rows", ms=round(ms, 4))
    for transposed in (False, True):
        x = product.dy if transposed else gathered
        result = product.dx if transposed else product.y
        weight = product.dense if transposed else product.dense.transpose(1, 2)

        def loop(x: Any = x, result: Any = result, weight: Any = weight) -> None:
            for expert in range(product.experts):
                own = slice(edges[expert], edges[expert + 1])
                torch.mm(x[own], weight[expert], out=result[own])

        def grouped(x: Any = x, weight: Any = weight) -> None:
            torch._grouped_mm(x, weight, offs=offsets)

        for name, run in (("torch._grouped_mm", grouped), ("loop of torch.mm", loop)):
            words = {"model": model, "spread": spread, "method": name, "product": "dx" if transposed else "forward"}
            try:
                ms = milliseconds(run)
            except Exception as problem:  # noqa: BLE001
                all_rows.add(**words, error_text=f"{type(problem).__name__}: {problem}"[:160])
                continue
            all_rows.add(**words, ms=round(ms, 4), tflops=round(product.flops / ms / 1e9, 1))


def sorting(product: Product, all_rows: Rows, model: str) -> None:
    """Time the sort, and compare a captured one with an eager one and with PyTorch's."""
    order = empty_order(product.ids.numel(), product.experts, product.slots, tile_rows=128, device="cuda")

    def run() -> None:
        sort_by_expert(product.ids, product.experts, out=order)

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for name in ("order", "inverse", "offsets", "tiles", "tile_starts"):
        getattr(order, name).fill_(-5)
    graph.replay()
    same = all(
        torch.equal(getattr(order, name), getattr(product.orders[128], name))
        for name in ("order", "inverse", "offsets", "tiles", "tile_starts")
    )
    exact = torch.equal(order.order.long(), torch.argsort(product.ids.view(-1), stable=True))
    all_rows.add(model=model, method="sort", ms=round(milliseconds(run), 4), equal=same and exact)
    ms = milliseconds(lambda: torch.argsort(product.ids.view(-1), stable=True))
    all_rows.add(model=model, method="torch.argsort", ms=round(ms, 4))


def try_tiles(product: Product, all_rows: Rows, model: str, deadline: float, best: dict[Any, Any]) -> None:
    """Measure the tiles that are tried with a model, and keep the fastest of each storage and direction."""
    fastest: dict[Any, float] = {}
    for tried, storage, transposed, rows, tile in attempts():
        if tried == model and time.perf_counter() < deadline:
            ms = measure(product, all_rows, storage, transposed, rows, tile, model=model, spread="even", tokens=TOKENS)
            if ms < fastest.get((storage, transposed), float("inf")):
                fastest[storage, transposed] = ms
                best[storage, transposed] = (rows, tile)


def model_rows(model: str, all_rows: Rows, deadline: float, best: dict[Any, Any]) -> None:
    """Measure one model."""
    product = Product(model, TOKENS, "even")
    kind, words = product.kind, {"model": model, "spread": "even", "tokens": TOKENS}
    sorting(product, all_rows, model)
    if isinstance(product.packed, Nf4Experts):
        packed = product.packed
        all_rows.add(model=model, method="scales", ms=round(milliseconds(lambda: nf4_scales(packed)), 4))
    peers(product, all_rows, model, "even")
    try_tiles(product, all_rows, model, deadline, best)
    for transposed in (False, True):
        tile, dense_tile = best[kind, transposed], best["dense", transposed]
        if model == "olmoe":
            measure(product, all_rows, "dense", transposed, *dense_tile, **words)
            measure(product, all_rows, kind, transposed, *tile, **words)
        for group in product.groups:
            measure(product, all_rows, kind, transposed, *dense_tile, **words, group=group)
        one = product.run(kind, transposed, *tile).clone()
        equal = torch.equal(one, product.run(kind, transposed, *tile, product.groups[0]))
        all_rows.add(model=model, method="decoded = unpacked", product="dx" if transposed else "forward", equal=equal)
    del product
    for tokens, spread in ((TOKENS, "zipf"), *((fewer, "even") for fewer in FEWER)):
        if time.perf_counter() > deadline:
            return
        product = Product(model, tokens, spread)
        words = {"model": model, "spread": spread, "tokens": tokens}
        if spread == "zipf":
            peers(product, all_rows, model, spread)
        measure(product, all_rows, "dense", False, *best["dense", False], **words)
        for tile in {best[kind, False], PACKED[0], PACKED[1]}:
            measure(product, all_rows, kind, False, *tile, **words)
        for group in product.groups:
            measure(product, all_rows, kind, False, *best["dense", False], **words, group=group)
        del product


def table(all_rows: Rows) -> None:
    """Print what was measured, one line each."""
    print(f"\n{'model':14} {'tokens':>6} {'spread':6} {'product':8} {'what':46} {'ms':>9} {'TFLOP/s':>8} {'error':>9}")
    for row in all_rows:
        what = row.get("method") or f"{row['storage']}{' group ' + str(row['group']) if 'group' in row else ''}"
        what += f" {row.get('tile', '')}" + (f" equal={row['equal']}" if "equal" in row else "")
        found = row.get("ms", row.get("error_text", "")[:40])
        first = f"{row.get('model', ''):14} {row.get('tokens', ''):>6} {row.get('spread', ''):6}"
        last = f"{found:>9} {row.get('tflops', ''):>8} {row.get('relative_error', ''):>9}"
        print(f"{first} {row.get('product', ''):8} {what:46} {last}")


def main() -> int:
    """Measure; return 1 where a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=170.0, help="no new measurement is begun after")
    parser.add_argument("--out", type=Path, help="file that JSON lines are added to")
    parser.add_argument("--warm", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    if options.warm is not None:
        warm(options.warm)
        return 0
    deadline = time.perf_counter() + options.seconds
    all_rows = Rows(options.out)
    torch.zeros(1, device="cuda")
    took = compile_in_processes("grouped_products", workers=WORKERS, limit_s=150)
    all_rows.add(method="compiled", seconds=round(took, 1), device=torch.cuda.get_device_name())
    best: dict[Any, Any] = {}
    for model in MODELS:
        model_rows(model, all_rows, deadline, best)
        torch.cuda.empty_cache()
    table(all_rows)
    wrong = [row for row in all_rows if row.get("relative_error", 0.0) > 1e-2 or row.get("equal") is False]
    print(f"{len(wrong)} of {len(all_rows)} results are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
