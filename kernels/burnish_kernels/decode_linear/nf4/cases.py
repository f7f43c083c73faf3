"""Test cases, compilations and benchmarks of projections with NF4 weights on few tokens."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.decode_linear.config import DecodeConfig, rank_spans
from burnish_kernels.decode_linear.nf4.config import choose, padded
from burnish_kernels.lora_linear.stack import Stack, StackedAdapter
from burnish_kernels.nf4.cases import random_weight
from burnish_kernels.registry import CAPABILITIES, Benchmark, Case, Compilation

# Relative L2 error against the reference in double precision: level, scale and weight are rounded, and x Aᵀ is.
TOLERANCE = {torch.float16: 3e-3, torch.bfloat16: 2e-2}

OTHERS = tuple(one for one in CAPABILITIES if one != 90)

# Stack, and rows of the parts of its weight.
STACKS = {
    "bare": (Stack(70, 192), (32, 38)),
    "one": (Stack(64, 128, (StackedAdapter(0, 64, 5, 0.5),)), (64,)),
    "three": (
        Stack(
            160, 320, (StackedAdapter(0, 96, 16, 2.0), StackedAdapter(96, 32, 3, 1.0), StackedAdapter(128, 32, 20, 1.5))
        ),
        (96, 32, 32),
    ),
    "gap": (Stack(96, 64, (StackedAdapter(0, 32, 8, 1.0), StackedAdapter(64, 32, 8, 1.0))), (64, 32)),
    "qkv": (
        Stack(6144, 2560, tuple(StackedAdapter(*one, 16, 1.0) for one in ((0, 4096), (4096, 1024), (5120, 1024)))),
        (4096, 1024, 1024),
    ),
}  # fmt: skip

SHAPES = {
    "4b-qkv": STACKS["qkv"],
    "4b-o": (Stack(2560, 4096, (StackedAdapter(0, 2560, 16, 1.0),)), (2560,)),
    "4b-gate-up": (
        Stack(19456, 2560, (StackedAdapter(0, 9728, 16, 1.0), StackedAdapter(9728, 9728, 16, 1.0))),
        (9728, 9728),
    ),
    "4b-down": (Stack(2560, 9728, (StackedAdapter(0, 2560, 16, 1.0),)), (2560,)),
}


def cases() -> list[Case]:
    """List stacks of one to three parts, numbers of tokens, splits, biases, both kinds of scales; more on a GPU."""
    found = []
    for dtype in TOLERANCE:
        found += [
            _case("one", 1, dtype, splits=1),
            _case("bare", 9, dtype, splits=2, bias=True),
            _case("three", 3, dtype, splits=2, double=False),
            _case("gap", 2, dtype, splits=1, bias=True),
        ]
        found += [_case("three", rows, dtype, splits=0, gpu_only=True) for rows in (1, 8)]
        found += [_case("qkv", rows, dtype, splits=0, gpu_only=True) for rows in (1, 8, 17, 32)]
        found += [_case("qkv", 16, dtype, splits=0, double=False, bias=True, gpu_only=True)]
    return found


def _case(
    name: str,
    rows: int,
    dtype: torch.dtype,
    *,
    splits: int,
    bias: bool = False,
    double: bool = True,
    gpu_only: bool = False,
) -> Case:
    words = ["nf4", name, str(rows), str(splits or "auto"), str(dtype).removeprefix("torch."), "bias" * bias]
    words.append("single" * (not double))
    options: dict[str, Any] = {"nf4": True, "stack": name, "rows": rows, "dtype": dtype, "splits": splits}
    options |= {"bias": bias, "double": double}
    return Case("-".join(word for word in words if word), TOLERANCE[dtype], options, gpu_only)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the relative L2 error against the reference, on upcast inputs; as `decode_linear.cases.compare`."""
    from burnish_kernels.decode_linear.nf4 import op, reference

    options = case.options
    dtype, rows = options["dtype"], options["rows"]
    stack, heights = STACKS[options["stack"]]
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).to(device)

    parts = [
        random_weight(height, stack.K, device, options["double"], seed + number)
        for number, height in enumerate(heights)
    ]
    a, sb = draw(stack.R, stack.K) / 8, torch.zeros(stack.N, stack.R, dtype=dtype, device=device)
    for adapter, first in zip(stack.adapters, stack.firsts, strict=True):
        sb[adapter.span, first : first + adapter.padded] = draw(adapter.rows, adapter.padded) / 8
    x = draw(rows, stack.K + stack.R)[:, : stack.K]
    bias = draw(stack.N) if options["bias"] else None
    whole = torch.full((rows, stack.N + 8), math.nan, dtype=dtype, device=device)
    config = DecodeConfig(32, 64, options["splits"], 4, 2) if options["splits"] else None
    rules: dict[str, Any] = {"bias_N": bias, "config": config}
    found = op.forward(x, parts, a, sb, stack, out=whole[:, : stack.N], **rules).cpu()
    again = op.forward(x, parts, a, sb, stack, **rules).cpu()
    if not torch.equal(found, again) or not whole[:, stack.N :].isnan().all():
        return math.inf
    wide_bias = None if bias is None else bias.double()
    exact = reference.decode_linear(x.double(), parts, a.double(), sb.double(), stack, wide_bias)
    error = float((found.double() - exact.cpu()).norm() / exact.norm())
    return error if math.isfinite(error) else math.inf


