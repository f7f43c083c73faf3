"""Test cases, compilations and benchmarks of decoding GGUF's blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.dispatch import rounded
from burnish_kernels.gguf_blocks.blocks import GgufBlocks
from burnish_kernels.gguf_blocks.types import BLOCK_TYPES, row_bytes
from burnish_kernels.registry import Benchmark, Case, Compilation

TYPES = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32"}
SHAPES = ((1, 256), (7, 768), (40, 512))  # the second fills no program


def cases() -> list[Case]:
    """List block types, shapes and types; into a part of a larger buffer. Values must be equal."""
    found = [
        Case(f"{kind}-{rows}x{columns}-{pointer[1:]}", 0.0, {"kind": kind, "shape": (rows, columns), "dtype": dtype})
        for kind in BLOCK_TYPES
        for rows, columns in SHAPES
        for dtype, pointer in TYPES.items()
    ]
    large: dict[str, Any] = {"shape": (150_000, 16_384), "dtype": torch.bfloat16}
    return [*found, *(Case(f"{kind}-past-2^31", 0.0, {**large, "kind": kind}, gpu_only=True) for kind in ("Q4_K",))]


def random_blocks(kind: str, rows: int, columns: int, device: str, seed: int = 0) -> GgufBlocks:
    """Make blocks of random bytes, whose fp16 numbers are like those of weights.

    Args:
        kind: name of the type.
        rows: rows of the weight.
        columns: columns of the weight.
        device: device of the bytes.
        seed: seed of the bytes.
    """
    generator = torch.Generator(device).manual_seed(seed)
    size = rows, row_bytes(kind, columns)
    data = torch.randint(0, 256, size, dtype=torch.uint8, device=device, generator=generator)
    blocks = data.view(-1, BLOCK_TYPES[kind].bytes)
    high = torch.randint(0x10, 0x2C, (len(blocks),), dtype=torch.uint8, device=device, generator=generator)
    blocks[:, 209 if kind == "Q6_K" else 1] = high  # exponents of a scale between 2^-11 and 2^-5
    if BLOCK_TYPES[kind].offset:
        blocks[:, 3] = high
    return GgufBlocks(data, kind)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the number of values that differ from the reference; infinite where something beside them was written.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random bytes.
    """
    from burnish_kernels.gguf_blocks import op, reference

    (rows, columns), dtype = case.options["shape"], case.options["dtype"]
    weight = random_blocks(case.options["kind"], rows, columns, device, seed)
    buffer = torch.full((rows, columns + 16), math.nan, dtype=dtype, device=device)
    op.dequantize(weight, dtype=dtype, out=buffer[:, :columns])
    if not buffer[:, columns:].isnan().all():
        return math.inf
    step, differing = max(1, (1 << 26) // columns), 0
    for first in range(0, rows, step):
        wanted = reference.values(weight.data[first : first + step], weight.kind)
        differing += int((buffer[first : first + step, :columns] != rounded(wanted, dtype)).sum())
    return float(differing)


def compilations() -> list[Compilation]:
    """List every block type into each type of values."""
    from burnish_kernels.gguf_blocks import kernel

    found = []
    for kind, own in BLOCK_TYPES.items():
        for pointer in TYPES.values():
            signature = {"data_ptr": "*u8", "out_ptr": pointer, "group_count": "i32", "row_groups": "i32"}
            signature |= {"out_stride": "i32"}
            name = f"{kind}-{pointer[1:]}"
            found.append(Compilation(name, kernel.dequantize_kernel, signature, kernel.constants(own), kernel.WARPS))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List projections of an 8B model in the types of Q4_K_M files, of Q8_0 and of IQ4_NL."""
    from burnish_kernels.gguf_blocks import op, reference

    for kind in ("Q4_K", "Q6_K", "Q8_0", "IQ4_NL"):
        weight = random_blocks(kind, 14_336, 4096, device)
        out = torch.empty(weight.shape, dtype=torch.bfloat16, device=device)

        def run(weight: GgufBlocks = weight, out: torch.Tensor = out) -> object:
            return op.dequantize(weight, dtype=out.dtype, out=out)

        def plain(weight: GgufBlocks = weight, out: torch.Tensor = out) -> object:
            return reference.dequantize(weight, out)

        yield Benchmark(f"{kind}-14336x4096", run, plain, bytes=weight.data.nbytes + out.nbytes)
