"""Test cases, compilations and benchmarks of experts' weights made codes, and of their products."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from burnish_kernels.dispatch import rounded
from burnish_kernels.eight_bit_linear.cases import INSTRUCTIONS, SHORT_TOLERANCE
from burnish_kernels.eight_bit_linear.rows import CODES
from burnish_kernels.eight_bit_linear.tiles import (
    HOPPERS,
    EightBitTile,
    rank_block,
    short_columns,
    use_eight_bit_kernels,
)
from burnish_kernels.grouped_codes.stack import CodedExperts
from burnish_kernels.grouped_codes.tiles import HOPPER, HOPPER_CANDIDATES, OTHERS
from burnish_kernels.moe_sort.cases import MODELS, SPREADS, random_ids
from burnish_kernels.moe_sort.op import TILE_ROWS, sort_by_expert
from burnish_kernels.moe_unpack.cases import random_stack
from burnish_kernels.moe_unpack.op import Packed
from burnish_kernels.registry import FP8_CAPABILITIES, Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers

TYPES = {torch.float16: "*fp16", torch.bfloat16: "*bf16"}
STORAGES = ("dense", "nf4", "nf4-double", "mxfp4", "codes")
TOLERANCE = 2.0**-9
"""Largest relative L2 error of a product against its codes in double precision."""


def cases() -> list[Case]:
    """List storages, directions, spreads, adapters and types; numbers that no block divides, padded rows, one token.

    Codes must be equal to the last bit.
    """
    found = []
    for dtype in (torch.bfloat16, torch.float16):
        found += [
            _case(21, 2, 5, 72, 128, dtype, ranks=3),
            _case(21, 2, 5, 72, 128, dtype, storage="nf4-double", transposed=True, ranks=3),
            _case(1, 4, 4, 64, 64, dtype, spread="one", storage="mxfp4", bias=True),
            _case(33, 2, 3, 100, 80, dtype, by_token=False, padding=24, ranks=40, transposed=True),
            _case(21, 2, 5, 72, 128, dtype, storage="codes", ranks=3),
            _case(21, 2, 5, 72, 128, dtype, storage="codes", transposed=True),
        ]
    found += [_case(23, 3, 4, 40, 64, torch.bfloat16, spread=spread, by_token=False) for spread in SPREADS]
    found += [
        _case(600, 4, 16, 320, 256, torch.bfloat16, storage=storage, transposed=transposed, ranks=16, large=True)
        for storage in STORAGES
        for transposed in (False, True)
    ]
    found.append(_case(600, 4, 16, 328, 272, torch.float16, transposed=True, ranks=16, bias=True, large=True))
    found.append(_case(3, 1, 2, 64, 64, torch.bfloat16, padding=1 << 30, large=True))  # rows 2^31 elements apart
    for storage in STORAGES:
        found += [_codes_case(storage, rows, columns) for rows, columns in ((1, 64), (40, 192), (70, 320))]
    found += [_codes_case(storage, 14336, 4096, large=True) for storage in ("nf4", "mxfp4")]
    return found


def _case(
    tokens: int,
    slots: int,
    experts: int,
    rows: int,
    columns: int,
    dtype: torch.dtype,
    *,
    spread: str = "holes",
    storage: str = "dense",
    transposed: bool = False,
    by_token: bool = True,
    ranks: int = 0,
    bias: bool = False,
    padding: int = 0,
    large: bool = False,
) -> Case:
    words = {"transposed": transposed, "sorted": not by_token, f"r{ranks}": ranks, "bias": bias, "padded": padding}
    kind = TYPES[dtype].removeprefix("*")
    parts = [f"{tokens}x{slots}-{experts}x{rows}x{columns}", storage, kind, spread]
    options = {"tokens": tokens, "slots": slots, "experts": experts, "shape": (rows, columns), "dtype": dtype}
    options |= {"spread": spread, "storage": storage, "transposed": transposed, "by_token": by_token, "ranks": ranks}
    options |= {"bias": bias, "padding": padding, "tile_rows": TILE_ROWS if large else 16, "kind": "product"}
    name = "-".join([*parts, *(word for word in words if words[word])])
    return Case(name, SHORT_TOLERANCE if large else TOLERANCE, options, gpu_only=large)


def _codes_case(storage: str, rows: int, columns: int, *, large: bool = False) -> Case:
    """Describe a group amid a stack made codes, in both directions."""
    options = {"kind": "codes", "storage": storage, "shape": (rows, columns), "experts": 40 if large else 4}
    return Case(f"codes-{storage}-{rows}x{columns}", 0.0, options, gpu_only=large)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the relative L2 error against the reference in double precision, or whether codes are equal.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where codes differ, groups of experts give other bits, or something beside the output was
        written.
    """
    return (_compare_codes if case.options["kind"] == "codes" else _compare_product)(case.options, device, seed)


