"""Test cases, compilations and benchmarks of the LoRA projection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from burnish_kernels.registry import Benchmark, Case, Compilation

# Relative L2 error against the reference in double precision, gradients of the adapters included: they pass through
# one rounding of xAᵀ or dy sB to the dtype.
TOLERANCE = {torch.float32: 5e-6, torch.float16: 3e-3, torch.bfloat16: 2.5e-2}

# Tokens, input features, output features, and (first row, rows, rank) of each adapter.
ONE = (7, 48, 80, ((0, 80, 16),))
STACKS = {
    "one": ONE,
    "one-token": (1, 64, 48, ((0, 48, 17),)),
    "rank-1": (67, 72, 64, ((0, 64, 1),)),
    "qkv": (131, 96, 160, ((0, 96, 4), (96, 32, 4), (128, 32, 4))),
    "q-and-v": (64, 80, 160, ((0, 96, 17), (128, 32, 1))),
    "rank-256": (37, 64, 48, ((0, 48, 256),)),
    "separate": (37, 48, 64, ((0, 32, 256), (32, 32, 200))),
    "four": (19, 32, 64, ((0, 16, 2), (16, 16, 3), (32, 16, 16), (48, 16, 5))),
    "split-tokens": (521, 40, 48, ((0, 48, 8),)),
    "split-columns": (5, 520, 24, ((0, 24, 8),)),
    "wide": (3, 40, 536, ((0, 536, 3),)),
    "many-ranks": (33, 40, 64, ((0, 32, 40), (32, 32, 50))),
}
LARGE = (16384, 3072, 5120, ((0, 3072, 16), (3072, 1024, 16), (4096, 1024, 16)))

# Hidden size, rows of each adapter: attention's and the gated MLP's stacks, the MLP's output.
BENCHMARKS = {"qkv-1b": (2048, (2048, 512, 512)), "gate-up-4b": (2560, (9728, 9728)), "down-4b": (9728, (2560,))}
TOKENS = 16384


def cases() -> list[Case]:
    """List every stack and dtype; some with bias, dropout, or a gradient that is not needed."""
    found = [_case(name, dtype) for name in STACKS for dtype in TOLERANCE]
    for dtype in TOLERANCE:
        found += [
            _case("qkv", dtype, bias=True),
            _case("q-and-v", dtype, dropout=0.3),
            _case("split-columns", dtype, dropout=0.1, bias=True),
            _case("one", dtype, needs_dx=False),
            _case("separate", dtype, bias=True, dropout=0.5),
            _case("large", dtype, gpu_only=True),
        ]
    return found


def _case(
    stack: str,
    dtype: torch.dtype,
    *,
    bias: bool = False,
    dropout: float = 0.0,
    needs_dx: bool = True,
    gpu_only: bool = False,
) -> Case:
    name = f"{stack}-{str(dtype).removeprefix('torch.')}{'-bias' * bias}{'-no-dx' * (not needs_dx)}"
    return Case(
        name=name + (f"-dropout-{dropout}" if dropout else ""),
        tolerance=TOLERANCE[dtype],
        options={"stack": stack, "dtype": dtype, "bias": bias, "dropout": dropout, "needs_dx": needs_dx},
        gpu_only=gpu_only,
    )


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of output and gradients; adapter gradients are added to existing ones.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random inputs.
    """
    from burnish_kernels.lora_linear import op

    options = case.options
    given = _Inputs(options, seed, device)
    y_TN, dx_TK = given.empty(given.stack.N), given.empty(given.stack.K)
    x_ext, dy_ext = given.extended(given.x), given.extended(given.dy)
    drop = op.Dropout(options["dropout"], given.seed, given.stream)
    op.forward(x_ext, given.buffer, given.stack, bias_N=given.bias, out=y_TN, drop=drop)
    grad_a = [torch.ones_like(a, dtype=torch.float32) for a in given.a]
    grad_b = [torch.ones_like(b, dtype=torch.float32) for b in given.b]
    op.backward(
        dy_ext,
        x_ext,
        given.buffer,
        given.stack,
        dx_out=dx_TK,
        needs_dx=options["needs_dx"],
        grad_a=grad_a,
        grad_b=grad_b,
        drop=drop,
    )
    found = [y_TN, *(grad - 1 for grad in (*grad_a, *grad_b)), *([dx_TK] if options["needs_dx"] else [])]
    exact = given.exact()
    return max(
        float((ours.double() - theirs).norm() / theirs.norm()) for ours, theirs in zip(found, exact, strict=False)
    )


