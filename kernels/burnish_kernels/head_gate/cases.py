"""Test cases, compilations and benchmarks of the gate of attention's output."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from burnish_kernels.registry import Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers

# Relative L2 error against the reference in double precision; the sigmoid is rounded before the product is.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
SHAPES = ((1, 3, 64), (5, 4, 256), (37, 5, 24))
"""Tokens, N, D."""


def cases() -> list[Case]:
    """List shapes, dtypes, both kinds of gates; strided tokens, gates between queries, results in place."""
    found = [
        _case(shape, dtype, by_number=by_number)
        for shape in SHAPES
        for dtype in TOLERANCE
        for by_number in (True, False)
    ]
    found += [
        _case((9, 4, 40), dtype, by_number=by_number, padding=24) for dtype in TOLERANCE for by_number in (True, False)
    ]
    far = _case((3, 2, 64), torch.bfloat16, by_number=True, padding=1 << 30)
    return [*found, Case("far-rows", far.tolerance, far.options, gpu_only=True)]


def _case(shape: tuple[int, int, int], dtype: torch.dtype, *, by_number: bool, padding: int = 0) -> Case:
    kind = str(dtype).removeprefix("torch.")
    name = f"{'x'.join(map(str, shape))}-{kind}-{'numbers' if by_number else 'heads'}{'-padding' if padding else ''}"
    return Case(
        name, TOLERANCE[dtype], {"shape": shape, "dtype": dtype, "by_number": by_number, "padding": padding}
    )  # fmt: skip


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of outputs and gradients against the reference, on upcast inputs.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where something beside the outputs was written.
    """
    from burnish_kernels.head_gate import op, reference

    tokens, heads, size = case.options["shape"]
    dtype, by_number = case.options["dtype"], case.options["by_number"]
    generator = torch.Generator().manual_seed(seed)
    x, dy, logits = (
        torch.randn(tokens, heads, width, generator=generator).to(dtype)
        for width in (size, size, size if by_number else 1)
    )
    leaves = [one.double().requires_grad_() for one in (x, logits)]
    y = reference.forward(leaves[0], leaves[1])
    exact = [y.detach(), *torch.autograd.grad(y, leaves, dy.double())]

    buffers = StridedBuffers(tokens, case.options["padding"], dtype, device)

    def new(content: torch.Tensor | None = None) -> torch.Tensor:
        return buffers.new(heads * size, content).unflatten(1, (heads, size))

    def gates(content: torch.Tensor | None = None) -> torch.Tensor:
        """Lay out logits behind each head's query, or behind one another."""
        if not by_number:
            return buffers.new(heads, content)[..., None]
        made = buffers.new(2 * heads * size).unflatten(1, (heads, 2 * size))[..., size:]
        return made if content is None else made.copy_(content)

    gate, given, gradient = gates(logits), new(x), gates()
    found = op.forward(given, gate, out=new())
    upstream = new(dy)
    op.backward(upstream, given, gate, dx_out=upstream, dgate_out=gradient)
    beside = (
        gradient.as_strided(gradient.shape, gradient.stride(), gradient.storage_offset() - size) if by_number else None
    )
    if buffers.spoiled() or (beside is not None and not case.gpu_only and bool(beside.isfinite().any())):
        return math.inf
    return max(_error(ours, theirs) for ours, theirs in zip((found, upstream, gradient), exact, strict=True))


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    error = float((found.cpu().double() - exact).norm() / exact.norm())
    return math.inf if math.isnan(error) else error  # a maximum may pass over NaN


MODELS = {"16x256": (16, 256, 256), "8x256": (8, 256, 256), "32x64": (32, 64, 1)}
"""N, D and G of Qwen3.5 (4B and 0.8B) and LFM3."""


def compilations() -> list[Compilation]:
    """List both kernels for the heads of known models."""
    from burnish_kernels.head_gate import kernel

    found = []
    for dtype, pointer in TYPES.items():
        for name, shape in MODELS.items():
            for function, pointers, strides in (
                (kernel.head_gate_forward_kernel, ("x", "gate", "y"), ("x", "gate", "gate_head", "y")),
                (
                    kernel.head_gate_backward_kernel,
                    ("dy", "x", "gate", "dx", "dgate"),
                    ("dy", "x", "gate", "gate_head", "dx", "dgate", "dgate_head"),
                ),
            ):
                signature = {f"{one}_ptr": pointer for one in pointers} | {"T": "i32"}
                signature |= {f"{one}_stride": "i32" for one in strides}
                full = f"{function.__name__}-{name}-{str(dtype).removeprefix('torch.')}"
                constants = kernel.configuration(*shape)
                found.append(Compilation(full, function, signature, constants, num_warps=kernel.WARPS))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List forward and backward as in a decoder layer, gates behind their queries."""
    from burnish_kernels.head_gate import op, reference

    tokens, dtype = 16384, torch.bfloat16
    for name, (heads, size, logits) in MODELS.items():
        x, dy, y = (torch.randn(tokens, heads, size, device=device, dtype=dtype) for _ in range(3))
        width = heads * (size + logits)
        gate, dgate = (
            torch.randn(tokens, width, device=device, dtype=dtype).unflatten(1, (heads, -1))[..., size:]
            for _ in range(2)
        )
        moved = tokens * heads * 2
        yield Benchmark(
            f"forward-{name}",
            lambda x=x, gate=gate, y=y: op.forward(x, gate, out=y),  # type: ignore[misc]
            lambda x=x, gate=gate: reference.forward(x, gate),  # type: ignore[misc]
            bytes=moved * (2 * size + logits),
        )
        yield Benchmark(
            f"backward-{name}",
            lambda x=x, dy=dy, y=y, gate=gate, dgate=dgate: op.backward(  # type: ignore[misc]
                dy, x, gate, dx_out=y, dgate_out=dgate
            ),
            lambda x=x, dy=dy, gate=gate: reference.backward(dy, x, gate),  # type: ignore[misc]
            bytes=moved * (3 * size + 2 * logits),
        )