def _compare_codes(options: dict[str, Any], device: str, seed: int) -> float:
    from burnish_kernels.grouped_codes import op, reference

    (rows, columns), experts = options["shape"], options["experts"]
    weight = _weight(options, torch.bfloat16, device, seed)
    scale_E, first, count = op.expert_scales(weight), experts - 3, 2
    codes_GNK = reference.unpack_codes(weight, scale_E, first, count)
    for transposed in (False, True):
        wanted = codes_GNK.transpose(1, 2) if transposed else codes_GNK
        buffer = torch.full((count * rows * columns + 16,), 9, dtype=torch.uint8, device=device)
        out = buffer[:-16].view(CODES).view(wanted.shape)
        op.unpack_codes(weight, scale_E, first, count, transposed=transposed, out=out)
        same = torch.equal(out.view(torch.uint8), wanted.contiguous().view(torch.uint8))
        if not same or bool((buffer[-16:] != 9).any()):
            return math.inf
    return 0.0


def _compare_product(options: dict[str, Any], device: str, seed: int) -> float:
    from burnish_kernels.eight_bit_linear.op import quantize_rows
    from burnish_kernels.grouped_codes import op, reference

    generator = torch.Generator().manual_seed(seed)
    (rows, columns), experts, ranks, dtype = (options[name] for name in ("shape", "experts", "ranks", "dtype"))

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).to(dtype).to(device)

    ids = random_ids(options["tokens"], options["slots"], experts, options["spread"], seed)
    tile_rows = TILE_ROWS if device == "cuda" else options["tile_rows"]
    order = sort_by_expert(ids.to(device), experts, tile_rows=tile_rows)
    outputs, reduction = (columns, rows) if options["transposed"] else (rows, columns)
    weight = _weight(options, dtype, device, seed)
    scale_E = op.expert_scales(weight)
    x = quantize_rows(draw(options["tokens"] if options["by_token"] else order.positions, reduction))
    narrow = draw(order.positions, ranks) if ranks else None
    adapter: torch.Tensor | None = None
    if ranks and options["transposed"]:
        adapter = draw(experts, ranks, outputs).transpose(1, 2)
    elif ranks:
        adapter = draw(experts, outputs, ranks)
    words: dict[str, Any] = {"narrow_PR": narrow, "adapter_ENR": adapter}
    words |= {"bias_EN": draw(experts, outputs) if options["bias"] else None}
    words |= {name: options[name] for name in ("by_token", "transposed")}
    buffers = StridedBuffers(order.positions, options["padding"], dtype, device)
    found = op.grouped_codes(x, weight, scale_E, order, out=buffers.new(outputs), **words)
    scratch = torch.empty(2 * rows * columns + 3, dtype=CODES, device=device)
    again = op.grouped_codes(x, weight, scale_E, order, dtype=dtype, scratch=scratch, **words)
    if buffers.spoiled() or not torch.equal(found, again):
        return math.inf
    exact = torch.empty(found.shape, dtype=torch.float64, device=device)
    reference.grouped_codes(x.codes, x.scale, weight, scale_E, order, exact, **words, dtype=torch.float64)
    if found.is_cpu:
        exact = rounded(exact.float(), dtype)
    error = float((found.double() - exact.double()).norm() / exact.double().norm())
    return math.inf if math.isnan(error) else error


