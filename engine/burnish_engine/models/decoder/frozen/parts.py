"""The parts of a stack's frozen weight: some of its rows, in 16 bits, fp32, NF4, 8 bits, or blocks of GGUF."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import torch

from burnish_kernels.eight_bit_linear.op import EightBitRows
from burnish_kernels.gguf_blocks import op as gguf_blocks
from burnish_kernels.gguf_blocks.blocks import GgufBlocks
from burnish_kernels.mxfp8_linear.op import MxWeight
from burnish_kernels.nf4 import op as nf4

CodedPart: TypeAlias = "EightBitRows | MxWeight"
"""Weight `[rows, K]` of some rows of the stack in 8 bits: codes and their scales."""

WeightPart: TypeAlias = "torch.Tensor | nf4.Nf4 | CodedPart | GgufBlocks"
"""Weight `[rows, K]` of some rows of the stack: in 16 bits, fp32, NF4, 8 bits, or blocks of GGUF."""

CODED = (EightBitRows, MxWeight)
"""Classes of `CodedPart`."""


def part_rows(part: WeightPart) -> int:
    """Return the number of rows of a part."""
    return len(part.codes) if isinstance(part, CODED) else part.shape[0]


def part_tensors(part: WeightPart) -> dict[str, torch.Tensor]:
    """Return the tensors of a part by name, in the order in which they lie in host memory."""
    if isinstance(part, torch.Tensor):
        return {"": part}
    return {"codes": part.codes, "scale": part.scale} if isinstance(part, CODED) else part.tensors()


def placed(part: WeightPart, views: Iterator[torch.Tensor]) -> WeightPart:
    """Return a part of the same form whose tensors are the next views."""
    if isinstance(part, torch.Tensor):
        return next(views)
    found = {name: next(views) for name in part_tensors(part)}
    return replace(part, **found)


def unpack(parts: Sequence[WeightPart], out_NK: torch.Tensor) -> None:
    """Write parts one under another, in the type of the memory given.

    Args:
        parts: rows of the weight from top to bottom; none in MXFP8, which products read as it is.
        out_NK: memory to write to, rows may be strided.
    """
    plain = [part for part in parts if isinstance(part, torch.Tensor | nf4.Nf4)]
    if len(plain) == len(parts):
        nf4.dequantize_stack(plain, out_NK, out_NK.dtype)
        return
    first = 0
    for part in parts:
        rows_NK = out_NK[first : first + part_rows(part)]
        if isinstance(part, EightBitRows):
            rows_NK.copy_(part.codes)  # exact in any of the types
            rows_NK.mul_(part.scale[:, None])  # in fp32, rounded once
        elif isinstance(part, GgufBlocks):
            gguf_blocks.dequantize(part, dtype=out_NK.dtype, out=rows_NK)
        else:
            assert not isinstance(part, MxWeight)
            nf4.dequantize_stack([part], rows_NK, out_NK.dtype)
        first += len(rows_NK)
