"""Test cases, compilations and benchmarks of rows that are rotated: before they are quantized, and back in place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from burnish_kernels.eight_bit_linear.case_parts import TYPES, CodesBuffer, draw_adapter, result_error
from burnish_kernels.eight_bit_linear.rows import INT8
from burnish_kernels.eight_bit_linear.tiles import rank_block, rotated_tile, use_eight_bit_kernels
from burnish_kernels.registry import Benchmark, Case, Compilation

SHARE = 5e-3
"""Largest share of codes that may be the next one: sums in another order, which at a half round the other way."""

SCALE_ERROR = 2.0**-14
"""Largest relative error of a scale; fp32 rows are rotated as two parts in bf16, which the interpreter cuts off."""

ROTATED_ROWS = (
    ("fp16", 2048, 64), ("fp32", 2560, 64), ("bf16", 768, 32), ("bf16", 9728, 64), ("bf16", 28672, 64),
)  # fmt: skip
"""Rows to compile for: type, columns and those of a block."""

BACK_TOLERANCE = 2.0**-8
"""Largest relative error of rows rotated back, rounded once."""


def cases() -> list[Case]:
    """List rows of each type and blocks of each size, and the way back with an adapter or without."""
    found = []
    for dtype, kind in TYPES.items():
        for rows, columns, rotation in ((5, 192, 64), (3, 4160, 64), (1, 96, 32), (70, 48, 16), (2, 12352, 64)):
            options = {"kind": "rotated", "shape": (rows, columns), "dtype": dtype, "rotation": rotation}
            found.append(Case(f"rotated-{rows}x{columns}-{rotation}-{kind}", SHARE, options))
    for dtype in (torch.bfloat16, torch.float16):
        for tokens, columns, rotation, ranks in ((70, 192, 64, 17), (3, 96, 32, 40), (5, 48, 16, 0)):
            options = {"kind": "rotated back", "tokens": tokens, "columns": columns, "rotation": rotation}
            options |= {"dtype": dtype, "ranks": ranks, "backward": True}
            name = f"rotated-back-{tokens}x{columns}-{rotation}-{TYPES[dtype]}{f'-r{ranks}' * bool(ranks)}"
            found.append(Case(name, BACK_TOLERANCE, options))
    return found


def compare(options: dict[str, Any], device: str, generator: torch.Generator) -> float:
    """Return the share of codes that are not the reference's, or the relative error of rows rotated back.

    It is infinite where a code is not even the next one, a scale is another, or something beside the rows was written.
    """

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).to(device)

    compared = _compare_rows if options["kind"] == "rotated" else _compare_back
    return compared(options, device, draw)


def _compare_rows(options: dict[str, Any], device: str, draw: Any) -> float:
    from burnish_kernels.eight_bit_linear import op, reference

    (rows, columns), rotation = options["shape"], options["rotation"]
    x = (draw(rows, columns) * torch.where(torch.arange(columns, device=device) % 40 == 3, 30.0, 1.0)).to(
        options["dtype"]
    )
    buffer = CodesBuffer(rows, columns, device, INT8)
    op.quantize_rows(x, rotation=rotation, out=buffer.rows)
    codes, scale = reference.quantize_rows(x.double().cpu().float(), None, INT8, rotation)
    away = (buffer.rows.codes.cpu().int() - codes.int()).abs()
    wrong = ((buffer.rows.scale.cpu() - scale) / scale).abs().max() > SCALE_ERROR
    if bool(wrong) or int(away.max()) > 1 or not buffer.is_whole():
        return math.inf
    return float(away.float().mean())


def _compare_back(options: dict[str, Any], device: str, draw: Any) -> float:
    from burnish_kernels.eight_bit_linear import reference
    from burnish_kernels.eight_bit_linear.rotated import op

    tokens, columns, dtype = (options[name] for name in ("tokens", "columns", "dtype"))
    buffer = torch.full((tokens, columns + 8), torch.nan, dtype=dtype, device=device)
    x = buffer[:, :columns].copy_(draw(tokens, columns))
    narrow, adapter = draw_adapter(options, columns, draw)
    exact = reference.rotate_back(x, options["rotation"], narrow, adapter, torch.float64)
    op.rotate_back(x, options["rotation"], narrow_TR=narrow, adapter_KR=adapter)
    return result_error(buffer, exact)


def compilations() -> list[Compilation]:
    """List rotated rows of each type and tile, and the way back for each size of a block."""
    from burnish_kernels.eight_bit_linear.quantize.kernel import quantize_rotated_kernel
    from burnish_kernels.eight_bit_linear.rotated import kernel

    found = []
    for kind, columns, rotation in ROTATED_ROWS:
        own = rotated_tile(columns, rotation)
        signature = {"x_ptr": f"*{kind}", "codes_ptr": "*i8", "scale_ptr": "*fp32"}
        signature |= dict.fromkeys(("T", "K", "x_stride", "codes_stride"), "i32")
        constants = {"ROTATION": rotation, "ROWS": own.rows, "BLOCKS": own.blocks, "INTERPRETED": False}
        name = f"quantize-rotated-{kind}-{columns}-{rotation}"
        found.append(Compilation(name, quantize_rotated_kernel, signature, constants, own.warps))
    for kind, rotation in (("bf16", 64), ("bf16", 32), ("bf16", 16), ("fp16", 64)):
        signature = dict.fromkeys(("x_ptr", "narrow_ptr", "adapter_ptr"), f"*{kind}")
        signature |= dict.fromkeys(("T", "K", "R", "x_stride", "narrow_stride", "adapter_rank"), "i32")
        constants = {"adapter_output": 1, "HAS_ADAPTER": True, "ROTATION": rotation, "TOKENS": kernel.TOKENS}
        constants |= {"COLUMNS": kernel.COLUMNS, "BLOCK_R": rank_block(32), "INTERPRETED": False}
        name = f"rotate-back-{kind}-{rotation}"
        found.append(Compilation(name, kernel.rotate_back_kernel, signature, constants, kernel.WARPS))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List inputs and gradients of published models' projections, against rows that are not rotated and PyTorch.

    Args:
        device: device to make the tensors on.
    """
    from burnish_kernels.eight_bit_linear import reference
    from burnish_kernels.eight_bit_linear.op import quantize_rows
    from burnish_kernels.eight_bit_linear.rotated.op import rotate_back

    if not use_eight_bit_kernels(torch.empty(0, device=device), INT8):
        return
    for columns in (2048, 9728):
        x = torch.randn(16384, columns, device=device).bfloat16()
        narrow, adapter = torch.randn(16384, 16, device=device).bfloat16(), torch.randn(16, columns, device=device)
        rows = quantize_rows(x, codes=INT8)
        run, plain = (partial(quantize_rows, x, rotation=rotation, out=rows) for rotation in (64, 0))
        yield Benchmark(f"quantize-rotated-{columns}", run, plain, 3 * x.numel())
        run = partial(rotate_back, x, 64, narrow_TR=narrow, adapter_KR=adapter.bfloat16().t())
        plain = partial(reference.rotate_back, x, 64, None, None)
        yield Benchmark(f"rotate-back-{columns}", run, plain, 2 * x.nbytes)
