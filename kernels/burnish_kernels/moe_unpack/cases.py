"""Test cases, compilations and benchmarks of unpacking experts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.moe_unpack.stacks import Mxfp4Experts, Nf4Experts, Packed, stack_nf4
from burnish_kernels.nf4.cases import DTYPES, random_weight
from burnish_kernels.registry import Benchmark, Case, Compilation

TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
KINDS = ("nf4", "nf4-double", "mxfp4")
SHAPES = ((1, 64), (40, 192), (17, 320), (5, 704))  # rows and columns of an expert; those of tiles not filled


def cases() -> list[Case]:
    """List kinds, shapes and types; a group amid the stack, into a part of a larger buffer. Values must be equal."""
    found = [
        Case(
            f"{kind}-{rows}x{columns}-{str(dtype).removeprefix('torch.')}",
            0.0,
            {"kind": kind, "shape": (rows, columns), "dtype": dtype, "experts": 4, "first": 1, "count": 2},
        )
        for kind in KINDS
        for rows, columns in SHAPES
        for dtype in DTYPES
    ]
    large: dict[str, Any] = {"shape": (14336, 4096), "dtype": torch.bfloat16, "experts": 40, "first": 38, "count": 2}
    return [*found, *(Case(f"{kind}-past-2^31", 0.0, {**large, "kind": kind}, gpu_only=True) for kind in KINDS)]


def random_stack(kind: str, experts: int, rows: int, columns: int, device: str, seed: int = 0) -> Packed:
    """Make packed experts of random bytes with scales like those of weights.

    Args:
        kind: "nf4", "nf4-double" or "mxfp4".
        experts: number of experts.
        rows: rows of an expert.
        columns: columns of an expert.
        device: device of the tensors.
        seed: seed of the bytes.
    """
    if kind != "mxfp4":
        made = [random_weight(rows, columns, device, kind == "nf4-double", seed + index) for index in range(experts)]
        return stack_nf4(made)
    generator = torch.Generator(device).manual_seed(seed)

    def draw(low: int, high: int, *size: int) -> torch.Tensor:
        return torch.randint(low, high, size, dtype=torch.uint8, device=device, generator=generator)

    return Mxfp4Experts(draw(0, 256, experts, rows, columns // 32, 16), draw(118, 124, experts, rows, columns // 32))


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the number of values that differ from the reference; infinite where something beside them was written.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random bytes.
    """
    from burnish_kernels.moe_unpack import op, reference

    options = case.options
    (rows, columns), dtype, first, count = (options[name] for name in ("shape", "dtype", "first", "count"))
    stack = random_stack(options["kind"], options["experts"], rows, columns, device, seed)
    # The smallest powers of two too, except where Triton's interpreter makes bf16 of them: it loses denormal numbers.
    if isinstance(stack, Mxfp4Experts) and (dtype != torch.bfloat16 or device != "cpu"):
        stack.scales[first, 0, 0], stack.scales[first, -1, -1] = 0, 1
    buffer = torch.full((count, rows * columns + 64), math.nan, dtype=dtype, device=device)
    out = buffer.as_strided((count, rows, columns), (buffer.stride(0), columns, 1))
    op.unpack_group(stack, first, count, dtype=dtype, out=out)
    if not buffer[:, rows * columns :].isnan().all():
        return math.inf
    wanted = reference.unpack(stack, first, count, torch.float32)
    return float((out.float() != as_stored(wanted, dtype).float()).sum())


def as_stored(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round as the kernel does: Triton's interpreter cuts bf16 off where the hardware rounds."""
    from burnish_kernels.dispatch import interpreted

    if dtype != torch.bfloat16 or not interpreted():
        return values.to(dtype)
    return (values.view(torch.int32) & -65536).view(torch.float32).to(dtype)


def compilations() -> list[Compilation]:
    """List the unpacking of MXFP4 into each type, and the kernel of NF4's scales; what unpacks NF4 is `nf4`'s."""
    from burnish_kernels.moe_unpack import kernel
    from burnish_kernels.nf4.reference import NESTED_BLOCK

    numbers = dict.fromkeys(("first", "blocks", "nested"), "i32")
    pointers = {"absmax_ptr": "*u8"} | dict.fromkeys(("nested_ptr", "code_ptr", "offset_ptr", "out_ptr"), "*fp32")
    constants: dict[str, Any] = {"NESTED": NESTED_BLOCK, "SCALES": kernel.SCALES}
    found = [Compilation("nf4-scales", kernel.nf4_scales_kernel, pointers | numbers, constants, kernel.WARPS)]
    for pointer in TYPES.values():
        signature = {"packed_ptr": "*u8", "scale_ptr": "*u8", "out_ptr": pointer}
        signature |= dict.fromkeys(("first", "N", "K"), "i32") | {"out_stride": "i64"}
        constants = {"ROWS": kernel.ROWS, "COLUMNS": kernel.COLUMNS}
        name = f"unpack-mxfp4-{pointer[1:]}"
        found.append(Compilation(name, kernel.unpack_mxfp4_kernel, signature, constants, kernel.WARPS))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List groups of experts of published models that fit a second-level cache."""
    from burnish_kernels.moe_unpack import op, reference

    for kind, experts, rows, columns in (("nf4-double", 6, 1536, 2048), ("mxfp4", 1, 5760, 2880)):
        stack = random_stack(kind, experts, rows, columns, device)
        out = torch.empty(experts, rows, columns, dtype=torch.bfloat16, device=device)

        def run(stack: Packed = stack, out: torch.Tensor = out) -> object:
            return op.unpack_group(stack, 0, len(out), dtype=out.dtype, out=out)

        def plain(stack: Packed = stack, out: torch.Tensor = out) -> object:
            return reference.unpack(stack, 0, len(out), out.dtype)

        packed = stack.packed if isinstance(stack, Nf4Experts) else stack.blocks
        yield Benchmark(f"{kind}-{experts}x{rows}x{columns}", run, plain, bytes=packed.nbytes + out.nbytes)
