"""Test cases, compilations and benchmarks of the experts' narrow products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.grouped_skinny.tiles import OUTER_ROWS, outer_tile, project_tile
from burnish_kernels.moe_sort.cases import MODELS, SPREADS, random_ids
from burnish_kernels.moe_sort.op import TILE_ROWS, sort_by_expert
from burnish_kernels.registry import Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers

# Relative L2 error against the reference in double precision; Triton's interpreter cuts bf16 off.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 1.2e-2}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}


def cases() -> list[Case]:
    """List spreads, ranks, weights and types; rows of tokens or sorted ones, one token, strided rows."""
    found = []
    for dtype in TOLERANCE:
        for spread in SPREADS:
            found.append(_case(43, 2, 5, 72, 3, dtype, spread=spread, by_token=True))
            found.append(_case(43, 2, 5, 72, 16, dtype, spread=spread, weighted=True))
        found += [
            _case(1, 1, 3, 40, 1, dtype, by_token=True, weighted=True),
            _case(30, 4, 4, 130, 70, dtype, by_token=True, weighted=True, padding=24),
            _case(90, 1, 2, 64, 8, dtype, padding=8),
        ]
    large = _case(3000, 4, 16, 2048, 16, torch.bfloat16, by_token=True, weighted=True, tile_rows=128)
    # The last row begins 2^31 elements behind the first.
    far = _case(3, 1, 2, 64, 8, torch.bfloat16, by_token=True, padding=1 << 30)
    return [*found, *(Case(one.name, one.tolerance, one.options, gpu_only=True) for one in (large, far))]


def _case(
    tokens: int,
    slots: int,
    experts: int,
    columns: int,
    ranks: int,
    dtype: torch.dtype,
    *,
    spread: str = "holes",
    by_token: bool = False,
    weighted: bool = False,
    padding: int = 0,
    tile_rows: int = 16,
) -> Case:
    words = {"by_token": by_token, "weighted": weighted, "padded": padding}
    shape = f"{tokens}x{slots}-{experts}x{columns}-r{ranks}"
    parts = [shape, str(dtype).removeprefix("torch."), spread, *(word for word in words if words[word])]
    options: dict[str, Any] = {"tokens": tokens, "slots": slots, "experts": experts}
    options |= {"columns": columns, "ranks": ranks}
    options |= {"dtype": dtype, "spread": spread, "by_token": by_token, "weighted": weighted, "padding": padding}
    return Case("-".join(parts), TOLERANCE[dtype], options | {"tile_rows": tile_rows})


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of projection and outer products against the reference in double precision.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where an expert without rows was touched, or something beside the outputs was written.
    """
    from burnish_kernels.grouped_skinny import op, reference

    options = case.options
    experts, columns, ranks, by_token = (options[name] for name in ("experts", "columns", "ranks", "by_token"))
    dtype, tokens, slots = options["dtype"], options["tokens"], options["slots"]
    generator = torch.Generator(device).manual_seed(seed)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator, device=device)

    ids = random_ids(tokens, slots, experts, options["spread"], seed).to(device)
    order = sort_by_expert(ids, experts, tile_rows=options["tile_rows"])
    height = tokens if by_token else order.positions
    x = StridedBuffers(height, options["padding"], dtype, device).new(columns, draw(height, columns).to(dtype))
    matrix = draw(experts, columns, ranks).to(dtype).transpose(1, 2)  # of B's strides
    buffers = StridedBuffers(order.positions, options["padding"], dtype, device)
    narrow = op.project(x, matrix, order, by_token=by_token, out=buffers.new(ranks))
    exact = torch.empty(narrow.shape, dtype=torch.float64, device=device)
    reference.project(x.double(), matrix.double(), order, exact, by_token=by_token)
    errors = [_error(narrow, exact)]
    weights = draw(tokens, slots).sigmoid() if options["weighted"] else None
    for transposed in (False, True):  # into the gradients of A and of B
        shape = (experts, columns, ranks) if transposed else (experts, ranks, columns)
        before = draw(*shape)
        found, wanted = before.clone(), before.double()
        views = [one.transpose(1, 2) if transposed else one for one in (found, wanted)]
        op.outer_accumulate(narrow, x, order, views[0], by_token=by_token, scale=0.5, weights_Tk=weights)
        wide = None if weights is None else weights.double()
        reference.outer_accumulate(
            narrow.double(), x.double(), order, views[1], by_token=by_token, scale=0.5, weights_Tk=wide
        )
        empty = order.offsets.diff() == 0
        if not torch.equal(found[empty], before[empty]):
            return math.inf
        errors.append(_error(found, wanted))
    return math.inf if buffers.spoiled() else max(errors)


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    error = float((found.double() - exact).norm() / exact.norm())
    return math.inf if math.isnan(error) else error  # a maximum may pass over NaN


