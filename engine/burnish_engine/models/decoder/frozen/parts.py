"""The parts of a stack's frozen weight: some of its rows, in 16 bits, fp32, NF4, FP8 or INT8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import torch

from burnish_kernels.fp8_linear.op import Fp8Rows
from burnish_kernels.nf4 import op as nf4

WeightPart: TypeAlias = "torch.Tensor | nf4.Nf4 | Fp8Rows"
"""Weight `[rows, K]` of some rows of the stack: in 16 bits, fp32, NF4, or codes of 8 bits with a scale for each row."""


def part_rows(part: WeightPart) -> int:
    """Return the number of rows of a part."""
    return len(part.codes) if isinstance(part, Fp8Rows) else part.shape[0]


def part_tensors(part: WeightPart) -> dict[str, torch.Tensor]:
    """Return the tensors of a part by name, in the order in which they lie in host memory."""
    if isinstance(part, torch.Tensor):
        return {"": part}
    return {"codes": part.codes, "scale": part.scale} if isinstance(part, Fp8Rows) else part.tensors()


def placed(part: WeightPart, views: Iterator[torch.Tensor]) -> WeightPart:
    """Return a part of the same form whose tensors are the next views."""
    if isinstance(part, torch.Tensor):
        return next(views)
    found = {name: next(views) for name in part_tensors(part)}
    return Fp8Rows(**found) if isinstance(part, Fp8Rows) else replace(part, **found)


def unpack(parts: Sequence[WeightPart], out_NK: torch.Tensor) -> None:
    """Write parts one under another, in the type of the memory given.

    Args:
        parts: rows of the weight from top to bottom.
        out_NK: memory to write to, rows may be strided.
    """
    if not any(isinstance(part, Fp8Rows) for part in parts):
        nf4.dequantize_stack([part for part in parts if not isinstance(part, Fp8Rows)], out_NK, out_NK.dtype)
        return
    first = 0
    for part in parts:
        rows_NK = out_NK[first : first + part_rows(part)]
        if isinstance(part, Fp8Rows):
            rows_NK.copy_(part.codes)  # exact in any of the types
            rows_NK.mul_(part.scale[:, None])  # in fp32, rounded once
        else:
            nf4.dequantize_stack([part], rows_NK, out_NK.dtype)
        first += len(rows_NK)
