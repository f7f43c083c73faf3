"""Test cases, compilations and benchmarks of narrow products that quantize."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from burnish_kernels.eight_bit_linear.case_parts import NAMES, TYPES, CodesBuffer
from burnish_kernels.eight_bit_linear.rows import CODES, INT8
from burnish_kernels.eight_bit_linear.tiles import CAPABILITIES_OF, use_eight_bit_kernels
from burnish_kernels.lora_linear.tiles import BLOCK_T, RankSegment, project_tile
from burnish_kernels.registry import Benchmark, Case, Compilation

# Relative L2 error of the narrow product against double precision: one rounding; the interpreter cuts bf16 off.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
FEWEST = 16384
"""Tokens for which one pass is made on a GPU; for fewer the op takes two. The kernel itself takes any number."""


def cases() -> list[Case]:
    """List the columns and ranks of a segment or two, with factors or none, at edges that no block fills."""
    found = []
    for dtype in TOLERANCE:
        found += [
            _case(70, dtype, ((40, 5), (56, 16)), factor=True),
            _case(3, dtype, ((96, 33),), factor=False),
            _case(FEWEST, dtype, ((3072, 16), (3072, 16)), factor=True, gpu_only=True),
        ]
    own = ((40, 5), (56, 16))
    return [*found, *(_case(70, torch.bfloat16, own, factor=factor, codes=INT8) for factor in (False, True))]


def _case(
    tokens: int,
    dtype: torch.dtype,
    sizes: tuple[tuple[int, int], ...],
    *,
    factor: bool,
    gpu_only: bool = False,
    codes: torch.dtype = CODES,
) -> Case:
    text = "+".join(f"{columns}r{ranks}" for columns, ranks in sizes)
    name = f"projected-{tokens}x{text}-{TYPES[dtype]}{'-factor' * factor}{NAMES[codes]}"
    options = {"kind": "projected", "codes": codes, "tokens": tokens, "sizes": sizes, "dtype": dtype, "factor": factor}
    return Case(name, TOLERANCE[dtype], options, gpu_only=gpu_only)


def compare(options: dict[str, Any], device: str, generator: torch.Generator) -> float:
    """Return the relative L2 error of the narrow product; infinite where codes or scales are not those of the rows."""
    from burnish_kernels.eight_bit_linear.projected.kernel import launch_project_codes

    tokens, dtype = options["tokens"], options["dtype"]
    segments, first, rank = [], 0, 0
    for columns, ranks in options["sizes"]:
        segments.append(RankSegment(first, columns, rank, ranks))
        first, rank = first + columns, rank + ranks
    x = torch.randn(tokens, first + 8, generator=generator).to(dtype).to(device)[:, :first]
    a = torch.randn(first, rank, generator=generator).to(dtype).to(device).t()
    factor = torch.rand(first, generator=generator).to(device) if options["factor"] else None
    wide = x.float() if factor is None else x.float() * factor
    buffer = CodesBuffer(tokens, first, device, options["codes"])
    out = torch.full((tokens, rank + 8), math.nan, dtype=dtype, device=device)
    launch_project_codes(
        x_TC=x,
        a_RC=a,
        out_TR=out[:, :rank],
        segments=segments,
        largest_T=wide.abs().amax(dim=1),
        factor_C=factor,
        codes=buffer.rows,
    )
    if not buffer.holds(x, factor) or not bool(out[:, rank:].isnan().all()):
        return math.inf
    product = torch.cat(
        [
            x[:, one.first : one.first + one.columns].double()
            @ a[one.first_rank : one.first_rank + one.ranks, one.first : one.first + one.columns].double().t()
            for one in segments
        ],
        dim=1,
    )
    error = float((out[:, :rank].double() - product).norm() / product.norm())
    return math.inf if math.isnan(error) else error


def compilations() -> list[Compilation]:
    """List the kernel for each type and block of ranks, the narrow operand's rows or columns side by side."""
    from burnish_kernels.eight_bit_linear.projected import kernel

    found = []
    for dtype, kind in TYPES.items():
        for ranks in (16, 32, 64) if dtype == torch.bfloat16 else (16,):
            for unit, other in (("a_row", "a_column"), ("a_column", "a_row")):
                tile = project_tile(dtype, ranks)
                signature = dict.fromkeys(("x_ptr", "a_ptr", "out_ptr"), f"*{kind}")
                signature |= dict.fromkeys(("largest_ptr", "factor_ptr", "scale_ptr"), "*fp32")
                segments = [f"{name}_{index}" for name in ("first", "columns", "rank", "ranks") for index in range(3)]
                numbers = ("T", "x_stride", other, "out_stride", "codes_stride", *segments)
                signature |= dict.fromkeys(numbers, "i32")
                constants = {unit: 1, "HAS_FACTOR": True, "BLOCK_T": BLOCK_T, "BLOCK_C": tile.C, "BLOCK_R": tile.R}
                constants |= {"INTERPRETED": False}
                for codes, pointer in ((CODES, "*fp8e4nv"), (INT8, "*i8")):
                    typed, capabilities = signature | {"codes_ptr": pointer}, CAPABILITIES_OF[codes]
                    name, function = f"projected-{kind}-{ranks}-{unit}{NAMES[codes]}", kernel.project_codes_kernel
                    found.append(Compilation(name, function, typed, constants, tile.warps, tile.stages, capabilities))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List the gradient of published models' gate and up, against both operations one after the other.

    Args:
        device: device to make the tensors on.
    """
    from burnish_kernels.eight_bit_linear.op import quantize_rows
    from burnish_kernels.eight_bit_linear.projected import op
    from burnish_kernels.lora_linear.skinny import project

    if not use_eight_bit_kernels(torch.empty(0, device=device)):
        return
    for name, size in (("1b", 8192), ("4b", 9728)):
        segments = [RankSegment(0, size, 0, 16), RankSegment(size, size, 16, 16)]
        dy, sb = torch.randn(FEWEST, 2 * size, device=device).bfloat16(), torch.randn(2 * size, 32, device=device)
        sb, out = sb.bfloat16().t(), dy.new_empty(FEWEST, 32)
        factor, largest = torch.rand(2 * size, device=device), torch.ones(FEWEST, device=device)
        codes = quantize_rows(dy, factor_K=factor)
        words = {"codes_out": codes, "largest_T": largest, "factor_C": factor}
        run = partial(op.project_codes, dy, sb, out, segments, **words)

        def separate(dy: Any = dy, sb: Any = sb, out: Any = out, factor: Any = factor, codes: Any = codes) -> None:
            project(dy, sb, out, segments)  # noqa: B023  run before the next size
            quantize_rows(dy, factor_K=factor, out=codes)

        yield Benchmark(f"projected-{name}", run, separate, dy.nbytes + codes.codes.nbytes)