def compilations() -> list[Compilation]:
    """List the kernel for both types and kinds of scales and some numbers of tokens."""
    from burnish_kernels.decode_linear.nf4 import kernel

    found = []
    uses = ((1, CAPABILITIES), (32, CAPABILITIES), (64, OTHERS))
    for pointer, (rows, cards) in itertools.product(("*fp16", "*bf16"), uses):
        for name, double in (("4b-qkv", True), ("4b-down", rows > 1)):
            stack, heights = SHAPES[name]
            tops = tuple(itertools.accumulate(heights[:-1], initial=0))
            config = choose(rows, tops, stack.N, stack.K, capability=cards[0], processors=132)
            assert config is not None
            spans = rank_spans(stack, config.block_n)
            assert spans is not None
            constants = kernel.rank_constants(rows, spans) | {
                "TOPS": tops,
                "SPANS": spans,
                "DOUBLE": double,
                "BLOCK_B": padded(rows),
                "BLOCK_N": config.block_n,
                "BLOCK_K": config.block_k,
                "SPLITS": config.splits,
                "HAS_BIAS": False,
                "PRECISION": "tf32",
            }
            types = _types(len(heights), double=double)
            names = [one for one in kernel.nf4_kernel.arg_names if one not in constants]
            signature = {one: types.get(one, pointer if one.endswith("_ptr") else "i32") for one in names}
            word = f"nf4-{name}-{rows}-{pointer[1:]}{'' if double else '-single'}"
            found.append(Compilation(word, kernel.nf4_kernel, signature, constants, config.warps, config.stages, cards))
    return found


def _types(parts: int, *, double: bool) -> dict[str, Any]:
    """Return the types of the arguments that are not of the inputs' type."""
    pointers = dict.fromkeys(("nested_ptrs", "code_ptrs", "offset_ptrs"), "*fp32")
    pointers |= {"packed_ptrs": "*u8", "absmax_ptrs": "*u8" if double else "*fp32"}
    return {"counters_ptr": "*i32", "parts_ptr": "*fp32"} | {name: (one,) * parts for name, one in pointers.items()}


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List the projections of a 4B model on one to 64 tokens, beside unpacking and torch's product without adapter."""
    from burnish_kernels.decode_linear.nf4 import op
    from burnish_kernels.nf4.op import dequantize_stack

    for name, (stack, heights) in SHAPES.items():
        count = max(2, int(3e8) // (stack.N * stack.K // 2))  # more than a cache holds
        weights = [[random_weight(rows, stack.K, device, double=True) for rows in heights] for _ in range(count)]
        a = torch.randn(stack.R, stack.K, device=device).bfloat16()
        sb = torch.zeros(stack.N, stack.R, device=device).bfloat16()
        scratch = torch.empty(stack.N, stack.K, dtype=torch.bfloat16, device=device)
        for rows in (1, 8, 64):
            x, turn = torch.randn(rows, stack.K, device=device).bfloat16(), itertools.cycle(weights)

            def run(turn: Any = turn, x: torch.Tensor = x, rest: Any = (a, sb, stack)) -> object:
                return op.forward(x, next(turn), *rest)

            def plain(turn: Any = turn, x: torch.Tensor = x, scratch: torch.Tensor = scratch) -> object:
                return x @ dequantize_stack(next(turn), scratch, scratch.dtype).t()

            yield Benchmark(f"nf4-{name}-{rows}", run, plain, sum(one.nbytes for one in weights[0]))
