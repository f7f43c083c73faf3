"""Test cases, compilations and benchmarks of projections on few tokens."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.decode_linear.config import DecodeConfig, choose, rank_spans
from burnish_kernels.decode_linear.eight_bit import cases as eight_bit_cases
from burnish_kernels.decode_linear.nf4 import cases as nf4_cases
from burnish_kernels.lora_linear.stack import Stack, StackedAdapter
from burnish_kernels.registry import CAPABILITIES, Benchmark, Case, Compilation

# Relative L2 error against the reference in double precision: x Aᵀ is rounded once.
TOLERANCE = {torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}

STACKS = {
    "bare": Stack(96, 192),
    "one": Stack(100, 320, (StackedAdapter(0, 100, 5, 0.5),)),
    "three": Stack(
        160, 256, tuple(StackedAdapter(*one) for one in ((0, 96, 16, 2.0), (96, 32, 3, 1.0), (128, 32, 20, 1.5)))
    ),
    "gap": Stack(160, 128, (StackedAdapter(0, 64, 8, 1.0), StackedAdapter(128, 32, 8, 1.0))),
}  # fmt: skip


VECTORS = ("bare", "three", "gap", "one")


def cases() -> list[Case]:
    """List stacks, numbers of tokens, splits and biases, with and without matrix units."""
    found = []
    for dtype in TOLERANCE:
        found += [_case(name, 3, dtype, splits=1) for name in STACKS]
        found += [
            _case("three", 1, dtype, splits=2, bias=True),
            _case("one", 17, dtype, splits=3),
            _case("gap", 2, dtype, splits=1, bias=True),
            *(_case(name, 1, dtype, splits=1, vector=True, bias=name == "gap") for name in VECTORS),
        ]
        for name in ("three", "one"):
            for rows in (1, 8, 64, 128):
                found.append(_case(name, rows, dtype, splits=0, gpu_only=True))
        if dtype != torch.float32:  # cuBLAS adds up in another order
            found += [_case("wide", rows, dtype, splits=0, gpu_only=True) for rows in (1, 64)]
    return found + nf4_cases.cases() + eight_bit_cases.cases()


def _case(
    name: str,
    rows: int,
    dtype: torch.dtype,
    *,
    splits: int,
    bias: bool = False,
    vector: bool = False,
    gpu_only: bool = False,
) -> Case:
    words = [name, str(rows), str(splits or "auto"), str(dtype).removeprefix("torch."), "bias" * bias]
    words.append("vector" * vector)
    options: dict[str, Any] = {"stack": name, "rows": rows, "dtype": dtype, "splits": splits, "bias": bias}
    options["vector"] = vector
    return Case("-".join(word for word in words if word), TOLERANCE[dtype], options, gpu_only)


def projection(rows: int, inputs: int, rank: int = 16) -> Stack:
    """Return a stack whose every output has an adapter of one rank."""
    return Stack(rows, inputs, (StackedAdapter(0, rows, rank, 1.0),))


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the relative L2 error against the reference, on upcast inputs.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where something beside the output was written, or a second run gave other bits.
    """
    from burnish_kernels.decode_linear import op, reference

    options = case.options
    if options.get("nf4"):
        return nf4_cases.compare(case, device, seed)
    if options.get("codes"):
        return eight_bit_cases.compare(case, device, seed)
    dtype, rows = options["dtype"], options["rows"]
    stack = STACKS.get(options["stack"]) or projection(5120, 2560)
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).to(device)

    matrix = draw(stack.N + stack.R, stack.K + stack.R) / 8
    matrix[: stack.N, stack.K :] = 0
    for adapter, first in zip(stack.adapters, stack.firsts, strict=True):
        matrix[adapter.span, stack.K + first : stack.K + first + adapter.padded] = draw(adapter.rows, adapter.padded)
    x = draw(rows, stack.K + stack.R)[:, : stack.K]
    bias = draw(stack.N) if options["bias"] else None
    whole = torch.full((rows, stack.N + 8), math.nan, dtype=dtype, device=device)
    config = DecodeConfig(32, 64, options["splits"], 4, 2) if options["splits"] else None
    if options["vector"]:
        config = DecodeConfig(4, 128, 1, 4, 1, vector=True)
    rules: dict[str, Any] = {"bias_N": bias, "config": config}
    found = op.forward(x, matrix, stack, out=whole[:, : stack.N], **rules).cpu()
    again = op.forward(x, matrix, stack, **rules).cpu()
    if not torch.equal(found, again) or not whole[:, stack.N :].isnan().all():
        return math.inf
    exact = reference.decode_linear(
        x.cpu().double(), matrix.cpu().double(), stack, None if bias is None else bias.cpu().double()
    )
    error = float((found.double() - exact).norm() / exact.norm())
    return error if math.isfinite(error) else math.inf