def _weight(
    options: dict[str, Any], dtype: torch.dtype, device: str, seed: int
) -> torch.Tensor | Packed | CodedExperts:
    """Make random experts; one of them 2^12 times as large, whose scale the others must not have."""
    from burnish_kernels.grouped_codes import reference

    experts, (rows, columns) = options["experts"], options["shape"]
    if options["storage"] not in {"dense", "codes"}:
        return random_stack(options["storage"], experts, rows, columns, device, seed)
    weight = torch.randn(experts, rows, columns, generator=torch.Generator().manual_seed(seed + 1)) * columns**-0.5
    weight[1] *= 2.0**12
    if options["storage"] == "dense":
        return weight.to(dtype).to(device)
    scale = reference.expert_scales(weight)
    return CodedExperts(reference.unpack_codes(weight, scale, 0, experts).to(device), scale.to(device))


def compilations() -> list[Compilation]:
    """List codes of each storage in both directions, and the product's tiles with blocks filled or not.

    What fp16 needs is what bf16 needs, and what an adapter needs is more than without one: those are compiled once.
    """
    from burnish_kernels.grouped_codes import kernel

    found = []
    tiles = {False: (kernel.ROWS, kernel.COLUMNS), True: (kernel.TURNED_ROWS, kernel.TURNED_COLUMNS)}
    held = {"dense": ("*bf16", "*fp32"), "mxfp4": ("*u8", "*u8"), "codes": ("*u8", "*fp32")}
    for storage, (pointer, scale) in held.items():
        for transposed, (rows, columns) in tiles.items():
            signature = {"weight_ptr": pointer, "scale_ptr": scale, "expert_scale_ptr": "*fp32"}
            signature |= {"out_ptr": "*u8" if storage == "codes" else "*fp8e4nv"}
            signature |= dict.fromkeys(("first", "N", "K", "weight_stride"), "i32")
            constants = {"STORAGE": storage, "TRANSPOSED": transposed, "ROWS": rows, "COLUMNS": columns}
            constants |= {"INTERPRETED": False}
            name = f"codes-{storage}{'-transposed' * transposed}"
            function = kernel.unpack_codes_kernel
            found.append(Compilation(name, function, signature, constants, kernel.WARPS, capabilities=FP8_CAPABILITIES))
    found += [_picking_compilation(transposed=transposed) for transposed in (False, True)]
    others = tuple(one for one in FP8_CAPABILITIES if one not in HOPPERS)
    for tile, capabilities in ((OTHERS, others), (HOPPER, HOPPERS)):
        compiled = partial(_compilation, kernel.grouped_codes_kernel, tile=tile, capabilities=capabilities)
        for transposed in (False, True):
            found += [compiled("bf16", transposed=transposed, even=even) for even in (True, False)]
        found.append(compiled("fp16", transposed=False, even=True))
    for tile in HOPPER_CANDIDATES:
        found.append(_compilation(kernel.grouped_codes_kernel, "bf16", tile, HOPPERS, transposed=False, even=True))
    return list({one.name: one for one in found}.values())  # a candidate is the choice


def _picking_compilation(*, transposed: bool) -> Compilation:
    """Describe the codes of NF4, whose PTX must permute bytes by a register: other permutations' are constants."""
    from burnish_kernels.grouped_codes.nf4 import kernel

    rows, columns = (kernel.TURNED_ROWS, kernel.TURNED_COLUMNS) if transposed else (kernel.ROWS, kernel.COLUMNS)
    signature = {"packed_ptr": "*i32", "out_ptr": "*u8" if transposed else "*i32"}
    signature |= dict.fromkeys(("scale_ptr", "expert_scale_ptr"), "*fp32")
    signature |= dict.fromkeys(("first", "N", "K"), "i32")
    return Compilation(
        f"codes-nf4{'-transposed' * transposed}",
        kernel.nf4_codes_kernel,
        signature,
        {"TRANSPOSED": transposed, "ROWS": rows, "COLUMNS": columns, "INTERPRETED": False},
        kernel.WARPS,
        capabilities=FP8_CAPABILITIES,
        instructions=dict.fromkeys(FP8_CAPABILITIES, r"prmt\.b32\s+\S+ \S+ \S+ (?!0x)\S+;"),
    )


