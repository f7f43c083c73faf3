"""Test cases, compilations and benchmarks of attention over pages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.registry import Benchmark, Case, Compilation

# Relative L2 error against the reference in double precision: sums of products of numbers rounded to the dtype.
TOLERANCE = {torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
LENGTHS = [1, 64, 65, 0, 200, 128, 37]


def cases() -> list[Case]:
    """List groups, head sizes, windows, caps, sinks, rows at rest and splits that have no key."""
    found = []
    for dtype in TOLERANCE:
        found += [
            _case(4, 2, 16, dtype),
            _case(3, 3, 64, dtype, split=3),
            _case(6, 1, 80, dtype, split=2, window=70),
            _case(4, 2, 32, dtype, split=5, softcap=2.0, sinks=True),
            _case(4, 2, 16, dtype, window=20, sinks=True),
            _case(2, 1, 256, dtype, split=2, gpu_only=dtype != torch.float32),
            _case(2, 1, 512, dtype, split=1, gpu_only=dtype != torch.bfloat16),
        ]
        for heads, kv_heads, width in ((16, 8, 128), (64, 8, 64), (8, 4, 256), (8, 1, 512)):
            long = [1500, 3, 1024, 777, 0, 64]
            found.append(_case(heads, kv_heads, width, dtype, lengths=long, split=0, gpu_only=True))
            found.append(_case(heads, kv_heads, width, dtype, lengths=long, split=7, window=128, gpu_only=True))
    return found


def _case(
    heads: int,
    kv_heads: int,
    width: int,
    dtype: torch.dtype,
    *,
    lengths: list[int] | None = None,
    split: int = 1,
    window: int | None = None,
    softcap: float | None = None,
    sinks: bool = False,
    gpu_only: bool = False,
) -> Case:
    lengths = lengths or LENGTHS
    words = {f"window{window}": window, f"cap{softcap}": softcap, "sinks": sinks}
    name = f"{heads}/{kv_heads}x{width}-{max(lengths)}-{split or 'auto'}-{str(dtype).removeprefix('torch.')}"
    name = "-".join([name, *(word for word in words if words[word])])
    options: dict[str, Any] = {"heads": heads, "kv_heads": kv_heads, "width": width, "dtype": dtype}
    options |= {"lengths": lengths, "split": split or None, "window": window, "softcap": softcap, "sinks": sinks}
    return Case(name, TOLERANCE[dtype], options, gpu_only)


def pages_of(
    lengths: list[int], kv_heads: int, width: int, dtype: torch.dtype, device: str, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Make pages of random keys and values, NaN where no token is, and a table of them in random order.

    Returns:
        Keys, values and the table; page 0 is of no row.
    """
    from burnish_kernels.paged_attention.op import PAGE

    generator = torch.Generator().manual_seed(seed)
    needed = [-(-length // PAGE) for length in lengths]
    numbers = (torch.randperm(sum(needed), generator=generator) + 1).int().tolist()
    table = torch.zeros(len(lengths), max(needed), dtype=torch.int32)
    pools = [torch.full((sum(needed) + 1, kv_heads, PAGE, width), math.nan, dtype=dtype) for _ in range(2)]
    for row, length in enumerate(lengths):
        for page in range(needed[row]):
            table[row, page] = number = numbers.pop()
            count = min(PAGE, length - page * PAGE)
            for pool in pools:
                pool[number, :, :count] = torch.randn(kv_heads, count, width, generator=generator).to(dtype)
    return pools[0].to(device), pools[1].to(device), table.to(device)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of the output against the reference, on upcast inputs.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where pages hold anything but the old tokens and the newest.
    """
    from burnish_kernels.paged_attention import op, reference

    options = case.options
    heads, kv_heads, width, dtype = (options[name] for name in ("heads", "kv_heads", "width", "dtype"))
    lengths = torch.tensor(options["lengths"], dtype=torch.int32)
    rules = {name: options[name] for name in ("window", "softcap")} | {"scale": 1.3 / math.sqrt(width)}
    keys, values, table = pages_of(options["lengths"], kv_heads, width, dtype, device, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    whole = torch.randn(len(lengths), heads + 2 * kv_heads, width, generator=generator).to(dtype).to(device)
    q, k, v = whole.split((heads, kv_heads, kv_heads), dim=1)  # rows are strided, as in a projection's output
    sinks = torch.linspace(-2.0, 3.0, heads) if options["sinks"] else None
    exact_keys, exact_values = keys.cpu().clone(), values.cpu().clone()
    for new, pool in ((k, exact_keys), (v, exact_values)):
        reference.store(new.cpu(), pool, table.cpu(), lengths)
    exact = reference.paged_attention(
        q.cpu().double(),
        exact_keys.double(),
        exact_values.double(),
        table.cpu(),
        lengths,
        sinks_N=None if sinks is None else sinks.double(),
        **rules,
    )
    sinks = None if sinks is None else sinks.to(device)
    out = torch.full_like(q, math.nan)
    op.forward(
        *(q, k, v, keys, values, table, lengths.to(device)), out=out, sinks_N=sinks, split=options["split"], **rules
    )
    for pool, wanted in ((keys, exact_keys), (values, exact_values)):
        if not torch.equal(pool.cpu().nan_to_num(7.0), wanted.nan_to_num(7.0)):
            return math.inf
    there = lengths > 0
    error = float((out.cpu().double() - exact)[there].norm() / exact[there].norm())
    return error if math.isfinite(error) else math.inf


def compilations() -> list[Compilation]:
    """List the kernels for the head sizes of published models, with and without window, cap and sinks."""
    from burnish_kernels.paged_attention import kernel
    from burnish_kernels.paged_attention.op import PAGE

    found = []
    shapes = [(16, 8, 128, torch.bfloat16), (9, 3, 64, torch.bfloat16), (64, 8, 64, torch.bfloat16)]
    shapes += [(8, 4, 256, torch.bfloat16), (8, 1, 512, torch.bfloat16), (32, 32, 96, torch.float16)]
    shapes += [(16, 8, 128, torch.float32)]
    for heads, kv_heads, width, dtype in shapes:
        for rules in (False, True):
            switches = {"HAS_WINDOW": rules, "HAS_SINKS": rules, "OVERLAPS": False}
            constants = {
                "M": kv_heads,
                **kernel.sizes(width, heads // kv_heads, PAGE, dtype.itemsize),
                "PAGE": PAGE,
                "SPLITS": 8,
                **switches,
                "HAS_CAP": rules,
                "PRECISION": "ieee" if dtype == torch.float32 else "tf32",
            }
            word = f"{heads}/{kv_heads}x{width}-{str(dtype).removeprefix('torch.')}{'-rules' * rules}"
            signature = {
                name: _type(name, TYPES[dtype]) for name in kernel.paged_kernel.arg_names if name not in constants
            }
            found.append(
                Compilation(
                    f"paged-{word}",
                    kernel.paged_kernel,
                    signature,
                    constants,
                    kernel.warps(width, dtype),
                    kernel.STAGES,
                )
            )
            constants = {"D": width, "WIDTH": constants["WIDTH"], "SPLITS": 8, "BLOCK_S": 8, "HAS_SINKS": rules} | {
                "OVERLAPS": False
            }
            signature = {
                name: _type(name, TYPES[dtype]) for name in kernel.join_kernel.arg_names if name not in constants
            }
            found.append(Compilation(f"join-{word}", kernel.join_kernel, signature, constants, 2))
    return found


def _type(argument: str, pointer: str) -> str:
    known = {"table_ptr": "*i32", "lengths_ptr": "*i32", "window": "i32"}
    known |= dict.fromkeys(("sinks_ptr", "parts_ptr", "sums_ptr"), "*fp32")
    known |= dict.fromkeys(("factor", "cap", "cap_factor"), "fp32")
    return known.get(argument, "i32" if argument.endswith("_stride") else pointer)


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List one and 64 replies of 1,024 tokens in the shapes of three models."""
    from burnish_kernels.paged_attention import op

    for name, (heads, kv_heads, width) in {"0.6b": (16, 8, 128), "8b": (32, 8, 128), "gpt-oss": (64, 8, 64)}.items():
        for rows in (1, 64):
            lengths = [1024] * rows
            keys, values, table = pages_of(lengths, kv_heads, width, torch.bfloat16, device, 0)
            q = torch.randn(rows, heads, width, device=device).bfloat16()
            k = torch.randn(rows, kv_heads, width, device=device).bfloat16()
            counts = torch.tensor(lengths, dtype=torch.int32, device=device)

            def run(arguments: tuple[torch.Tensor, ...] = (q, k, k, keys, values, table, counts)) -> object:
                return op.forward(*arguments, scale=0.1)

            yield Benchmark(f"{name}-{rows}", run, None, 2 * 1024 * rows * kv_heads * width * 2)
