"""Test cases, compilations and benchmarks of MXFP8 products and of the rows quantized for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from burnish_kernels.eight_bit_linear.case_parts import (
    RANK,
    TYPES,
    TimedProduct,
    codes_beside_nan,
    draw_adapter,
    product_case,
    result_error,
)
from burnish_kernels.eight_bit_linear.rows import CODES
from burnish_kernels.eight_bit_linear.tiles import rank_block, use_eight_bit_kernels
from burnish_kernels.mxfp8_linear.blocks import BLOCK, MxRows, MxWeight
from burnish_kernels.mxfp8_linear.tiles import COMPILED
from burnish_kernels.registry import FP8_CAPABILITIES, MXFP8_CAPABILITIES, Benchmark, Case, Compilation

INSTRUCTIONS = {120: r"mma\.sync\.\S+\.kind::mxf8f6f4\.block_scale\.\S+\.e4m3\.e4m3\.\S+\.ue8m0"}
"""Regular expression of the matrix instruction by compute capability; wrong settings give a 16-bit one silently."""

BENCHMARKS = {"gate-up-4b": (19456, 2560), "down-4b": (2560, 9728)}


def cases() -> list[Case]:
    """List products in both directions, with ranks and types, at edges that no block fills; the doctor runs the first.

    Quantized rows must be equal to the last bit.
    """
    found = []
    for dtype in (torch.bfloat16, torch.float16):
        found += [
            product_case(33, 64, 96, dtype, ranks=17),
            product_case(33, 96, 64, dtype, ranks=17, backward=True),
            product_case(70, 32, 64, dtype),
            product_case(1, 32, 32, dtype, ranks=1),
            product_case(5, 64, 32, dtype, ranks=40, backward=True),
            product_case(1000, 1536, 2592, dtype, ranks=48, large=True),
            product_case(1000, 1504, 2560, dtype, ranks=256, backward=True, large=True),
        ]
    for dtype, kind in TYPES.items():
        for rows, columns in ((5, 64), (9, 4128), (1, 32)):
            options = {"kind": "quantize", "shape": (rows, columns), "dtype": dtype}
            found.append(Case(f"quantize-{rows}x{columns}-{kind}", 0.0, options))
    return found


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the relative L2 error against the reference in double precision, or whether codes and scales are equal.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where codes differ, or something beside the output was written.
    """
    generator = torch.Generator().manual_seed(seed)
    if case.options["kind"] == "product":
        return _compare_product(case.options, device, generator)
    return _compare_rows(case.options, device, generator)


