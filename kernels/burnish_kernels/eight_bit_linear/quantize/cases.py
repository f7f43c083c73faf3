"""Test cases, compilations and benchmarks of rows that are rotated before they are quantized."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from burnish_kernels.eight_bit_linear.case_parts import TYPES, CodesBuffer
from burnish_kernels.eight_bit_linear.rows import INT8
from burnish_kernels.eight_bit_linear.tiles import rotated_tile, use_eight_bit_kernels
from burnish_kernels.registry import Benchmark, Case, Compilation

SHARE = 5e-3
"""Largest share of codes that may be the next one: sums in another order, which at a half round the other way."""

SCALE_ERROR = 2.0**-14
"""Largest relative error of a scale; fp32 rows are rotated as two parts in bf16, which the interpreter cuts off."""

ROTATED_ROWS = (
    ("fp16", 2048, 64), ("fp32", 2560, 64), ("bf16", 768, 32), ("bf16", 9728, 64), ("bf16", 28672, 64),
)  # fmt: skip
"""Rows to compile for: type, columns and those of a block."""


def cases() -> list[Case]:
    """List rows of each type and blocks of each size."""
    found = []
    for dtype, kind in TYPES.items():
        for rows, columns, rotation in ((5, 192, 64), (3, 4160, 64), (1, 96, 32), (70, 48, 16), (2, 12352, 64)):
            options = {"kind": "rotated", "shape": (rows, columns), "dtype": dtype, "rotation": rotation}
            found.append(Case(f"rotated-{rows}x{columns}-{rotation}-{kind}", SHARE, options))
    return found


def compare(options: dict[str, Any], device: str, generator: torch.Generator) -> float:
    """Return the share of codes that are not the reference's.

    It is infinite where a code is not even the next one, a scale is another, or something beside the rows was written.
    """
    from burnish_kernels.eight_bit_linear import op, reference

    (rows, columns), rotation = options["shape"], options["rotation"]
    sizes = torch.where(torch.arange(columns) % 40 == 3, 30.0, 1.0)
    x = (torch.randn(rows, columns, generator=generator) * sizes).to(options["dtype"]).to(device)
    buffer = CodesBuffer(rows, columns, device, INT8)
    op.quantize_rows(x, rotation=rotation, out=buffer.rows)
    codes, scale = reference.quantize_rows(x.double().cpu().float(), None, INT8, rotation)
    away = (buffer.rows.codes.cpu().int() - codes.int()).abs()
    wrong = ((buffer.rows.scale.cpu() - scale) / scale).abs().max() > SCALE_ERROR
    if bool(wrong) or int(away.max()) > 1 or not buffer.is_whole():
        return math.inf
    return float(away.float().mean())


def compilations() -> list[Compilation]:
    """List rotated rows of each type and tile."""
    from burnish_kernels.eight_bit_linear.quantize.kernel import quantize_rotated_kernel

    found = []
    for kind, columns, rotation in ROTATED_ROWS:
        own = rotated_tile(columns, rotation)
        signature = {"x_ptr": f"*{kind}", "codes_ptr": "*i8", "scale_ptr": "*fp32"}
        signature |= dict.fromkeys(("T", "K", "x_stride", "codes_stride"), "i32")
        constants = {"ROTATION": rotation, "ROWS": own.rows, "BLOCKS": own.blocks, "INTERPRETED": False}
        name = f"quantize-rotated-{kind}-{columns}-{rotation}"
        found.append(Compilation(name, quantize_rotated_kernel, signature, constants, own.warps))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List inputs of published models' projections, against rows that are not rotated.

    Args:
        device: device to make the tensors on.
    """
    from burnish_kernels.eight_bit_linear.op import quantize_rows

    if not use_eight_bit_kernels(torch.empty(0, device=device), INT8):
        return
    for columns in (2048, 9728):
        x = torch.randn(16384, columns, device=device).bfloat16()
        rows = quantize_rows(x, codes=INT8)
        run, plain = (partial(quantize_rows, x, rotation=rotation, out=rows) for rotation in (64, 0))
        yield Benchmark(f"quantize-rotated-{columns}", run, plain, 3 * x.numel())
