"""Test cases, compilations and benchmarks of 8-bit products, of rows quantized and of codes transposed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from burnish_kernels.eight_bit_linear.case_parts import (
    NAMES,
    RANK,
    TYPES,
    CodesBuffer,
    TimedProduct,
    codes_beside_nan,
    draw_adapter,
    product_case,
    result_error,
)
from burnish_kernels.eight_bit_linear.projected import cases as projected
from burnish_kernels.eight_bit_linear.quantize import cases as rotated
from burnish_kernels.eight_bit_linear.rows import CODES, INT8, EightBitRows
from burnish_kernels.eight_bit_linear.tiles import (
    CAPABILITIES_OF,
    HOPPER,
    HOPPER_CANDIDATES,
    HOPPER_ROTATED,
    HOPPER_SHORT,
    HOPPERS,
    INTERPRETED_PERSISTENT,
    INTERPRETED_ROTATED_PERSISTENT,
    OTHERS,
    ROWS_TILES,
    UNALIGNED,
    EightBitTile,
    choose_tile,
    rank_block,
    short_columns,
    use_eight_bit_kernels,
)
from burnish_kernels.registry import Benchmark, Case, Compilation

SHORT_TOLERANCE = 2.0**-8
"""Largest error of a product where Hopper's short accumulator holds the sums of all columns."""

_KINDS = {CODES: r"\.e4m3\.e4m3", INT8: r"\.s32\.s8\.s8"}
_POINTERS = {CODES: "fp8e4nv", INT8: "i8"}  # types in Triton's signatures

INSTRUCTIONS = {
    codes: {
        one: (r"wgmma\.mma_async" if one in HOPPERS else r"mma\.sync") + r"\.\S+" + kind
        for one in CAPABILITIES_OF[codes]
    }
    for codes, kind in _KINDS.items()
}
"""Regular expression of the matrix instruction by codes and compute capability; wrong settings give others silently."""

BENCHMARKS = {
    "gate-up-1b": (16384, 2048),
    "down-1b": (2048, 8192),
    "gate-up-4b": (19456, 2560),
    "down-4b": (2560, 9728),
}


def cases() -> list[Case]:
    """List products in both directions, with ranks and types, at edges that no block fills; the doctor runs the first.

    Quantized rows and transposes must be equal to the last bit.
    """
    found = []
    short = partial(product_case, large=True, tolerance=SHORT_TOLERANCE, persistent=True)
    for dtype in (torch.bfloat16, torch.float16):
        found += [
            product_case(33, 48, 80, dtype, ranks=17),
            product_case(33, 48, 80, dtype, ranks=17, backward=True),
            product_case(70, 40, 64, dtype),
            product_case(1, 5, 13, dtype, ranks=1),
            product_case(5, 33, 31, dtype, ranks=40, backward=True),
            product_case(1000, 1536, 2560, dtype, ranks=48, large=True, persistent=False),
            product_case(1000, 1536, 2560, dtype, ranks=256, backward=True, large=True, persistent=False),
            product_case(70, 104, 48, dtype, ranks=17, persistent=True),
            product_case(33, 48, 80, dtype, ranks=40, backward=True, persistent=True),
            product_case(33, 48, 80, dtype, backward=True, persistent=True),
            short(1000, 1536, 2560, dtype, ranks=48),
            short(1000, 1520, 2544, dtype, ranks=48, backward=True),
        ]
    found += _int8_products()
    for (dtype, kind), codes in itertools.product(TYPES.items(), NAMES):
        for rows, columns, factor in ((5, 64, False), (3, 4100, True), (1, 1, True), (3, 12300, True)):
            name = f"quantize-{rows}x{columns}-{kind}{'-factor' * factor}{NAMES[codes]}"
            options = {"kind": "quantize", "shape": (rows, columns), "dtype": dtype, "factor": factor, "codes": codes}
            found.append(Case(name, 0.0, options))
    for rows, columns in ((130, 40), (1, 1), (128, 256)):
        found.append(Case(f"transpose-{rows}x{columns}", 0.0, {"kind": "transpose", "shape": (rows, columns)}))
    return [*found, *projected.cases(), *rotated.cases()]


