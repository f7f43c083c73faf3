"""Operands, checks and benchmarks that the test cases of 8-bit operations have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from burnish_kernels.dispatch import rounded
from burnish_kernels.eight_bit_linear import reference
from burnish_kernels.eight_bit_linear.rows import CODES, INT8, EightBitRows
from burnish_kernels.registry import Benchmark, Case

TYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
NAMES = {CODES: "", INT8: "-int8"}
"""Type of codes in the name of a case or compilation."""

TOLERANCE = 2.0**-9
"""Largest relative L2 error of a product against its quantized operands in double precision."""
TOKENS, RANK = 16384, 32  # rows and ranks of a product that is timed


class CodesBuffer:
    """Memory for codes and scales that a case gives to a kernel, each row followed by bytes that must stay.

    Args:
        tokens: number of rows.
        columns: number of columns.
        device: device that the kernel runs on.
        codes: type of the codes.

    Attributes:
        rows: codes and scales to write to.
    """

    def __init__(self, tokens: int, columns: int, device: torch.device | str, codes: torch.dtype = CODES) -> None:
        self._buffer = torch.full((tokens, columns + 16), 9, dtype=torch.uint8, device=device)
        self._columns = columns
        self.rows = EightBitRows(self._buffer.view(codes)[:, :columns], torch.full((tokens,), math.nan, device=device))

    def holds(self, x_TK: torch.Tensor, factor_K: torch.Tensor | None = None) -> bool:
        """Return whether codes and scales are to the last bit those of the rows, and nothing else was written."""
        codes, scale = reference.quantize_rows(x_TK, factor_K, self.rows.codes.dtype)
        same = torch.equal(self._buffer[:, : self._columns], codes.view(torch.uint8))
        return same and torch.equal(self.rows.scale, scale) and self.is_whole()

    def is_whole(self) -> bool:
        """Return whether nothing beside the rows was written."""
        return bool((self._buffer[:, self._columns :] == 9).all())


def product_case(
    tokens: int,
    rows: int,
    columns: int,
    dtype: torch.dtype,
    *,
    ranks: int = 0,
    backward: bool = False,
    rotation: int = 0,
    large: bool = False,
    tolerance: float = TOLERANCE,
    codes: torch.dtype = CODES,
    **more: bool,
) -> Case:
    """Describe a product over a weight.

    Args:
        tokens: number of quantized rows.
        rows: rows of the weight.
        columns: columns of the weight.
        dtype: type of the result and of the adapter.
        ranks: ranks of the adapter; 0: none.
        backward: whether the input's gradient is computed rather than the output.
        rotation: columns of a block that the result is rotated by; 0: none.
        large: whether the case is too large for Triton's interpreter.
        tolerance: largest error that passes.
        codes: type of the operands.
        **more: further options, whose names stand in the case's where they are set.
    """
    name = f"{tokens}x{rows}x{columns}-{TYPES[dtype]}{f'-r{ranks}' * bool(ranks)}{'-dx' * backward}{NAMES[codes]}"
    name += f"-rotated{rotation}" * bool(rotation)
    options = {
        "kind": "product",
        "tokens": tokens,
        "shape": (rows, columns),
        "dtype": dtype,
        "ranks": ranks,
        "codes": codes,
        "rotation": rotation,
    }
    name = "-".join([name, *(word for word, said in more.items() if said)])
    return Case(name, tolerance, options | {"backward": backward} | more, gpu_only=large)


def codes_beside_nan(tokens: int, columns: int, device: str, codes: torch.dtype = CODES) -> torch.Tensor:
    """Allocate codes `[tokens, columns]` beside whose rows lie NaN or in INT8 127, which must not be read."""
    return torch.full((tokens, columns + 16), 0x7F, dtype=torch.uint8, device=device).view(codes)[:, :columns]


def draw_adapter(
    options: dict[str, Any], outputs: int, draw: Callable[..., torch.Tensor]
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Draw the narrow rows of a case's product, with NaN beside them, and the adapter's matrix `[outputs, ranks]`.

    Args:
        options: options of the case.
        outputs: number of columns of the product.
        draw: function that draws numbers of a shape.

    Returns:
        The rows and the matrix, which in the backward direction is stored transposed; None without ranks.
    """
    tokens, ranks, dtype = (options[name] for name in ("tokens", "ranks", "dtype"))
    if not ranks:
        return None, None
    drawn = draw(tokens, ranks)
    narrow = torch.full((tokens, ranks + 16), torch.nan, dtype=dtype, device=drawn.device)[:, :ranks]
    narrow.copy_(drawn)
    return narrow, draw(ranks, outputs).to(dtype).t() if options["backward"] else draw(outputs, ranks).to(dtype)


def result_error(buffer: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the relative L2 error of a result, infinite where NaN beside it was written over.

    Args:
        buffer: memory that held NaN, whose first columns are the result.
        exact: result in double precision.
    """
    outputs = exact.shape[1]
    if not bool(buffer[:, outputs:].isnan().all()):
        return math.inf
    if buffer.is_cpu:
        exact = rounded(exact.float(), buffer.dtype)
    error = float((buffer[:, :outputs].double() - exact.double()).norm() / exact.double().norm())
    return math.inf if math.isnan(error) else error


class TimedProduct:
    """The 16-bit operands of a product that is timed.

    Args:
        outputs: rows of the weight.
        columns: columns of the weight.
        device: device to make the tensors on.

    Attributes:
        x: input `[TOKENS, columns]`.
        weight: weight `[outputs, columns]`.
        y: memory for the result `[TOKENS, outputs]`.
    """

    def __init__(self, outputs: int, columns: int, device: str) -> None:
        self.x = torch.randn(TOKENS, columns, device=device).bfloat16()
        self.weight = (torch.randn(outputs, columns, device=device) * columns**-0.5).bfloat16()
        self.y = self.x.new_empty(TOKENS, outputs)
        self._narrow = torch.randn(TOKENS, RANK, device=device).bfloat16()
        self._adapter = torch.randn(outputs, RANK, device=device).bfloat16()

    def benchmark(self, name: str, product: Callable[..., torch.Tensor]) -> Benchmark:
        """Time a product of 8-bit operands with an adapter, against the 16-bit one without.

        Args:
            name: name of the shape.
            product: product without its adapter and the memory for its result.
        """
        run = partial(product, narrow_TR=self._narrow, adapter_NR=self._adapter, out=self.y)
        plain = partial(torch.mm, self.x, self.weight.t(), out=self.y)
        size = self.x.numel() + self.weight.numel() + self.y.nbytes
        return Benchmark(f"product-{name}", run, plain, size, 2 * self.x.numel() * len(self.weight))
