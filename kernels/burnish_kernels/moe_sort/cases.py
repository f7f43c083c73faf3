"""Test cases, compilations and benchmarks of sorting by expert."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from burnish_kernels.registry import Benchmark, Case, Compilation

# Tokens, slots, experts: one token, chunks that are not full, more experts than a block, more chunks than one scan.
SHAPES = ((1, 1, 4), (1, 8, 256), (37, 2, 8), (129, 4, 32), (300, 3, 65), (70, 1, 200))
SPREADS = ("even", "one", "holes")
MODELS = {
    "qwen3.5-35b-a3b": (256, 8, 2048, 512), "qwen3-30b-a3b": (128, 8, 2048, 768), "gpt-oss-20b": (32, 4, 2880, 2880),
    "olmoe": (64, 8, 2048, 1024),
}  # fmt: skip
"""Experts, experts of a token, hidden size and size of an expert of published models."""


def cases() -> list[Case]:
    """List shapes, spreads over the experts and heights of tiles. The result must be equal."""
    found = [_case(*shape, spread) for shape in SHAPES for spread in SPREADS]
    found += [_case(37, 2, 8, "even", tile_rows=rows) for rows in (1, 64)]
    large = [_case(16384, 8, 128, "holes", tile_rows=128), _case(40_000, 8, 512, "even", tile_rows=128)]
    return [*found, *(Case(case.name, 0.0, case.options, gpu_only=True) for case in large)]


def _case(tokens: int, slots: int, experts: int, spread: str, *, tile_rows: int = 16) -> Case:
    options = {"tokens": tokens, "slots": slots, "experts": experts, "spread": spread, "tile_rows": tile_rows}
    return Case(f"{tokens}x{slots}-{experts}-{spread}-tiles{tile_rows}", 0.0, options)


def random_ids(tokens: int, slots: int, experts: int, spread: str, seed: int = 0) -> torch.Tensor:
    """Draw experts of tokens, `[T, k]` int32; those of a token may repeat.

    Args:
        tokens: number of tokens, T.
        slots: number of experts of a token, k.
        experts: number of experts, E.
        spread: "even"; "one": the last expert takes all; "holes": every third expert takes nothing.
        seed: seed of the draw.
    """
    ids = torch.randint(experts, (tokens, slots), generator=torch.Generator().manual_seed(seed), dtype=torch.int32)
    if spread == "one":
        ids.fill_(experts - 1)
    if spread == "holes":
        ids -= (ids % 3 == 1).int()
    return ids


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the number of values that differ from the reference.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random experts.
    """
    from burnish_kernels.moe_sort import op, reference

    options = case.options
    experts, rows = options["experts"], options["tile_rows"]
    ids = random_ids(options["tokens"], options["slots"], experts, options["spread"], seed)
    exact = op.empty_order(ids.numel(), experts, options["slots"], tile_rows=rows, device="cpu")
    reference.sort(ids.view(-1), exact)
    found = op.empty_order(ids.numel(), experts, options["slots"], tile_rows=rows, device=device)
    for name in TENSORS:
        getattr(found, name).fill_(-9)
    op.sort_by_expert(ids.to(device), experts, tile_rows=rows, out=found)
    return float(sum((getattr(found, name).cpu() != getattr(exact, name)).sum() for name in TENSORS))


TENSORS = ("order", "inverse", "offsets", "tiles", "tile_starts")


def compilations() -> list[Compilation]:
    """List the three kernels."""
    from burnish_kernels.moe_sort import kernel

    names = ("ids", "before", "totals", "order", "inverse", "offsets", "tiles", "tile_starts")
    place = {f"{name}_ptr": "*i32" for name in names}
    place |= dict.fromkeys(("P", "E", "chunks", "tiles", "tile_rows"), "i32")
    count = {"ids_ptr": "*i32", "counts_ptr": "*i32"} | dict.fromkeys(("P", "E", "chunks"), "i32")
    scan = {"counts_ptr": "*i32", "totals_ptr": "*i32", "chunks": "i32"}
    sizes = {"CHUNK": kernel.CHUNK, "EXPERTS": kernel.EXPERTS}
    return [
        Compilation("count", kernel.count_kernel, count, sizes, num_warps=kernel.WARPS),
        Compilation("scan", kernel.scan_kernel, scan, {"SPAN": kernel.SPAN}, num_warps=kernel.WARPS),
        Compilation("place", kernel.place_kernel, place, sizes, num_warps=kernel.WARPS),
    ]


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List the sorts of published models at 16,384 tokens."""
    from burnish_kernels.moe_sort import op

    for experts, slots, *_ in MODELS.values():
        ids = random_ids(16384, slots, experts, "even").to(device)
        out = op.empty_order(ids.numel(), experts, slots, tile_rows=op.TILE_ROWS, device=device)

        def run(ids: torch.Tensor = ids, experts: int = experts, out: op.ExpertOrder = out) -> object:
            return op.sort_by_expert(ids, experts, out=out)

        def plain(ids: torch.Tensor = ids) -> object:
            return torch.argsort(ids.view(-1), stable=True)

        tables = math.prod(out.tiles.shape) + 2 * experts
        yield Benchmark(f"{experts}x{slots}-16384", run, plain, bytes=4 * (3 * ids.numel() + tables))
