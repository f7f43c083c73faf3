"""Test cases, compilations and benchmarks of xIELU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch

from burnish_kernels.registry import Benchmark, Case, Compilation

# Relative L2 error against the reference in double precision: one rounding to the dtype; a few in fp32. To bf16
# Triton's interpreter does not round but cuts off, so its error is twice the GPU's.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 6e-3}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}

SHAPES = ((1, 512), (7, 600), (13, 24))
NEAR_ZERO = 1e-3
"""Scale of inputs at which exp(x) - 1 - x cancels, and of which some are above eps."""
CONSTANTS = (0.9, 1.3, 0.5, -1e-6)
FAR_ROWS, FAR_SIZE = 110_000, 21_504  # T·I passes 2^31


def cases() -> list[Case]:
    """List shapes and dtypes; strided rows, in-place outputs, small inputs, more elements than 32 bits count."""
    found = []
    for dtype in TOLERANCE:
        found += [_case(rows, size, dtype) for rows, size in SHAPES]
        found += [
            _case(5, 520, dtype, padding=24),
            _case(4, 96, dtype, padding=8, in_place=True),
            _case(4, 96, dtype, scale=NEAR_ZERO),
        ]
    far = {"dtype": torch.bfloat16, "far": True}
    return [*found, Case("far-rows", TOLERANCE[torch.bfloat16], far, gpu_only=True)]


def _case(
    rows: int, size: int, dtype: torch.dtype, *, padding: int = 0, in_place: bool = False, scale: float = 3.0
) -> Case:
    words = {f"padding{padding}": padding, "in-place": in_place, "near-zero": scale == NEAR_ZERO}
    name = "-".join([f"{rows}x{size}", str(dtype).removeprefix("torch."), *(word for word in words if words[word])])
    options = {"rows": rows, "size": size, "dtype": dtype, "padding": padding, "in_place": in_place, "scale": scale}
    return Case(name, TOLERANCE[dtype], options)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of result and gradient against the reference, on upcast inputs.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where the result does not come back bit for bit, or something beside it was written.
    """
    from burnish_kernels.xielu import op

    options = case.options
    if options.get("far"):
        return _compare_far(device)
    rows, size, dtype, scale = (options[name] for name in ("rows", "size", "dtype", "scale"))
    generator = torch.Generator().manual_seed(seed)
    x = (torch.randn(rows, size, generator=generator) * scale).to(dtype)
    x[:, ::8] *= 1e-4
    dact = torch.randn(rows, size, generator=generator).to(dtype)
    exact = _exact(x, dact)
    buffers: list[torch.Tensor] = []

    def new(content: torch.Tensor | None = None) -> torch.Tensor:
        """Make rows with another stride in each tensor."""
        padding = options["padding"] and options["padding"] + 8 * len(buffers)
        buffers.append(torch.full((rows, size + padding), math.nan, dtype=dtype, device=device))
        view = buffers[-1][:, :size]
        return view if content is None else view.copy_(content)

    read, upstream, constants = new(x), new(dact), torch.tensor(CONSTANTS, device=device)
    act = op.forward(read, constants, out=new())
    out, again = (read, upstream) if options["in_place"] else (new(), new())
    op.backward(upstream, read, constants, out=out, act_out=again)
    if any(bool(whole[:, size:].isfinite().any()) for whole in buffers) or not torch.equal(act, again):
        return math.inf
    return max(_error(ours, theirs) for ours, theirs in zip((act, out), exact, strict=True))


def _exact(x: torch.Tensor, dact: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return result and gradient by autograd through the reference in double precision."""
    from burnish_kernels.xielu import reference

    leaf = x.double().requires_grad_()
    act = reference.forward(leaf, torch.tensor(CONSTANTS).double())
    return act.detach(), torch.autograd.grad(act, leaf, dact.double())[0]


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    error = float((found.cpu().double() - exact).norm() / exact.norm())
    return math.inf if math.isnan(error) else error  # a maximum may pass over NaN


def _compare_far(device: str) -> float:
    """Compare first and last rows of very many, in place to need less memory."""
    from burnish_kernels.xielu import op

    pattern = torch.randn(FAR_SIZE + 1009, device=device, dtype=torch.bfloat16)
    x = torch.empty(FAR_ROWS, FAR_SIZE, device=device, dtype=torch.bfloat16)
    for row in range(1009):  # every row begins elsewhere in the pattern: a wrong row is seen
        x[row::1009] = pattern[row : row + FAR_SIZE]
    ends = torch.tensor([0, 1, FAR_ROWS // 2, FAR_ROWS - 2, FAR_ROWS - 1], device=device)
    dact, constants = torch.ones_like(x), torch.tensor(CONSTANTS, device=device)
    exact = _exact(x[ends].cpu(), dact[ends].cpu())
    op.backward(dact, x, constants, out=x, act_out=dact)
    return max(_error(ours[ends], theirs) for ours, theirs in zip((dact, x), exact, strict=True))


def compilations() -> list[Compilation]:
    """List both kernels for every dtype; the tile is always the same."""
    from burnish_kernels.xielu import kernel

    found = []
    for dtype, pointer in TYPES.items():
        for function, pointers, switches in (
            (kernel.xielu_forward_kernel, ("x", "act"), {}),
            (kernel.xielu_backward_kernel, ("dact", "x", "dx", "act"), {"HAS_ACT": True}),
        ):
            signature = {f"{name}_ptr": pointer for name in pointers} | {"constants_ptr": "*fp32"}
            signature |= dict.fromkeys(["T", "size", *(f"{name}_stride" for name in pointers)], "i32")
            name = f"{function.__name__}-{str(dtype).removeprefix('torch.')}"
            constants = {"ROWS": kernel.ROWS, "COLUMNS": kernel.COLUMNS} | switches
            found.append(Compilation(name, function, signature, constants, num_warps=kernel.WARPS))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List forward and backward, without and with the result again (for adapter gradients)."""
    from burnish_kernels.xielu import op, reference

    rows, size = 16384, 21_504  # Apertus 8B
    x, dact, act, gradient = (torch.randn(rows, size, device=device, dtype=torch.bfloat16) for _ in range(4))
    constants = torch.tensor(CONSTANTS, device=device)
    shape = f"{rows}x{size}"
    yield Benchmark(
        f"forward-{shape}",
        partial(op.forward, x, constants, out=act),
        partial(reference.forward, x, constants),
        bytes=2 * x.nbytes,
    )
    again: tuple[tuple[str, torch.Tensor | None, int], ...] = (("backward", None, 3), ("backward-act", act, 4))
    for name, act_out, tensors in again:
        yield Benchmark(
            f"{name}-{shape}",
            partial(op.backward, dact, x, constants, out=gradient, act_out=act_out),
            partial(reference.backward, dact, x, constants),
            bytes=tensors * x.nbytes,
        )