def compilations() -> list[Compilation]:
    """List both kernels for each type, and for bf16 each block of ranks."""
    from burnish_kernels.grouped_skinny import kernel

    found = []
    orders = {"order_ptr": "*i32", "offsets_ptr": "*i32"}
    for dtype, pointer in TYPES.items():
        for ranks in (16, 32, 64) if dtype == torch.bfloat16 else (16,):
            for gather in (False, True):
                word = f"{pointer[1:]}-r{ranks}{'-gather' * gather}"
                tile = project_tile(dtype, ranks)
                signature = dict.fromkeys(("x_ptr", "matrix_ptr", "out_ptr"), pointer) | orders | {"tiles_ptr": "*i32"}
                numbers = ("C", "R", "x_stride", "matrix_expert", "matrix_rank", "out_stride", "slots")
                signature |= dict.fromkeys(numbers, "i32")
                constants = {"GATHER": gather, "matrix_column": 1, "BLOCK_M": TILE_ROWS, "BLOCK_C": tile.C}
                constants |= {"BLOCK_R": tile.R, "INTERPRETED": False}
                function = kernel.grouped_project_kernel
                found.append(Compilation(f"project-{word}", function, signature, constants, tile.warps, tile.stages))
                tile = outer_tile(dtype, ranks)
                signature = {"p_ptr": pointer, "q_ptr": pointer, "weights_ptr": "*fp32", "out_ptr": "*fp32"} | orders
                numbers = ("C", "R", "p_stride", "q_stride", "out_expert", "out_rank", "slots")
                signature |= dict.fromkeys(numbers, "i32") | {"scale": "fp32"}
                constants = {"GATHER": gather, "HAS_WEIGHTS": True, "out_column": 1, "BLOCK_P": OUTER_ROWS}
                constants |= {"BLOCK_C": tile.C, "BLOCK_R": tile.R, "INTERPRETED": False}
                function = kernel.grouped_outer_kernel
                found.append(Compilation(f"outer-{word}", function, signature, constants, tile.warps, tile.stages))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List both products of published models' first map at rank 16 and 16,384 tokens."""
    from burnish_kernels.grouped_skinny import op

    tokens, ranks = 16384, 16
    for name, (experts, slots, hidden, _) in MODELS.items():
        order = sort_by_expert(random_ids(tokens, slots, experts, "even").to(device), experts)
        x = torch.randn(tokens, hidden, device=device).bfloat16()
        a = torch.randn(experts, ranks, hidden, device=device).bfloat16()
        narrow = torch.randn(order.positions, ranks, device=device).bfloat16()
        gradient = torch.zeros(experts, ranks, hidden, device=device)
        read = order.positions * hidden * 2
        yield Benchmark(
            f"project-{name}",
            lambda x=x, a=a, o=order, n=narrow: op.project(x, a, o, by_token=True, out=n),  # type: ignore[misc]
            None,
            bytes=read + a.nbytes + narrow.nbytes,
        )
        yield Benchmark(
            f"outer-{name}",
            lambda x=x, o=order, n=narrow, g=gradient: op.outer_accumulate(n, x, o, g, by_token=True),  # type: ignore[misc]
            None,
            bytes=read + 2 * gradient.nbytes + narrow.nbytes,
        )