def _int8_products() -> list[Case]:
    case = partial(product_case, codes=INT8)
    wide = partial(case, 1000, 1520, 3200, large=True)  # columns of either tile on Hopper
    both = (torch.bfloat16, torch.float16)
    found = [case(33, 48, 80, dtype, ranks=17, backward=backward) for dtype in both for backward in (False, True)]
    found += [
        case(1, 5, 13, torch.bfloat16, ranks=1),
        case(5, 33, 31, torch.bfloat16, ranks=40, backward=True),
        case(70, 104, 48, torch.bfloat16, ranks=17, persistent=True),
        case(33, 48, 80, torch.bfloat16, ranks=40, backward=True, persistent=True),
        case(33, 48, 80, torch.float16, backward=True, persistent=True),
    ]
    for persistent, rotation in itertools.product((False, True), (64, 32, 16)):
        dtype = torch.float16 if rotation == 32 else torch.bfloat16
        small = partial(case, backward=True, rotation=rotation, persistent=persistent)
        found.append(small(70, 48, 3 * rotation, dtype, ranks=17))
        found.append(small(33, 48, 5 * rotation, dtype, ranks=40 * (rotation == 64)))
    for persistent in (False, True):
        rotated_back = partial(case, backward=True, rotation=64, large=True, persistent=persistent)
        found += [
            rotated_back(1000, 3072, 1600, torch.bfloat16, ranks=48),  # either tile on Hopper, by columns
            rotated_back(1000, 3200, 1600, torch.float16, ranks=16),
            rotated_back(1000, 3200, 1600, torch.bfloat16),
            wide(torch.bfloat16, ranks=48, persistent=persistent),
            wide(torch.bfloat16, ranks=256, backward=True, persistent=persistent),
            wide(torch.float16, persistent=persistent),
        ]
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
    if case.options["kind"] == "projected":
        return projected.compare(case.options, device, generator)
    if case.options["kind"] == "rotated":
        return rotated.compare(case.options, device, generator)
    rows, columns = case.options["shape"]
    if case.options["kind"] == "transpose":
        return _compare_transpose(rows, columns, device, generator)
    return _compare_rows(case.options, device, generator)


def _compare_rows(options: dict[str, Any], device: str, generator: torch.Generator) -> float:
    from burnish_kernels.eight_bit_linear import op

    rows, columns = options["shape"]
    # Sizes of rows from 2^-20 to 2^20, and of values within a row down to E4M3's subnormals and below.
    sizes = torch.exp2(torch.randint(-20, 21, (rows, 1), generator=generator).float())
    spread = torch.exp2(torch.randint(-18, 1, (rows, columns), generator=generator).float())
    x = (torch.randn(rows, columns, generator=generator) * sizes * spread).clamp(-60000, 60000)
    x = x.to(options["dtype"]).to(device)
    factor = torch.rand(columns, generator=generator).to(device) if options["factor"] else None
    buffer = CodesBuffer(rows, columns, device, options["codes"])
    op.quantize_rows(x, factor_K=factor, out=buffer.rows)
    return 0.0 if buffer.holds(x, factor) else math.inf


def _compare_transpose(rows: int, columns: int, device: str, generator: torch.Generator) -> float:
    from burnish_kernels.eight_bit_linear import op

    codes = torch.randint(0, 256, (rows, columns + 8), dtype=torch.uint8, generator=generator).to(device)[:, :columns]
    buffer = torch.full((columns, rows + 16), 9, dtype=torch.uint8, device=device)
    op.transpose_codes(codes, buffer[:, :rows])
    return 0.0 if torch.equal(buffer[:, :rows], codes.t()) and bool((buffer[:, rows:] == 9).all()) else math.inf


def _compare_product(options: dict[str, Any], device: str, generator: torch.Generator) -> float:
    from burnish_kernels.eight_bit_linear import op, reference

    tokens, (rows, columns), dtype, kind = (options[name] for name in ("tokens", "shape", "dtype", "codes"))

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).to(device)

    weight = op.quantize_rows(draw(rows, columns) * columns**-0.5, codes=kind)
    inputs, outputs = (rows, columns) if options["backward"] else (columns, rows)
    x = EightBitRows(codes_beside_nan(tokens, inputs, device, kind), torch.empty(tokens, device=device))
    op.quantize_rows(draw(tokens, inputs).to(dtype), factor_K=weight.scale if options["backward"] else None, out=x)
    codes, scale = weight.codes, weight.scale
    if options["backward"]:
        codes, scale = op.transpose_codes(codes, torch.empty(columns, rows, dtype=kind, device=device)), None
    narrow, adapter = draw_adapter(options, outputs, draw)
    buffer = torch.full((tokens, outputs + 8), torch.nan, dtype=dtype, device=device)
    if options.get("persistent"):
        from burnish_kernels.eight_bit_linear.persistent.kernel import fits_copy_engine

        assert fits_copy_engine(x.codes, codes, buffer[:, :outputs]), "another kernel would be compared"
    rotation = options["rotation"]
    words = {"scale_N": scale, "narrow_TR": narrow, "adapter_NR": adapter, "rotation": rotation}
    tile = _tile(device, options.get("persistent"), kind, inputs, rotated=rotation > 0)
    op.eight_bit_linear(x, codes, **words, out=buffer[:, :outputs], tile=tile)
    operands = (x.codes, x.scale, codes, scale, narrow, adapter)
    return result_error(buffer, reference.eight_bit_linear(*operands, torch.float64, rotation=rotation, result=dtype))


