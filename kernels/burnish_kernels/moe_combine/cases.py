"""Test cases, compilations and benchmarks of the sum over a token's experts."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from burnish_kernels.moe_sort.cases import MODELS, SPREADS, random_ids
from burnish_kernels.moe_sort.op import sort_by_expert
from burnish_kernels.registry import Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers

# Relative L2 error against the reference in double precision: one rounding; Triton's interpreter cuts bf16 off.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 6e-3}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}


def cases() -> list[Case]:
    """List spreads, weights or none, sums that begin with a tensor, strided rows, one slot, one token, far rows."""
    found = []
    for dtype in TOLERANCE:
        for spread in SPREADS:
            found += [_case(11, 4, 6, 72, dtype, spread=spread, weighted=weighted) for weighted in (False, True)]
        found += [
            _case(1, 1, 3, 8, dtype, weighted=True),
            _case(9, 1, 3, 40, dtype),
            _case(5, 8, 16, 1100, dtype, weighted=True, add=True, padding=24),
            _case(7, 2, 4, 64, dtype, add=True, single=True),
            _case(6, 3, 5, 96, dtype, weighted=True, add=True, scaled=True, padding=8),
        ]
    far = _case(140_000, 4, 32, 4096, torch.bfloat16, weighted=True)
    return [*found, Case("far-rows", far.tolerance, far.options, gpu_only=True)]


def _case(
    tokens: int,
    slots: int,
    experts: int,
    columns: int,
    dtype: torch.dtype,
    *,
    spread: str = "even",
    weighted: bool = False,
    add: bool = False,
    scaled: bool = False,
    single: bool = False,
    padding: int = 0,
) -> Case:
    words = {"weighted": weighted, "add": add, "scaled": scaled, "fp32-out": single, "padded": padding}
    shape = f"{tokens}x{slots}-{experts}x{columns}"
    parts = [shape, str(dtype).removeprefix("torch."), spread, *(word for word in words if words[word])]
    options = {"tokens": tokens, "slots": slots, "experts": experts, "columns": columns, "dtype": dtype}
    options |= {"spread": spread, "weighted": weighted, "add": add, "scaled": scaled, "single": single}
    options["padding"] = padding
    return Case("-".join(parts), TOLERANCE[dtype], options)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the relative L2 error against the reference in double precision.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where something beside the output was written.
    """
    from burnish_kernels.moe_combine import op, reference

    options = case.options
    tokens, slots, experts, columns = (options[name] for name in ("tokens", "slots", "experts", "columns"))
    dtype, padding = options["dtype"], options["padding"]
    kept = torch.float32 if options["single"] else dtype
    order = sort_by_expert(random_ids(tokens, slots, experts, options["spread"], seed).to(device), experts)
    generator = torch.Generator(device).manual_seed(seed)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator, device=device)

    y = StridedBuffers(order.positions, padding, dtype, device).new(columns, draw(order.positions, columns).to(dtype))
    weights = draw(tokens, slots).sigmoid() if options["weighted"] else None
    buffers = StridedBuffers(tokens, padding, kept, device)
    add = buffers.new(columns, draw(tokens, columns).to(kept)) if options["add"] else None
    scale = draw(tokens).sigmoid().to(kept) if options["scaled"] else None
    wide = torch.float64 if tokens < 1000 else torch.float32
    given = (None if one is None else one.to(wide) for one in (weights, add, scale))
    exact = reference.combine(y.to(wide), order, *given)
    out = buffers.new(columns) if add is None or padding else add  # a padded one has another stride than the sum
    found = op.combine(y, order, weights_Tk=weights, add_TH=add, scale_T=scale, out=out)
    error, size = float((found.to(wide) - exact).norm()), float(exact.norm())
    return math.inf if buffers.spoiled() or math.isnan(error) else error / size


def compilations() -> list[Compilation]:
    """List the sums of published models, with weights and without, into each type."""
    from burnish_kernels.moe_combine import kernel

    found = []
    for pointer in TYPES.values():
        for out in {pointer, "*fp32"}:
            for slots in (4, 8):
                for weighted, add, scaled in ((True, False, False), (False, True, False), (True, True, True)):
                    signature = {"y_ptr": pointer, "inverse_ptr": "*i32", "weights_ptr": "*fp32"}
                    signature |= {"add_ptr": out, "scale_ptr": out, "out_ptr": out}
                    signature |= dict.fromkeys(("H", "y_stride", "add_stride", "out_stride"), "i32")
                    constants = {"K": slots, "HAS_WEIGHTS": weighted, "HAS_ADD": add, "HAS_SCALE": scaled}
                    constants["COLUMNS"] = kernel.COLUMNS
                    name = f"{pointer[1:]}-{out[1:]}-{slots}{'-weighted' * weighted}{'-add' * add}{'-scaled' * scaled}"
                    found.append(Compilation(name, kernel.combine_kernel, signature, constants, kernel.WARPS))
    return sorted(found, key=lambda one: one.name)


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List the outputs of published models at 16,384 tokens."""
    from burnish_kernels.moe_combine import op, reference

    tokens = 16384
    for name, (experts, slots, columns, _) in MODELS.items():
        order = sort_by_expert(random_ids(tokens, slots, experts, "even").to(device), experts)
        y = torch.randn(order.positions, columns, device=device).bfloat16()
        weights, out = torch.rand(tokens, slots, device=device), y.new_empty(tokens, columns)
        yield Benchmark(
            name,
            lambda y=y, o=order, w=weights, out=out: op.combine(y, o, weights_Tk=w, out=out),  # type: ignore[misc]
            lambda y=y, o=order, w=weights: reference.combine(y, o, w, None),  # type: ignore[misc]
            bytes=y.nbytes + out.nbytes,
        )