class _Inputs:
    """Random operands of one case."""

    stream = 5

    def __init__(self, options: dict[str, Any], seed: int, device: str) -> None:
        from burnish_kernels.lora_linear import op

        tokens, K, N, adapters = LARGE if options["stack"] == "large" else STACKS[options["stack"]]
        self.tokens, self.dtype, self.device, self.dropout = tokens, options["dtype"], device, options["dropout"]
        self._generator = torch.Generator(device).manual_seed(seed)
        self.stack = op.Stack(
            N, K, tuple(op.StackedAdapter(*where, scale=0.5 + index) for index, where in enumerate(adapters))
        )
        self.x, self.dy = self._draw(tokens, K), self._draw(tokens, N)
        self.weight = self._draw(N, K) * K**-0.5
        self.bias = self._draw(N) if options["bias"] else None
        self.a = [self._draw(adapter.rank, K) * K**-0.5 for adapter in self.stack.adapters]
        self.b = [self._draw(adapter.rows, adapter.rank) for adapter in self.stack.adapters]
        self.seed = torch.tensor([seed * 2**33 + 12345], device=device)
        self.buffer = torch.full(self.stack.buffer_shape, torch.nan, dtype=self.dtype, device=device)
        self.buffer[:N, :K] = self.weight
        self.stack.fill(self.buffer, self.a, self.b)

    def _draw(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self._generator, device=self.device).to(self.dtype)

    def empty(self, columns: int) -> torch.Tensor:
        """Allocate `[T, columns]` of NaN with room between the rows.

        The room holds large numbers, not NaN: torch 2.13 reads it with weights of zero where a processor has AMX.
        """
        whole = torch.full((self.tokens, columns + 8), 1e4, dtype=self.dtype, device=self.device)
        return whole[:, :columns].fill_(torch.nan)

    def extended(self, x_TC: torch.Tensor) -> torch.Tensor:
        """Return `[T, C + R]` with NaN in the last R columns."""
        found = self.empty(x_TC.shape[1] + self.stack.R)
        found[:, : x_TC.shape[1]] = x_TC
        return found

    def exact(self) -> list[torch.Tensor]:
        """Return output, gradients of A and B, and gradient of x, by autograd on the reference in double precision."""
        from burnish_kernels.lora_linear import reference

        def wide(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.double().requires_grad_()

        x, a, b = wide(self.x), [wide(one) for one in self.a], [wide(one) for one in self.b]
        kept = None
        if self.dropout:
            kept = [
                reference.kept(self.tokens, self.stack.K, self.seed, self.stream + index, self.dropout)
                for index in range(len(a))
            ]
        bias = None if self.bias is None else self.bias.double()
        y = reference.lora_linear(x, self.weight.double(), bias, a, b, self.stack.adapters, kept, self.dropout)
        return [y.detach(), *torch.autograd.grad(y, [*a, *b, x], self.dy.double())]


def compilations() -> list[Compilation]:
    """List each product with each block of ranks, but only the smallest and largest in fp16; sums of parts; dropout."""
    found = []
    for dtype, kind, blocks in (
        (torch.float32, "fp32", (16, 64)),
        (torch.float16, "fp16", (16, 128)),
        (torch.bfloat16, "bf16", (16, 32, 64, 128)),
    ):
        for ranks in blocks:
            found += _project_compilations(dtype, kind, ranks)
            found.append(_outer_compilation(dtype, kind, ranks))
        found += _small_compilations(kind)
    return found


_NUMBERS = {f"{field}_{index}": "i32" for field in ("first", "columns", "rank", "ranks") for index in range(3)}


def _project_compilations(dtype: torch.dtype, kind: str, ranks: int) -> list[Compilation]:
    """List A by rows (xAᵀ) and by columns (dy sB), and parts in fp32."""
    from burnish_kernels.lora_linear import kernel, tiles

    tile = tiles.project_tile(dtype, ranks)
    found = {}
    for unit, other, out in (("a_column", "a_row", kind), ("a_row", "a_column", kind), ("a_column", "a_row", "fp32")):
        signature = _NUMBERS | {"x_ptr": f"*{kind}", "a_ptr": f"*{kind}", "out_ptr": f"*{out}", other: "i32"}
        scalars = ("T", "x_stride", "out_stride", "rank_blocks", "split_columns", "part_size")
        signature |= dict.fromkeys(scalars, "i32")
        constants = {"BLOCK_T": tiles.BLOCK_T, "BLOCK_C": tile.C, "BLOCK_R": tile.R, "INTERPRETED": False, unit: 1}
        name = f"project-{kind}-{ranks}-{unit}-to-{out}"
        found[name] = Compilation(name, kernel.project_kernel, signature, constants, tile.warps, tile.stages)
    return list(found.values())


def _outer_compilation(dtype: torch.dtype, kind: str, ranks: int) -> Compilation:
    from burnish_kernels.lora_linear import kernel, tiles

    tile = tiles.outer_tile(dtype, ranks)
    signature = _NUMBERS | {"p_ptr": f"*{kind}", "q_ptr": f"*{kind}", "parts_ptr": "*fp32"}
    signature |= dict.fromkeys(("T", "p_stride", "q_stride", "part_rows", "C", "split_tokens"), "i32")
    constants = {"BLOCK_T": tiles.BLOCK_T, "BLOCK_C": tile.C, "BLOCK_R": tile.R, "INTERPRETED": False}
    return Compilation(f"outer-{kind}-{ranks}", kernel.outer_kernel, signature, constants, tile.warps, tile.stages)


def _small_compilations(kind: str) -> list[Compilation]:
    from burnish_kernels.lora_linear import kernel

    sums = {"SUM_R": kernel.SUM_R, "SUM_S": kernel.SUM_S}
    projections = {"parts_ptr": "*fp32", "out_ptr": f"*{kind}"} | dict.fromkeys(
        ("T", "R", "splits", "part_size", "out_stride"), "i32"
    )
    drops = {"x_ptr": f"*{kind}", "seed_ptr": "*i64", "out_ptr": f"*{kind}", "scale": "fp32"} | dict.fromkeys(
        ("T", "K", "x_stride", "out_stride", "stream_id", "threshold"), "i32"
    )
    found = [
        Compilation(
            f"join-projections-{kind}", kernel.join_projections_kernel, projections, sums | {"SUM_T": kernel.SUM_C}
        )
    ]
    for add in (False, True):
        constants = {"ADD": add, "DROP_T": kernel.DROP_T, "DROP_C": kernel.DROP_C}
        found.append(
            Compilation(f"{'add-dropped' if add else 'dropout'}-{kind}", kernel.dropout_kernel, drops, constants)
        )
    if kind == "fp32":
        outers = {f"{field}_{index}": "i32" for field in ("first", "columns", "part", "ranks") for index in range(3)}
        outers |= {f"out_{index}": "*fp32" for index in range(3)} | {f"scale_{index}": "fp32" for index in range(3)}
        outers |= dict.fromkeys(("C", "part_size", "splits"), "i32") | {"parts_ptr": "*fp32"}
        for unit, other in (("column", "row"), ("row", "column")):
            strides = {f"{other}_stride_{index}": "i32" for index in range(3)}
            constants = sums | {"SUM_C": kernel.SUM_C} | {f"{unit}_stride_{index}": 1 for index in range(3)}
            found.append(Compilation(f"join-outers-by-{other}", kernel.join_outers_kernel, outers | strides, constants))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List each skinny product by kernel and by cuBLAS, and the whole, fused and with separate adapter products.

    Args:
        device: device to make the tensors on.
    """
    for name, (hidden, rows) in BENCHMARKS.items():
        for rank in (16, 64):
            yield from _benchmarks(f"{name}-r{rank}", hidden, rows, rank, device)


def _benchmarks(name: str, hidden: int, rows: Sequence[int], rank: int, device: str) -> Iterator[Benchmark]:
    from burnish_kernels.lora_linear import op
    from burnish_kernels.lora_linear.tiles import RankSegment

    starts = [sum(rows[:index]) for index in range(len(rows))]
    adapters = tuple(op.StackedAdapter(start, count, rank, 1.0) for start, count in zip(starts, rows, strict=True))
    stack = op.Stack(sum(rows), hidden, adapters)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device).bfloat16()

    x_ext, dy_ext = draw(TOKENS, hidden + stack.R), draw(TOKENS, stack.N + stack.R)
    buffer = draw(*stack.buffer_shape) * hidden**-0.5
    grad_a = [torch.zeros(rank, hidden, device=device) for _ in rows]
    grad_b = [torch.zeros(count, rank, device=device) for count in rows]
    x, xa, dy, dxa = x_ext[:, :hidden], x_ext[:, hidden:], dy_ext[:, : stack.N], dy_ext[:, stack.N :]
    weight, a, sb = buffer[: stack.N, :hidden], buffer[stack.N :, :hidden], buffer[: stack.N, hidden:]
    own = [RankSegment(one.first_row, one.rows, first, rank) for one, first in zip(adapters, stack.firsts, strict=True)]
    same = [RankSegment(0, hidden, first, rank) for first in stack.firsts]
    ones, turned = [1.0] * len(rows), [grad.t() for grad in grad_b]
    products: dict[str, tuple[Callable[..., object], tuple[Any, ...], int]] = {
        "xa": (op.project, (x, a, xa), x.nbytes),
        "dxa": (op.project, (dy, sb.t(), dxa, own), dy.nbytes),
        "da": (op.outer_accumulate, (dxa, x, grad_a, ones, same), x.nbytes),
        "db": (op.outer_accumulate, (xa, dy, turned, ones, own), dy.nbytes),
    }
    for product, (function, operands, size) in products.items():
        kernel = partial(function, *operands, method="triton")
        yield Benchmark(f"{product}-{name}", kernel, partial(function, *operands, method="cublas"), size)
    y, dx = torch.empty_like(dy), torch.empty_like(x)

    def forward_separate() -> None:
        torch.mm(x, weight.t(), out=y)
        torch.mm(x, a.t(), out=xa)
        for adapter, one in zip(adapters, own, strict=True):
            ranks = slice(one.first_rank, one.first_rank + rank)
            y[:, adapter.span].addmm_(xa[:, ranks], sb[adapter.span, ranks].t())

    def backward_separate() -> None:
        for function, operands, _ in list(products.values())[1:]:
            function(*operands, method="cublas")
        torch.mm(dy, weight, out=dx).addmm_(dxa, a)

    size = x.nbytes + weight.nbytes + y.nbytes
    flops = 2 * TOKENS * stack.N * hidden
    forward = partial(op.forward, x_ext, buffer, stack, out=y)
    backward = partial(op.backward, dy_ext, x_ext, buffer, stack, grad_a=grad_a, grad_b=grad_b, dx_out=dx)
    yield Benchmark(f"forward-{name}", forward, forward_separate, size, flops)
    yield Benchmark(f"backward-{name}", backward, backward_separate, size, flops)