def _tile(
    device: str, persistent: bool | None, codes: torch.dtype, columns: int, *, rotated: bool
) -> EightBitTile | None:
    """Return the tile with which a case has the kernel it names; None: the operation chooses."""
    if device == "cpu":
        alone = INTERPRETED_ROTATED_PERSISTENT if rotated else INTERPRETED_PERSISTENT
        return alone if persistent else None
    chosen = choose_tile(torch.device(device), codes, columns, rotated=rotated)
    return UNALIGNED if persistent is False and chosen.persistent else chosen


def compilations() -> list[Compilation]:
    """List rows of each type, the transpose, and the product's tiles in each direction, with blocks filled or not.

    What fp16 needs is what bf16 needs, and what an adapter needs is more than without one: those are compiled once.
    """
    from burnish_kernels.eight_bit_linear.quantize import kernel

    numbers = dict.fromkeys(("N", "K", "codes_stride", "out_stride"), "i32")
    signature = {"codes_ptr": "*u8", "out_ptr": "*u8"} | numbers
    found = [
        Compilation("transpose", kernel.transpose_kernel, signature, {"TURN": kernel.TURN}, kernel.TURN_WARPS),
    ]
    variants = [(kind, True, ROWS_TILES[0]) for kind in ("fp16", "fp32")]
    variants += [("bf16", factor, tile) for factor in (True, False) for tile in ROWS_TILES]
    for codes, (kind, factor, own) in itertools.product(NAMES, variants):
        signature = {"x_ptr": f"*{kind}", "factor_ptr": "*fp32", "scale_ptr": "*fp32"}
        signature["codes_ptr"] = f"*{_POINTERS[codes]}"
        signature |= dict.fromkeys(("T", "K", "x_stride", "codes_stride"), "i32")
        constants = {"HAS_FACTOR": factor, "ROWS": own.rows, "COLUMNS": own.columns}
        constants["INTERPRETED"] = False
        name = f"quantize-{kind}{'-factor' * factor}-{own.rows}x{own.columns}{NAMES[codes]}"
        function = kernel.quantize_rows_kernel
        found.append(Compilation(name, function, signature, constants, own.warps, capabilities=CAPABILITIES_OF[codes]))
    launched = [(codes, tile) for codes in NAMES for tile in (OTHERS, UNALIGNED, HOPPER)]
    for tile, rotation in itertools.product((OTHERS, UNALIGNED, HOPPER_ROTATED, HOPPER_SHORT), (64, 32, 16)):
        capabilities = tuple(one for one in CAPABILITIES_OF[INT8] if (one in HOPPERS) == (tile != OTHERS))
        compiled = partial(_compilation, "bf16", tile, capabilities, True, codes=INT8, rotation=rotation)
        found.append(compiled(True))
        if rotation == 64:
            found += [compiled(False), compiled(True, adapter=False)]
    for codes, tile in (*launched, (INT8, HOPPER_SHORT)):
        others = tuple(one for one in CAPABILITIES_OF[codes] if one not in HOPPERS)
        compiled = partial(_compilation, tile=tile, capabilities=others if tile == OTHERS else HOPPERS, codes=codes)
        for backward in (False, True):
            found += [compiled("bf16", backward=backward, even=even) for even in (True, False)]
        found.append(compiled("fp16", backward=False, even=bool(tile.persistent)))
        found.append(compiled("bf16", backward=False, even=True, adapter=False))
    for tile in HOPPER_CANDIDATES:
        found += [_compilation("bf16", tile, HOPPERS, backward, True) for backward in (False, True)]
    found = list({one.name: one for one in found}.values())  # a candidate may be the choice
    return [*found, *projected.compilations(), *rotated.compilations()]