def _compare_rows(options: dict[str, Any], device: str, generator: torch.Generator) -> float:
    from burnish_kernels.mxfp8_linear import op, reference

    rows, columns = options["shape"]
    # Sizes of values from 2^-20 to 2^15, so that blocks differ and hold E4M3's subnormals; one block of zeros.
    sizes = torch.exp2(torch.randint(-10, 10, (rows, columns), generator=generator).float())
    blocks = torch.exp2(torch.randint(-10, 6, (rows, columns // BLOCK), generator=generator).float())
    x = torch.randn(rows, columns, generator=generator) * sizes * blocks.repeat_interleave(BLOCK, dim=1)
    x[0, :BLOCK] = 0
    x = x.clamp(-60000, 60000).to(options["dtype"]).to(device)
    buffer = torch.full((rows, columns + 16), 9, dtype=torch.uint8, device=device)
    out = MxRows(buffer.view(CODES)[:, :columns], torch.full_like(buffer[:, : columns // BLOCK].contiguous(), 9))
    op.quantize_rows(x, out=out)
    codes, scale = reference.quantize_rows(x)
    same = torch.equal(buffer[:, :columns], codes.view(torch.uint8)) and torch.equal(out.scale, scale)
    return 0.0 if same and bool((buffer[:, columns:] == 9).all()) else math.inf


def _compare_product(options: dict[str, Any], device: str, generator: torch.Generator) -> float:
    from burnish_kernels.eight_bit_linear.op import transpose_codes
    from burnish_kernels.mxfp8_linear import op, reference

    tokens, (rows, columns), dtype = (options[name] for name in ("tokens", "shape", "dtype"))

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).to(device)

    # Tiles of the weight and columns of the rows differ by powers of two, so that a wrong scale is seen.
    spread = torch.exp2(torch.randint(-4, 5, (rows // BLOCK, columns // BLOCK), generator=generator).float()).to(device)
    spread = spread.repeat_interleave(BLOCK, dim=0).repeat_interleave(BLOCK, dim=1)
    weight = op.quantize_weight(draw(rows, columns) * columns**-0.5 * spread)
    inputs, outputs = (rows, columns) if options["backward"] else (columns, rows)
    scale = torch.empty(tokens, inputs // BLOCK, dtype=torch.uint8, device=device)
    x = MxRows(codes_beside_nan(tokens, inputs, device), scale)
    spread = torch.exp2(torch.randint(-4, 5, (tokens, inputs // BLOCK), generator=generator).float()).to(device)
    op.quantize_rows((draw(tokens, inputs) * spread.repeat_interleave(BLOCK, dim=1)).to(dtype), out=x)
    if options["backward"]:
        turned = transpose_codes(weight.codes, torch.empty(columns, rows, dtype=CODES, device=device))
        weight = MxWeight(turned, weight.scale.t())
    narrow, adapter = draw_adapter(options, outputs, draw)
    buffer = torch.full((tokens, outputs + 8), torch.nan, dtype=dtype, device=device)
    op.mxfp8_linear(x, weight, narrow_TR=narrow, adapter_NR=adapter, out=buffer[:, :outputs])
    operands = (x.codes, x.scale), (weight.codes, weight.scale)
    return result_error(buffer, reference.mxfp8_linear(*operands, narrow, adapter, torch.float64))


def compilations() -> list[Compilation]:
    """List rows of each type, and the product in each direction, with blocks filled or not, with adapters or without.

    All of these are launched by the engine on compute capability 12.0; others take the first product, in tests.
    """
    from burnish_kernels.mxfp8_linear import kernel

    found = []
    for kind in ("bf16", "fp16", "fp32"):
        signature = {"x_ptr": f"*{kind}", "codes_ptr": "*fp8e4nv", "scale_ptr": "*u8"}
        signature |= dict.fromkeys(("T", "K", "x_stride", "codes_stride"), "i32")
        constants = {"ROWS": kernel.ROWS, "COLUMNS": kernel.COLUMNS, "INTERPRETED": False}
        function, warps = kernel.quantize_mx_rows_kernel, kernel.QUANTIZE_WARPS
        name = f"quantize-{kind}"
        found.append(Compilation(name, function, signature, constants, warps, capabilities=FP8_CAPABILITIES))
    found += [
        _compilation(kind, backward, even, ranks)
        for kind in ("bf16", "fp16")
        for backward in (False, True)
        for even, ranks in ((True, RANK), (True, RANK // 2), (True, 0), (False, RANK), (False, RANK // 2), (False, 0))
    ]
    return found


def _compilation(kind: str, backward: bool, even: bool, ranks: int) -> Compilation:
    from burnish_kernels.mxfp8_linear import kernel

    signature = dict.fromkeys(("narrow_ptr", "adapter_ptr", "out_ptr"), f"*{kind}")
    signature |= {"x_ptr": "*fp8e4nv", "weight_ptr": "*fp8e4nv", "x_scale_ptr": "*u8", "scale_ptr": "*u8"}
    # Strides of 1 are constants in a launch; where there is no adapter they are those of the result.
    ones = ["adapter_output" if backward and ranks else "adapter_rank", "scale_output" if backward else "scale_column"]
    others = [name for name in ("adapter_output", "adapter_rank", "scale_output", "scale_column") if name not in ones]
    numbers = ["T", "N", "K", "R", "x_stride", "weight_stride", "narrow_stride", "out_stride"]
    signature |= dict.fromkeys([*numbers, *others], "i32")
    constants = dict.fromkeys(ones, 1) | {
        "HAS_ADAPTER": ranks > 0,
        "EVEN": even,
        "BLOCK_T": COMPILED.tokens,
        "BLOCK_N": COMPILED.outputs,
        "BLOCK_K": COMPILED.reduction,
        "BLOCK_R": rank_block(ranks),
        "GROUP": COMPILED.group,
        "INTERPRETED": False,
    }
    is_first = (kind, backward, even, ranks) == ("bf16", False, True, RANK)
    return Compilation(
        f"product-{kind}-r{ranks}{'-dx' * backward}{'-even' * even}",
        kernel.mxfp8_linear_kernel,
        signature,
        constants,
        COMPILED.warps,
        COMPILED.stages,
        FP8_CAPABILITIES if is_first else MXFP8_CAPABILITIES,
        COMPILED.registers,
        instructions=INSTRUCTIONS,
    )


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List quantization and product of a published model's wide projections, where the GPU multiplies E4M3.

    Args:
        device: device to make the tensors on.
    """
    from burnish_kernels.mxfp8_linear import op, reference

    if not use_eight_bit_kernels(torch.empty(0, device=device)):
        return
    for name, (outputs, columns) in BENCHMARKS.items():
        timed = TimedProduct(outputs, columns, device)
        weight, rows = op.quantize_weight(timed.weight), op.quantize_rows(timed.x)
        yield timed.benchmark(name, partial(op.mxfp8_linear, rows, weight))
        quantize, plain = partial(op.quantize_rows, timed.x, out=rows), partial(reference.quantize_rows, timed.x)
        yield Benchmark(f"quantize-{name}", quantize, plain, 3 * timed.x.numel())
