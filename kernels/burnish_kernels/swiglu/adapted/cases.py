"""Test cases, compilations and benchmarks of the gated activation with adapter products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from burnish_kernels.registry import Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers

# Relative L2 error against the reference in double precision: one rounding to the dtype, and in the sums' case of what
# is summed; a few in fp32. To bf16 Triton's interpreter does not round but cuts off.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
Pairs = list[tuple[torch.Tensor, torch.Tensor]]
"""Pairs of a kernel's result and the exact one."""

NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}

RANKS = {
    "r16": (16, 16, 16),
    "r5": (5, 5, 5),
    "r32": (32, 32, 32),
    "r64": (64, 40, 17),
    "down": (16, 0, 0),
    "gate-up": (0, 16, 16),
    "gate": (0, 7, 0),
    "down-up": (16, 0, 33),
}
"""True ranks of the down, gate and up projections' adapters; 0: none."""


def padded(rank: int) -> int:
    """Return the rank padded as in the adapters' buffers."""
    return -(rank // -16) * 16


def cases() -> list[Case]:
    """List shapes, dtypes, activations and combinations of adapters."""
    found = []
    for dtype in TOLERANCE:
        found += [_backward(37, 72, dtype, "silu", ranks) for ranks in RANKS]
        found += [_backward(1, 64, dtype, "silu", "r16"), _backward(263, 136, dtype, "silu", "r5", padding=8)]
        found += [_backward(33, 80, dtype, activation, "r16") for activation in ("gelu_tanh", "gelu")]
        found += [
            _backward(40, 64, dtype, "silu", "r16", shared=True),
            _backward(9, 64, dtype, "silu", "r5", again=True),
            _backward(37, 136, dtype, "silu", "r16", largest=True),
            _backward(9, 64, dtype, "silu", "gate", again=True, largest=True),
        ]
        found += [_backward(16384, 3072, dtype, "silu", ranks, gpu_only=True) for ranks in ("r16", "r32", "r64")]
        found += [_forward(37, 200, dtype, "silu", ranks) for ranks in ("r16", "r5", "r64")]
        found += [_forward(1, 64, dtype, "silu", "r16"), _forward(67, 72, dtype, "silu", "r32", padding=8)]
        found += [_forward(33, 136, dtype, activation, "r16", again=True) for activation in ("gelu_tanh", "gelu")]
        found += [_forward(16384, 3072, dtype, "silu", ranks, gpu_only=True) for ranks in ("r16", "r64")]
        found += [_backward(16381, 1544, dtype, "gelu_tanh", "r16", gpu_only=True, padding=48)]
    return found


def _case(
    rows: int,
    size: int,
    dtype: torch.dtype,
    activation: str,
    ranks: str,
    *,
    direction: str,
    padding: int = 0,
    shared: bool = False,
    again: bool = False,
    largest: bool = False,
    gpu_only: bool = False,
) -> Case:
    words = {f"padding{padding}": padding, "shared": shared, "in-place": again, "largest": largest}
    parts = [f"{direction}-adapted", f"{rows}x{size}", str(dtype).removeprefix("torch."), activation, ranks]
    options = {"rows": rows, "size": size, "dtype": dtype, "activation": activation, "ranks": RANKS[ranks]}
    options |= {"padding": padding, "shared": shared, "in_place": again, "adapted": direction, "largest": largest}
    return Case("-".join([*parts, *(word for word in words if words[word])]), TOLERANCE[dtype], options, gpu_only)


_forward, _backward = partial(_case, direction="forward"), partial(_case, direction="backward")


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of all outputs against double precision; sums are added to existing values.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where something beside a result was written.
    """
    given = _Inputs(case.options, seed, device)
    pairs = _run_forward(given) if case.options["adapted"] == "forward" else _run_backward(given)
    return math.inf if given.spoiled() else max(_error(ours, theirs) for ours, theirs in pairs)


class _Inputs:
    """Random tensors of one case, each with another row stride."""

    def __init__(self, options: dict[str, Any], seed: int, device: str) -> None:
        self.options, self.device = options, device
        self.rows, self.size, self.activation = options["rows"], options["size"], options["activation"]
        self._generator = torch.Generator(device).manual_seed(seed)
        self._buffers = StridedBuffers(self.rows, options["padding"], options["dtype"], device)
        self.gate_up, self.dact = self.draw(2 * self.size, 3), self.draw(self.size)

    def new(self, width: int, rows: int | None = None) -> torch.Tensor:
        """Return NaN, `[rows, width]`."""
        return self._buffers.new(width, rows=rows)

    def draw(self, width: int, scale: float = 1, rows: int | None = None) -> torch.Tensor:
        """Return normal random values."""
        view = self.new(width, rows)
        return view.copy_(torch.randn(view.shape, generator=self._generator, device=self.device) * scale)

    def spoiled(self) -> bool:
        """Return whether anything was written between the rows."""
        return self._buffers.spoiled()


def _run_forward(given: _Inputs) -> Pairs:
    from burnish_kernels.swiglu import op, reference
    from burnish_kernels.swiglu.adapted import op as adapted

    rank = padded(given.options["ranks"][0])
    a, xa = given.draw(given.size, rows=rank), given.new(rank)
    exact = reference.forward(given.gate_up.double(), activation=given.activation)
    separate = op.forward(given.gate_up, activation=given.activation)
    act = given.gate_up[:, : given.size] if given.options["in_place"] else given.new(given.size)
    adapted.forward_adapted(given.gate_up, a, activation=given.activation, out=act, xa_out=xa)
    if not torch.equal(act, separate):
        return [(act * math.nan, exact)]
    return [(act, exact), (xa, exact @ a.double().t())]


def _run_backward(given: _Inputs) -> Pairs:
    from burnish_kernels.swiglu import op, reference
    from burnish_kernels.swiglu.adapted import op as adapted

    ranks = given.options["ranks"]
    factors = [given.draw(padded(rank)) if rank else None for rank in ranks]
    if given.options["shared"]:
        factors[2] = factors[1]
    # The sums of the down projection's A lie row by row, those of the others' B column by column, as in training.
    sums = [torch.full((rank, given.size), 0.5, device=given.device) for rank in ranks]
    sums[1:] = [one.t().contiguous().t() for one in sums[1:]]
    outers = [
        None if factor is None else adapted.OuterProduct(factor, one, scale)
        for factor, one, scale in zip(factors, sums, (1.0, 0.25, -2.0), strict=True)
    ]
    stacked = given.gate_up.double()
    act = reference.forward(stacked, activation=given.activation)
    wide = [act, *reference.backward(given.dact.double(), stacked, activation=given.activation)]
    separate = op.backward(given.dact, given.gate_up, activation=given.activation)
    largest = factor = None
    if given.options["largest"]:
        largest = torch.full((given.rows,), math.nan, device=given.device)
        factor = torch.rand(2 * given.size, device=given.device)
    gradient = adapted.backward_adapted(
        given.dact,
        given.gate_up,
        activation=given.activation,
        act=outers[0],
        gate=outers[1],
        up=outers[2],
        out=given.gate_up if given.options["in_place"] else given.new(2 * given.size),
        largest_out=largest,
        factor_J=factor,
    )
    if largest is not None and not torch.equal(largest, (gradient.float() * factor).abs().amax(dim=1)):
        return [(gradient * math.nan, separate.double())]
    found = [(gradient, torch.cat(wide[1:], dim=1))]
    # Compilers may join a product and a sum in one kernel and not in the other: a last bit, seldom.
    found.append((gradient, separate.double()))
    for outer, values in zip(outers, wide, strict=True):
        if outer is not None:
            exact = outer.scale * outer.factor_TR.double().t() @ values
            found.append((outer.out_rI - 0.5, exact[: len(outer.out_rI)]))
    return found


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    error = float((found.double() - exact).norm() / exact.norm())
    return math.inf if math.isnan(error) else error  # a maximum may pass over NaN


def compilations() -> list[Compilation]:
    """List both kernels with each block of ranks and activation, backward also without some adapters; the join."""
    found = []
    for dtype in TOLERANCE:
        for ranks in ((16, 16, 16), (32, 32, 32), (64, 64, 64)):
            found.append(_backward_compilation(dtype, "silu", ranks))
        for ranks in ((16, 0, 0), (0, 16, 16), (16, 0, 16), (64, 0, 64), (0, 64, 64)):
            if dtype == torch.bfloat16:
                found.append(_backward_compilation(dtype, "silu", ranks))
        found += [_backward_compilation(dtype, "silu", (ranks,) * 3, largest=True) for ranks in (16, 32, 64)]
        for activation in ("gelu_tanh", "gelu"):
            for rank in (16, 64) if dtype == torch.bfloat16 else (16,):
                found.append(_backward_compilation(dtype, activation, (rank,) * 3))
            found.append(_forward_compilation(dtype, activation, 16))
        found += [_forward_compilation(dtype, "silu", ranks) for ranks in (16, 32, 64)]
    return [*found, _join_compilation()]


def _backward_compilation(
    dtype: torch.dtype, activation: str, ranks: tuple[int, int, int], *, largest: bool = False
) -> Compilation:
    from burnish_kernels.swiglu.adapted import kernel, tiles

    tile = tiles.backward_tile(dtype.itemsize, ranks, largest=largest)
    pointers = ("dact", "gate", "up", "dgate", "dup", "act_p", "gate_p", "up_p")
    signature = {f"{name}_ptr": f"*{NAMES[dtype]}" for name in pointers} | {"parts_ptr": "*fp32"}
    signature |= {"factor_ptr": "*fp32", "largest_ptr": "*i32" if largest else "*fp32"}
    strided = ("dact", "gate", "dgate", "act_p", "gate_p", "up_p")
    signature |= dict.fromkeys(("T", "size", "split_tokens", *(f"{name}_stride" for name in strided)), "i32")
    signature |= dict.fromkeys(("act_ranks", "gate_ranks", "up_ranks"), "i32")
    constants = {"ACTIVATION": activation, "BLOCK_T": tile.T, "BLOCK_C": tile.C, "STAGES": tile.stages}
    constants |= {"ACT_RANKS": ranks[0], "GATE_RANKS": ranks[1], "UP_RANKS": ranks[2], "INTERPRETED": False}
    constants |= {"HAS_LARGEST": largest, "HAS_FACTOR": largest}
    name = f"backward-adapted-{NAMES[dtype]}-{activation}-{'-'.join(map(str, ranks))}{'-largest' * largest}"
    function = kernel.adapted_backward_kernel
    return Compilation(name, function, signature, constants, tile.warps, tile.stages)


def _forward_compilation(dtype: torch.dtype, activation: str, ranks: int) -> Compilation:
    from burnish_kernels.swiglu.adapted import kernel, tiles

    tile = tiles.forward_tile(dtype.itemsize, ranks)
    signature = {f"{name}_ptr": f"*{NAMES[dtype]}" for name in ("gate", "up", "a", "act", "out")}
    strided = ("gate", "a", "act", "out")
    signature |= dict.fromkeys(("T", "size", "ranks", *(f"{name}_stride" for name in strided)), "i32")
    constants = {"ACTIVATION": activation, "RANKS": ranks, "BLOCK_T": tile.T, "BLOCK_C": tile.C}
    constants |= {"STAGES": tile.stages, "INTERPRETED": False}
    name = f"forward-adapted-{NAMES[dtype]}-{activation}-{ranks}"
    return Compilation(name, kernel.adapted_forward_kernel, signature, constants, tile.warps, tile.stages)


def _join_compilation() -> Compilation:
    """Compile the join of A's gradients by rows and both B's by columns, in one launch."""
    from burnish_kernels.lora_linear import kernel

    signature = {f"{field}_{index}": "i32" for field in ("first", "columns", "part", "ranks") for index in range(3)}
    signature |= {f"out_{index}": "*fp32" for index in range(3)} | {f"scale_{index}": "fp32" for index in range(3)}
    signature |= dict.fromkeys(("C", "part_size", "splits"), "i32") | {"parts_ptr": "*fp32"}
    signature |= dict.fromkeys(("row_stride_0", "column_stride_1", "column_stride_2"), "i32")
    constants = {"SUM_R": kernel.SUM_R, "SUM_C": kernel.SUM_C, "SUM_S": kernel.SUM_S}
    constants |= {"column_stride_0": 1, "row_stride_1": 1, "row_stride_2": 1}
    return Compilation("backward-adapted-join", kernel.join_outers_kernel, signature, constants)


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List each kernel against the separate operations that are used where the ranks are too large."""
    for rows, size, rank in (
        (16384, 3072, 16),
        (4096, 3072, 16),
        (16384, 1536, 16),
        (16384, 8192, 16),
        (16384, 9728, 16),
        (16384, 14336, 16),
        (16384, 3072, 32),
        (16384, 3072, 64),
        (16384, 9728, 64),
    ):
        yield _forward_benchmark(rows, size, rank, device)
        yield _backward_benchmark(rows, size, rank, device)
        yield _backward_benchmark(rows, size, rank, device, largest=True)


def _forward_benchmark(rows: int, size: int, rank: int, device: str) -> Benchmark:
    from burnish_kernels.lora_linear.skinny import project
    from burnish_kernels.swiglu import op
    from burnish_kernels.swiglu.adapted import op as adapted

    gate_up, extended = (torch.randn(rows, width, device=device).bfloat16() for width in (2 * size, size + rank))
    a = torch.randn(rank, size + rank, device=device).bfloat16()[:, :size]
    act, xa = extended[:, :size], extended[:, size:]

    def run() -> None:
        adapted.forward_adapted(gate_up, a, activation="silu", out=act, xa_out=xa)

    def separate() -> None:
        op.forward(gate_up, activation="silu", out=act)
        project(act, a, xa)

    return Benchmark(f"forward-adapted-r{rank}-{rows}x{size}", run, separate, bytes=3 * rows * size * 2)


def _backward_benchmark(rows: int, size: int, rank: int, device: str, *, largest: bool = False) -> Benchmark:
    from burnish_kernels.lora_linear.skinny import outer_accumulate
    from burnish_kernels.lora_linear.tiles import RankSegment
    from burnish_kernels.swiglu import op
    from burnish_kernels.swiglu.adapted import op as adapted

    def draw(width: int) -> torch.Tensor:
        return torch.randn(rows, width, device=device).bfloat16()

    gate_up, dact, dxa, xa = draw(2 * size), draw(size), draw(rank), draw(2 * rank)
    # The gradient, not in place: repeated, the values would run off to infinity.
    gradient, act = torch.empty_like(gate_up), torch.empty_like(dact)
    grad_a = torch.zeros(rank, size, device=device)
    grad_b = [torch.zeros(size, rank, device=device).t() for _ in range(2)]
    halves = [RankSegment(0, size, 0, rank), RankSegment(size, size, rank, rank)]
    largest_T, factor = torch.empty(rows, device=device), torch.rand(2 * size, device=device)

    def run() -> object:
        return adapted.backward_adapted(
            dact,
            gate_up,
            activation="silu",
            act=adapted.OuterProduct(dxa, grad_a),
            gate=adapted.OuterProduct(xa[:, :rank], grad_b[0]),
            up=adapted.OuterProduct(xa[:, rank:], grad_b[1]),
            out=gradient,
            largest_out=largest_T if largest else None,
            factor_J=factor if largest else None,
        )

    def separate() -> None:
        op.backward(dact, gate_up, activation="silu", out=gradient, act_out=act)
        outer_accumulate(dxa, act, [grad_a], [1.0])
        outer_accumulate(xa, gradient, grad_b, [1.0, 1.0], halves)

    return Benchmark(
        f"backward-adapted-r{rank}-{rows}x{size}{'-largest' * largest}", run, separate, bytes=5 * dact.nbytes
    )