def _compilation(
    kind: str,
    tile: EightBitTile,
    capabilities: Sequence[int],
    backward: bool,
    even: bool,
    *,
    adapter: bool = True,
    codes: torch.dtype = CODES,
    rotation: int = 0,
) -> Compilation:
    signature = {"x_scale_ptr": "*fp32", "scale_ptr": "*fp32", "narrow_ptr": f"*{kind}", "adapter_ptr": f"*{kind}"}
    one = "adapter_output" if backward else "adapter_rank"  # a stride of one is a constant, as in a launch
    numbers = ["T", "N", "K", "R", "narrow_stride", "adapter_rank" if backward else "adapter_output"]
    constants = {
        one: 1,
        "HAS_SCALE": not backward,
        "HAS_ADAPTER": adapter,
        "ROTATION": rotation,
        "BLOCK_T": tile.tokens,
        "BLOCK_N": tile.outputs,
        "BLOCK_K": tile.reduction,
        "BLOCK_R": rank_block(RANK),
        "GROUP": tile.group,
        "IMPRECISE": short_columns(tile, codes),
        "INTERPRETED": False,
    }
    function: Any
    if tile.persistent:
        from burnish_kernels.eight_bit_linear.persistent.kernel import eight_bit_linear_persistent_kernel as function

        signature |= {
            "x_desc": f"tensordesc<{_POINTERS[codes]}[{tile.tokens},{tile.reduction}]>",
            "weight_desc": f"tensordesc<{_POINTERS[codes]}[{tile.outputs},{tile.reduction}]>",
            "out_desc": f"tensordesc<{kind}[{tile.tokens},{tile.outputs // (4 if rotation else 2)}]>",
        }
        numbers += ["programs"]
        constants["ONE_BLOCK"] = even
    else:
        from burnish_kernels.eight_bit_linear.kernel import eight_bit_linear_kernel as function

        signature |= dict.fromkeys(("x_ptr", "weight_ptr"), f"*{_POINTERS[codes]}") | {"out_ptr": f"*{kind}"}
        numbers += ["x_stride", "weight_stride", "out_stride"]
        constants |= {"EVEN": even, "PARTS": tile.parts}
    signature |= dict.fromkeys(numbers, "i32")
    words = {"dx": backward, "even": even, "alone": not adapter, "persistent": tile.persistent}
    words |= {f"w{tile.warps}": True, f"s{tile.stages}": True, f"g{tile.group}": True, "int8": codes == INT8}
    words[f"rotated{rotation}"] = rotation > 0
    name = "-".join(
        [
            f"product-{kind}-{tile.tokens}x{tile.outputs}x{tile.reduction}",
            *(word for word, said in words.items() if said),
        ]
    )
    return Compilation(
        name,
        function,
        signature,
        constants,
        tile.warps,
        tile.stages,
        tuple(capabilities),
        tile.registers,
        instructions=INSTRUCTIONS[codes],
    )


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List quantization, transpose and product of published models' wide projections, in codes the GPU multiplies.

    Args:
        device: device to make the tensors on.
    """
    from burnish_kernels.eight_bit_linear import op, reference

    for (name, (outputs, columns)), kind in itertools.product(BENCHMARKS.items(), NAMES):
        if not use_eight_bit_kernels(torch.empty(0, device=device), kind):
            continue
        timed = TimedProduct(outputs, columns, device)
        weight, rows = op.quantize_rows(timed.weight, codes=kind), op.quantize_rows(timed.x, codes=kind)
        yield timed.benchmark(
            f"{name}{NAMES[kind]}", partial(op.eight_bit_linear, rows, weight.codes, scale_N=weight.scale)
        )
        quantize = partial(op.quantize_rows, timed.x, out=rows)
        plain = partial(reference.quantize_rows, timed.x, None, kind)
        yield Benchmark(f"quantize-{name}{NAMES[kind]}", quantize, plain, 3 * timed.x.numel())
        if kind != CODES:
            continue
        turned = torch.empty(columns, outputs, dtype=kind, device=device)
        codes = weight.codes.view(torch.uint8)
        transpose = partial(op.transpose_codes, weight.codes, turned)
        plain = partial(turned.view(torch.uint8).copy_, codes.t())
        yield Benchmark(f"transpose-{name}", transpose, plain, 2 * codes.nbytes)
    yield from projected.benchmarks(device)
    yield from rotated.benchmarks(device)