def compilations() -> list[Compilation]:
    """List all kernels for each type and some numbers of tokens."""
    from burnish_kernels import kernel_overlap
    from burnish_kernels.decode_linear import kernel

    found = []
    for dtype, pointer in TYPES.items():
        for rows, overlaps in ((1, False), (1, True), (64, False), (128, False)):
            stack = projection(4096, 1024)
            wide = dtype == torch.float32
            config = choose(rows, stack.N, stack.K, wide=wide, processors=132)
            assert config is not None
            whole: dict[str, Any] = {
                "SPANS": rank_spans(stack, config.block_n),
                "RANKS": 16,
                "BLOCK_B": max(16, rows),
                "BLOCK_N": config.block_n,
                "BLOCK_K": config.block_k,
                "SPLITS": 2,
                "HAS_BIAS": False,
                "PRECISION": "ieee" if wide else "tf32",
                "OVERLAPS": overlaps,
            }
            word = f"{rows}-{pointer[1:]}{'-overlaps' * overlaps}"
            on = kernel_overlap.CAPABILITIES if overlaps else CAPABILITIES
            for function in (kernel.narrow_kernel, kernel.vector_kernel) if config.vector else (kernel.decode_kernel,):
                constants = {name: value for name, value in whole.items() if name in function.arg_names}
                if function is kernel.narrow_kernel:
                    constants |= {"BLOCK_N": 1, "BLOCK_K": kernel.narrow_sizes(stack.K)["BLOCK_K"]}
                signature = {name: _type(name, pointer) for name in function.arg_names if name not in constants}
                name = f"{function.__name__}-{word}"
                found.append(Compilation(name, function, signature, constants, config.warps, config.stages, on))
    return found + nf4_cases.compilations() + eight_bit_cases.compilations()


def _type(argument: str, pointer: str) -> str:
    known = {"counters_ptr": "*i32", "parts_ptr": "*fp32", "narrow_ptr": "*fp32"}
    if argument in known:
        return known[argument]
    return pointer if argument.endswith("_ptr") else "i32"


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List the projections of three models on one, eight and 64 tokens, beside torch's product without an adapter."""
    from burnish_kernels.decode_linear import op

    shapes = {"0.6b-qkv": (4096, 1024), "0.6b-down": (1024, 3072), "4b-gate-up": (19456, 2560), "8b-o": (4096, 4096)}
    for name, (outputs, inputs) in shapes.items():
        stack = projection(outputs, inputs)
        count = max(2, int(3e8) // (outputs * inputs * 2))  # more than a cache holds
        matrices = [torch.randn(*stack.buffer_shape, device=device).bfloat16() for _ in range(count)]
        for rows in (1, 8, 64):
            x, turn = torch.randn(rows, inputs, device=device).bfloat16(), itertools.cycle(matrices)

            def run(turn: Any = turn, x: torch.Tensor = x, stack: Stack = stack) -> object:
                return op.forward(x, next(turn), stack)

            def plain(turn: Any = turn, x: torch.Tensor = x, stack: Stack = stack) -> object:
                return x @ next(turn)[: stack.N, : stack.K].t()

            yield Benchmark(f"{name}-{rows}", run, plain, outputs * inputs * 2)
    yield from nf4_cases.benchmarks(device)
    yield from eight_bit_cases.benchmarks(device)