def _compilation(
    function: Any,
    kind: str,
    tile: EightBitTile,
    capabilities: Sequence[int],
    *,
    transposed: bool,
    even: bool,
) -> Compilation:
    signature = dict.fromkeys(("x_ptr", "codes_ptr"), "*fp8e4nv") | dict.fromkeys(("x_scale_ptr", "scale_ptr"), "*fp32")
    signature |= dict.fromkeys(("narrow_ptr", "adapter_ptr", "bias_ptr", "out_ptr"), f"*{kind}")
    signature |= dict.fromkeys(("order_ptr", "offsets_ptr", "tiles_ptr", "tile_starts_ptr"), "*i32")
    one = "adapter_output" if transposed else "adapter_rank"  # a stride of one is a constant, as in a launch
    numbers = ["N", "C", "R", "x_stride", "narrow_stride", "adapter_expert", "out_stride", "slots", "first_expert"]
    numbers += ["experts", "adapter_rank" if transposed else "adapter_output"]
    signature |= dict.fromkeys(numbers, "i32")
    constants = {
        one: 1,
        "GATHER": True,
        "HAS_ADAPTER": True,
        "HAS_BIAS": not transposed,
        "EVEN": even,
        "BLOCK_M": tile.tokens,
        "BLOCK_N": tile.outputs,
        "BLOCK_C": tile.reduction,
        "BLOCK_R": rank_block(16),
        "PARTS": tile.parts,
        "GROUP": tile.group,
        "IMPRECISE": short_columns(tile, CODES),
        "INTERPRETED": False,
    }
    words = {"transposed": transposed, "even": even, "promoted": tile.promoted}
    name = f"product-{kind}-{tile.tokens}x{tile.outputs}x{tile.reduction}-w{tile.warps}-s{tile.stages}"
    return Compilation(
        "-".join([name, *(word for word, said in words.items() if said)]),
        function,
        signature,
        constants,
        tile.warps,
        tile.stages,
        tuple(capabilities),
        tile.registers,
        instructions=INSTRUCTIONS[CODES],
    )


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List the first map of published models' experts and its input's gradient, at 16,384 tokens, from NF4 or MXFP4."""
    from burnish_kernels.eight_bit_linear.op import quantize_rows
    from burnish_kernels.grouped_codes import op

    if not use_eight_bit_kernels(torch.empty(0, device=device)):
        return
    for name, (experts, slots, hidden, size) in MODELS.items():
        order = sort_by_expert(random_ids(16384, slots, experts, "even").to(device), experts)
        weight = random_stack(
            "mxfp4" if name.startswith("gpt-oss") else "nf4-double", experts, 2 * size, hidden, device
        )
        scale_E = op.expert_scales(weight)
        x = quantize_rows(torch.randn(16384, hidden, device=device).bfloat16())
        dy = quantize_rows(torch.randn(order.positions, 2 * size, device=device).bfloat16())
        scratch = torch.empty(experts * 2 * size * hidden, dtype=CODES, device=device)
        flops = 2 * order.positions * hidden * 2 * size
        for rows, transposed in ((x, False), (dy, True)):
            out = torch.empty(order.positions, hidden if transposed else 2 * size, device=device, dtype=torch.bfloat16)
            words = {"by_token": not transposed, "transposed": transposed, "out": out, "scratch": scratch}
            run = partial(op.grouped_codes, rows, weight, scale_E, order, **words)
            moved = rows.codes.nbytes + scratch.nbytes * 5 // 2 + out.nbytes
            yield Benchmark(f"gate-up-{name}{'-dx' * transposed}", run, None, bytes=moved, flops=flops)
