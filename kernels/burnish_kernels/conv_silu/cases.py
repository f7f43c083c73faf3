"""Test cases, compilations and benchmarks of the short convolution with SiLU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from burnish_kernels.registry import Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers

# Relative L2 error against the reference in double precision: a few units in the last place of the dtype.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
TAPS = 4  # of Qwen3.5
_LONG = (1, 70, 3, 64, 200, 1, 1, 37)


def cases() -> list[Case]:
    """List documents, dtypes, taps; strided rows, far offsets; the interpreter's walk a row at a time: few rows."""
    found = [_case((1, 2, 5, 1, 4), 24, dtype, padding=8 * (dtype != torch.float16)) for dtype in TOLERANCE]
    found += [_case((4, 30), 520, torch.float32, padding=8), _case((3, 2), 8, torch.float32, taps=2)]
    found += [_case((2, 3), 8, torch.float32, taps=1)]
    large = [_case(_LONG, 1288, dtype, padding=16) for dtype in TOLERANCE]
    large += [_case((4200,), 64, torch.bfloat16), _case((2, 1), 96, torch.bfloat16, padding=1 << 30)]
    return found + [Case(one.name, one.tolerance, one.options, gpu_only=True) for one in large]


def _case(lengths: Sequence[int], channels: int, dtype: torch.dtype, *, taps: int = TAPS, padding: int = 0) -> Case:
    parts = [f"{'+'.join(map(str, lengths))}x{channels}", str(dtype).removeprefix("torch."), f"{taps}taps"]
    options = {"lengths": lengths, "channels": channels, "dtype": dtype, "taps": taps, "padding": padding}
    return Case("-".join([*parts, f"padding{padding}"] if padding else parts), TOLERANCE[dtype], options)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of output, gradient and a step against the reference, on upcast inputs.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where something beside the outputs was written, or a step kept wrong inputs.
    """
    from burnish_kernels.conv_silu import op, reference

    options, generator = case.options, torch.Generator().manual_seed(seed)
    channels, dtype, taps = options["channels"], options["dtype"], options["taps"]
    start = _starts(options["lengths"])
    rows = len(start)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).to(dtype)

    x, dy, weight = draw(rows, channels), draw(rows, channels), draw(channels, taps)
    earlier = draw(2, taps - 1, channels)
    leaf = x.double().requires_grad_()
    exact_y = reference.forward(leaf, weight.double(), start)
    (exact_dx,) = torch.autograd.grad(exact_y, leaf, dy.double())
    exact_step = reference.step(x[:2].double(), earlier.double(), weight.double())

    buffers = StridedBuffers(rows, options["padding"], dtype, device)
    given, weight_on, start_on = buffers.new(channels, x), weight.to(device), start.to(device)
    y = op.forward(given, weight_on, start_on, out=buffers.new(channels))
    dx = op.backward(buffers.new(channels, dy), given, weight_on, start_on, out=buffers.new(channels))
    kept = earlier.clone().to(device)
    newest = op.step(x[:2].to(device), kept, weight_on)
    moved = torch.cat((earlier, x[:2, None]), dim=1)[:, 1:]
    if buffers.spoiled() or not torch.equal(kept.cpu(), moved):
        return math.inf
    pairs = ((y, exact_y.detach()), (dx, exact_dx), (newest, exact_step))
    return max(_error(ours, theirs) for ours, theirs in pairs)


def _starts(lengths: Sequence[int]) -> torch.Tensor:
    """Return the first row of each row's document."""
    sizes = torch.tensor(lengths)
    return torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes).int()


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    error = float((found.cpu().double() - exact).norm() / exact.norm())
    return math.inf if math.isnan(error) else error  # a maximum may pass over NaN


def compilations() -> list[Compilation]:
    """List the kernels for every dtype."""
    from burnish_kernels.conv_silu import kernel

    found = []
    for dtype, pointer in TYPES.items():
        for function, rows in (
            (kernel.conv_silu_forward_kernel, {"ROWS": kernel.ROWS}),
            (kernel.conv_silu_backward_kernel, {"ROWS": kernel.BACKWARD_ROWS}),
            (kernel.conv_silu_step_kernel, {}),
        ):
            constants = {"TAPS": TAPS, "COLUMNS": kernel.COLUMNS, **rows}
            signature = {
                name: "*i32" if name == "start_ptr" else pointer if name.endswith("_ptr") else "i32"
                for name in function.arg_names
                if name not in constants
            }
            name = f"{function.__name__}-{str(dtype).removeprefix('torch.')}"
            found.append(Compilation(name, function, signature, constants, num_warps=kernel.WARPS))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List forward and backward at the widths of Qwen3.5's 0.8B (2B) and 4B (9B, 35B-A3B)."""
    from burnish_kernels.conv_silu import op, reference

    rows, dtype = 16384, torch.bfloat16
    start = _starts([500] * (rows // 500) + [rows % 500]).to(device)
    for channels in (6144, 8192):
        x, dy, y = (torch.randn(rows, channels, device=device, dtype=dtype) for _ in range(3))
        weight = torch.randn(channels, TAPS, device=device, dtype=dtype)
        size = rows * channels * 2
        yield Benchmark(
            f"forward-{rows}x{channels}",
            lambda x=x, weight=weight, y=y: op.forward(x, weight, start, out=y),  # type: ignore[misc]
            lambda x=x, weight=weight: reference.forward(x, weight, start),  # type: ignore[misc]
            bytes=2 * size,
        )
        yield Benchmark(
            f"backward-{rows}x{channels}",
            lambda x=x, weight=weight, dy=dy, y=y: op.backward(dy, x, weight, start, out=y),  # type: ignore[misc]
            lambda x=x, weight=weight, dy=dy: reference.backward(dy, x, weight, start),  # type: ignore[misc]
            bytes=3 * size,
        )
