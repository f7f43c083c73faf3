"""Test cases, compilations and benchmarks of the gated RMSNorm."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from burnish_kernels.registry import Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers

# Relative L2 error against the reference in double precision: a few units in the last place of the dtype.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
EPS = 1e-6
SHAPES = ((1, 1, 16), (5, 3, 32), (3, 4, 24), (9, 2, 128))  # rows, heads, head size


def cases() -> list[Case]:
    """List shapes, among them heads of no power of two, and dtypes; strided rows, far offsets."""
    found = [_case(*shape, dtype) for shape in SHAPES for dtype in TOLERANCE]
    found += [_case(5, 3, 32, dtype, padding=24) for dtype in TOLERANCE]
    far = _case(2, 3, 32, torch.bfloat16, padding=1 << 30)
    return [*found, Case("far-rows", far.tolerance, far.options, gpu_only=True)]


def _case(rows: int, heads: int, size: int, dtype: torch.dtype, *, padding: int = 0) -> Case:
    parts = [f"{rows}x{heads}x{size}", str(dtype).removeprefix("torch.")]
    options = {"rows": rows, "heads": heads, "size": size, "dtype": dtype, "padding": padding}
    return Case("-".join([*parts, f"padding{padding}"] if padding else parts), TOLERANCE[dtype], options)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of output and gradients against the reference, on upcast inputs.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where something beside the outputs was written.
    """
    from burnish_kernels.gated_norm import op, reference

    options, generator = case.options, torch.Generator().manual_seed(seed)
    rows, dtype, width = options["rows"], options["dtype"], options["heads"] * options["size"]
    o, z, dy = (torch.randn(rows, width, generator=generator).to(dtype) for _ in range(3))
    weight = torch.randn(options["size"], generator=generator).to(dtype)
    leaves = [one.double().requires_grad_() for one in (o, z)]
    exact_y = reference.forward(*leaves, weight.double(), eps=EPS)
    exact = torch.autograd.grad(exact_y, leaves, dy.double())

    buffers = StridedBuffers(rows, options["padding"], dtype, device)
    given = [buffers.new(width, one) for one in (o, z)]
    weight = weight.to(device)
    y = op.forward(*given, weight, eps=EPS, out=buffers.new(width))
    outs = {"do_out": buffers.new(width), "dz_out": buffers.new(width)}
    gradients = op.backward(buffers.new(width, dy), *given, weight, eps=EPS, **outs)
    if buffers.spoiled():
        return math.inf
    pairs = zip((y, *gradients), (exact_y.detach(), *exact), strict=True)
    return max(_error(ours, theirs) for ours, theirs in pairs)


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    error = float((found.cpu().double() - exact).norm() / exact.norm())
    return math.inf if math.isnan(error) else error  # a maximum may pass over NaN


def compilations() -> list[Compilation]:
    """List both kernels for every dtype."""
    from burnish_kernels.gated_norm import kernel

    found = []
    for dtype, pointer in TYPES.items():
        for function in (kernel.gated_norm_forward_kernel, kernel.gated_norm_backward_kernel):
            constants = kernel.tile_of(128)
            signature = {
                name: pointer if name.endswith("_ptr") else "fp32" if name == "eps" else "i32"
                for name in function.arg_names
                if name not in constants
            }
            name = f"{function.__name__}-{str(dtype).removeprefix('torch.')}"
            found.append(Compilation(name, function, signature, constants, num_warps=kernel.WARPS))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List forward and backward at the widths of Qwen3.5's 0.8B (2B) and 4B (9B, 35B-A3B)."""
    from burnish_kernels.gated_norm import op, reference

    rows, size, dtype = 16384, 128, torch.bfloat16
    weight = torch.randn(size, device=device, dtype=dtype)
    for width in (2048, 4096):
        o, z, dy, do, dz = (torch.randn(rows, width, device=device, dtype=dtype) for _ in range(5))
        numbers = rows * width
        yield Benchmark(
            f"forward-{rows}x{width}",
            lambda o=o, z=z, do=do: op.forward(o, z, weight, eps=EPS, out=do),  # type: ignore[misc]
            lambda o=o, z=z: reference.forward(o, z, weight, eps=EPS),  # type: ignore[misc]
            bytes=3 * 2 * numbers,
        )
        yield Benchmark(
            f"backward-{rows}x{width}",
            lambda o=o, z=z, dy=dy, do=do, dz=dz: op.backward(  # type: ignore[misc]
                dy, o, z, weight, eps=EPS, do_out=do, dz_out=dz
            ),
            lambda o=o, z=z, dy=dy: reference.backward(dy, o, z, weight, eps=EPS),  # type: ignore[misc]
            bytes=5 * 2 * numbers,
        )
