"""Test cases, compilations and benchmarks of projections with weights in 8 bits on few tokens."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.decode_linear.config import DecodeConfig, rank_spans
from burnish_kernels.decode_linear.eight_bit.config import BLOCK_B, choose
from burnish_kernels.decode_linear.nf4.cases import SHAPES
from burnish_kernels.decode_linear.nf4.cases import STACKS as NF4_STACKS
from burnish_kernels.eight_bit_linear.rows import CODES, INT8, EightBitRows
from burnish_kernels.registry import Benchmark, Case, Compilation

# Relative L2 error against the reference in double precision: codes are exact, and x Aᵀ is rounded once.
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
STACKS = {name: stack for name, (stack, _) in NF4_STACKS.items()}
_NAMES = {CODES: "fp8", INT8: "int8"}


def cases() -> list[Case]:
    """List codes of both types, stacks, numbers of tokens, splits and biases; larger ones on a GPU."""
    found = []
    for dtype, codes in itertools.product(TOLERANCE, _NAMES):
        found += [
            _case("one", 1, dtype, codes, splits=1),
            _case("bare", 8, dtype, codes, splits=2, bias=True),
            _case("three", 3, dtype, codes, splits=2),
            _case("gap", 2, dtype, codes, splits=1, bias=True),
            *(_case("qkv", rows, dtype, codes, splits=0, gpu_only=True) for rows in (1, 5, 8)),
        ]
    return found


def _case(
    name: str,
    rows: int,
    dtype: torch.dtype,
    codes: torch.dtype,
    *,
    splits: int,
    bias: bool = False,
    gpu_only: bool = False,
) -> Case:
    words = [_NAMES[codes], name, str(rows), str(splits or "auto"), str(dtype).removeprefix("torch."), "bias" * bias]
    options: dict[str, Any] = {"codes": codes, "stack": name, "rows": rows, "dtype": dtype, "splits": splits}
    return Case("-".join(word for word in words if word), TOLERANCE[dtype], options | {"bias": bias}, gpu_only)


def random_rows(outputs: int, inputs: int, codes: torch.dtype, device: str, seed: int) -> EightBitRows:
    """Make a weight of every code that is a number, in random order."""
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(0, 256, (outputs, inputs), dtype=torch.uint8, generator=generator)
    if codes == CODES:
        bits[(bits & 0x7F) == 0x7F] = 0x38  # those that are no number become 1
    scale = torch.rand(outputs, generator=generator) / 100 + 0.001
    return EightBitRows(bits.view(codes).to(device), scale.to(device))


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the relative L2 error against the reference, on upcast inputs; as `decode_linear.cases.compare`."""
    from burnish_kernels.decode_linear.eight_bit import op, reference

    options = case.options
    dtype, rows, stack = options["dtype"], options["rows"], STACKS[options["stack"]]
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).to(device)

    weight = random_rows(stack.N, stack.K, options["codes"], device, seed)
    a, sb = draw(stack.R, stack.K) / 8, torch.zeros(stack.N, stack.R, dtype=dtype, device=device)
    for adapter, first in zip(stack.adapters, stack.firsts, strict=True):
        sb[adapter.span, first : first + adapter.padded] = draw(adapter.rows, adapter.padded) / 8
    x = draw(rows, stack.K + stack.R)[:, : stack.K]
    bias = draw(stack.N) if options["bias"] else None
    whole = torch.full((rows, stack.N + 8), math.nan, dtype=dtype, device=device)
    config = DecodeConfig(32, 64, options["splits"], 4, 2) if options["splits"] else None
    rules: dict[str, Any] = {"bias_N": bias, "config": config}
    found = op.forward(x, weight, a, sb, stack, out=whole[:, : stack.N], **rules).cpu()
    again = op.forward(x, weight, a, sb, stack, **rules).cpu()
    if not torch.equal(found, again) or not whole[:, stack.N :].isnan().all():
        return math.inf
    wide_bias = None if bias is None else bias.double()
    exact = reference.decode_linear(x.double(), weight, a.double(), sb.double(), stack, wide_bias)
    error = float((found.double() - exact.cpu()).norm() / exact.norm())
    return error if math.isfinite(error) else math.inf


def compilations() -> list[Compilation]:
    """List the kernel for both types of inputs and of codes."""
    from burnish_kernels.decode_linear.eight_bit import kernel

    found = []
    for pointer, codes in itertools.product(("*fp16", "*bf16"), _NAMES):
        for name in ("4b-qkv", "4b-down"):
            stack, _ = SHAPES[name]
            config = choose(stack.N, stack.K, processors=132)
            spans = rank_spans(stack, config.block_n)
            assert spans is not None
            constants = {
                "SPANS": spans,
                "RANKS": kernel.rank_width(spans),
                "E4M3": codes == CODES,
                "BLOCK_B": BLOCK_B,
                "BLOCK_N": config.block_n,
                "BLOCK_K": config.block_k,
                "SPLITS": config.splits,
                "HAS_BIAS": False,
                "PRECISION": "tf32",
            }
            types = {"codes_ptr": "*u8" if codes == CODES else "*i8", "scale_ptr": "*fp32", "parts_ptr": "*fp32"}
            types["counters_ptr"] = "*i32"
            names = [one for one in kernel.eight_bit_kernel.arg_names if one not in constants]
            signature = {one: types.get(one, pointer if one.endswith("_ptr") else "i32") for one in names}
            word = f"{_NAMES[codes]}-{name}-{pointer[1:]}"
            function, sizes = kernel.eight_bit_kernel, (config.warps, config.stages)
            found.append(Compilation(word, function, signature, constants, *sizes))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List the projections of a 4B model on one and eight tokens, beside torch's product in 16 bits."""
    from burnish_kernels.decode_linear.eight_bit import op

    for name, (stack, _) in SHAPES.items():
        count = max(2, int(3e8) // (stack.N * stack.K))  # more than a cache holds
        weights = [random_rows(stack.N, stack.K, CODES, device, seed) for seed in range(count)]
        wide = [torch.randn(stack.N, stack.K, device=device).bfloat16() for _ in range(count)]
        a = torch.randn(stack.R, stack.K, device=device).bfloat16()
        sb = torch.zeros(stack.N, stack.R, device=device).bfloat16()
        for rows in (1, 8):
            x = torch.randn(rows, stack.K, device=device).bfloat16()
            turn, other = itertools.cycle(weights), itertools.cycle(wide)

            def run(turn: Any = turn, x: torch.Tensor = x, rest: Any = (a, sb, stack)) -> object:
                return op.forward(x, next(turn), *rest)

            def plain(other: Any = other, x: torch.Tensor = x) -> object:
                return x @ next(other).t()

            yield Benchmark(f"fp8-{name}-{rows}", run, plain, stack.N * stack.K)
