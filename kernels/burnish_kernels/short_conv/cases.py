"""Test cases, compilations and benchmarks of the gated short convolution."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from burnish_kernels.registry import Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers

# Relative L2 error against the reference in double precision: a few units in the last place of the dtype.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
TAPS = (3, 7)  # widths of published models: LFM2, LFM3
# Lengths of documents, channels: shorter than the taps, across tiles of rows, and channels that fill no tile.
SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((1,), 8), ((1, 1, 2, 1, 3), 64), ((70,), 24), ((5, 40, 31, 33, 1, 1), 130), ((2, 2, 60), 192),
)  # fmt: skip


def cases() -> list[Case]:
    """List documents, dtypes, taps, bias or none; strided rows, far offsets."""
    found = [
        _case(lengths, channels, dtype, taps=taps, bias=taps != 3)
        for lengths, channels in SHAPES
        for dtype in TOLERANCE
        for taps in TAPS
    ]
    for dtype in TOLERANCE:
        found += [
            _case((9, 4, 30), 40, dtype, taps=3, bias=True, padding=24),
            _case((9, 4, 30), 40, dtype, taps=1),
            _case((9, 4, 30), 40, dtype, taps=4, padding=8),
        ]
    # The last row begins 2^31 elements behind the first.
    far = _case((2, 1), 96, torch.bfloat16, taps=3, padding=1 << 30)
    return [*found, Case("far-rows", far.tolerance, far.options, gpu_only=True)]


def _case(
    lengths: Sequence[int], channels: int, dtype: torch.dtype, *, taps: int, bias: bool = False, padding: int = 0
) -> Case:
    words = {f"{taps}taps": True, "bias": bias, f"padding{padding}": padding}
    parts = [f"{'+'.join(map(str, lengths))}x{channels}", str(dtype).removeprefix("torch.")]
    options = {"lengths": lengths, "channels": channels, "dtype": dtype, "taps": taps, "bias": bias}
    name = "-".join([*parts, *(word for word in words if words[word])])
    return Case(name, TOLERANCE[dtype], options | {"padding": padding})


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of output and gradient against the reference, on upcast inputs.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where something beside the outputs was written.
    """
    from burnish_kernels.short_conv import op

    options = case.options
    generator = torch.Generator().manual_seed(seed)
    channels, dtype = options["channels"], options["dtype"]
    start, end = _edges(options["lengths"])
    rows = len(start)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).to(dtype)

    bcx, dy, weight = draw(rows, 3 * channels), draw(rows, channels), draw(channels, options["taps"])
    bias = draw(channels) if options["bias"] else None
    exact = _exact(bcx, dy, weight, bias, start)
    buffers = StridedBuffers(rows, options["padding"], dtype, device)

    on_device = [one.to(device) for one in (weight, start, end)]
    bias_on = None if bias is None else bias.to(device)
    given = buffers.new(3 * channels, bcx)
    y = op.forward(given, on_device[0], on_device[1], bias_H=bias_on, out=buffers.new(channels))
    dy_in = buffers.new(channels, dy)
    gradient = op.backward(dy_in, given, *on_device, bias_H=bias_on, out=buffers.new(3 * channels))
    if buffers.spoiled():
        return math.inf
    found = [y, *gradient.chunk(3, dim=1)]
    return max(_error(ours, theirs) for ours, theirs in zip(found, exact, strict=True))


def _edges(lengths: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first row of each row's document, and one past its last."""
    sizes = torch.tensor(lengths)
    ends = sizes.cumsum(0)
    return torch.repeat_interleave(ends - sizes, sizes).int(), torch.repeat_interleave(ends, sizes).int()


def _exact(
    bcx: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, start: torch.Tensor
) -> list[torch.Tensor]:
    """Return result and gradients by autograd through the reference in double precision."""
    from burnish_kernels.short_conv import reference

    leaf = bcx.double().requires_grad_()
    y = reference.forward(leaf, weight.double(), None if bias is None else bias.double(), start)
    (gradient,) = torch.autograd.grad(y, leaf, dy.double())
    return [y.detach(), *gradient.chunk(3, dim=1)]


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    error = float((found.cpu().double() - exact).norm() / exact.norm())
    return math.inf if math.isnan(error) else error  # a maximum may pass over NaN


def compilations() -> list[Compilation]:
    """List both kernels for every dtype and the taps of published models, without and with bias."""
    from burnish_kernels.short_conv import kernel

    found = []
    for dtype, pointer in TYPES.items():
        for taps in TAPS:
            for bias in (False, True):
                constants = {"HAS_BIAS": bias, "TAPS": taps, "ROWS": kernel.ROWS, "COLUMNS": kernel.COLUMNS}
                for function, pointers, edges, strided, warps in (
                    (kernel.short_conv_forward_kernel, ("y",), ("start",), ("bcx", "y"), kernel.FORWARD_WARPS),
                    (
                        kernel.short_conv_backward_kernel,
                        ("dy", "dbcx"),
                        ("start", "end"),
                        ("dy", "bcx", "dbcx"),
                        kernel.BACKWARD_WARPS,
                    ),
                ):
                    signature = {f"{name}_ptr": pointer for name in ("bcx", "weight", "bias", *pointers)}
                    signature |= {f"{name}_ptr": "*i32" for name in edges}
                    signature |= dict.fromkeys(["T", "H", *(f"{name}_stride" for name in strided)], "i32")
                    word = "-bias" if bias else ""
                    name = f"{function.__name__}-{taps}-{str(dtype).removeprefix('torch.')}{word}"
                    found.append(Compilation(name, function, signature, constants, num_warps=warps))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List forward and backward at the widths of LFM2's models."""
    from burnish_kernels.short_conv import op, reference

    rows, dtype = 16384, torch.bfloat16
    start, end = (edge.to(device) for edge in _edges([181] * (rows // 181) + [rows % 181]))
    for channels in (1024, 1536, 2048):
        bcx = torch.randn(rows, 3 * channels, device=device, dtype=dtype)
        dy, y = (torch.randn(rows, channels, device=device, dtype=dtype) for _ in range(2))
        weight, gradient = torch.randn(channels, 3, device=device, dtype=dtype), torch.empty_like(bcx)
        size = rows * channels * 2
        yield Benchmark(
            f"forward-{rows}x{channels}",
            lambda bcx=bcx, weight=weight, y=y: op.forward(bcx, weight, start, out=y),  # type: ignore[misc]
            lambda bcx=bcx, weight=weight: reference.forward(bcx, weight, None, start),  # type: ignore[misc]
            bytes=4 * size,
        )
        yield Benchmark(
            f"backward-{rows}x{channels}",
            lambda bcx=bcx, weight=weight, dy=dy, gradient=gradient: op.backward(  # type: ignore[misc]
                dy, bcx, weight, start, end, out=gradient
            ),
            lambda bcx=bcx, weight=weight, dy=dy: reference.backward(dy, bcx, weight, None, start),  # type: ignore[misc]
            bytes=7 * size,
        )
