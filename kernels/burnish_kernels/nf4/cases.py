"""Test cases, compilations and benchmarks of NF4."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.dispatch import rounded
from burnish_kernels.eight_bit_linear.quantize.cases import SCALE_ERROR, SHARE
from burnish_kernels.eight_bit_linear.rows import CODES, INT8
from burnish_kernels.eight_bit_linear.tiles import CAPABILITIES_OF, use_eight_bit_kernels
from burnish_kernels.registry import Benchmark, Case, Compilation

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# Rows and columns: blocks inside rows, over row ends (40, 65), an odd count of values, a short last block, more blocks
# than one nested block of 256, one value.
SHAPES = ((3, 64), (17, 320), (8, 40), (64, 65), (5, 13), (130, 192), (1, 1), (2, 6))

BENCHMARKS = {"4096x4096": (4096, 4096), "12288x4096": (12288, 4096), "9728x2560": (9728, 2560), "576x576": (576, 576)}
CODE_SHAPES = ((130, 192), (8, 40), (5, 13))

CODE_NAMES = {CODES: "e4m3", INT8: "int8"}
RANK = 32  # rank of the adapters beside a benchmark's weight


def cases() -> list[Case]:
    """List every shape, dtype and kind of scale; the result alone or part of a larger buffer. Values must be equal.

    E4M3 and INT8 are written in both orientations, from rows that are whole words and from others; E4M3 also with a
    scale for each tile of a larger weight.
    """
    found = [
        Case(
            name=f"{rows}x{columns}-{str(dtype).removeprefix('torch.')}{'-double' * double}{'-view' * view}",
            tolerance=0.0,
            options={"shape": (rows, columns), "dtype": dtype, "double": double, "view": view},
        )
        for rows, columns in SHAPES
        for dtype in DTYPES
        for double, view in ((True, True), (True, False), (False, True))
    ]
    for (rows, columns), (codes, called) in itertools.product(CODE_SHAPES, CODE_NAMES.items()):
        for double, transposed in ((True, True), (True, False), (False, True)):
            name = f"{rows}x{columns}-{called}{'-double' * double}{'-transposed' * transposed}"
            options = {"shape": (rows, columns), "dtype": codes, "double": double, "transposed": transposed}
            found.append(Case(name, 0.0, options))
    for first, transposed in ((0, False), (6, True), (6, False)):
        options = {"shape": (130, 192), "dtype": CODES, "double": True, "transposed": transposed, "first_row": first}
        found.append(Case(f"130x192-e4m3-tiles-{first}{'-transposed' * transposed}", 0.0, options))
    for rows, columns, rotation, transposed in ((130, 192, 64, False), (130, 192, 64, True), (7, 96, 32, False)):
        options = {"shape": (rows, columns), "dtype": INT8, "double": True, "transposed": transposed}
        name = f"{rows}x{columns}-int8-rotated-{rotation}{'-transposed' * transposed}"
        found.append(Case(name, SHARE, options | {"rotation": rotation}))
    large = {"shape": (1 << 19, 4160), "dtype": torch.bfloat16, "double": True, "view": True}
    return [*found, Case(name="past-2^31", tolerance=0.0, options=large, gpu_only=True)]


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the relative L2 error against the reference on the same device; NaN if a view's surroundings changed.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random bytes.
    """
    from burnish_kernels.nf4 import op

    options = case.options
    (rows, columns), dtype = options["shape"], options["dtype"]
    weight = random_weight(rows, columns, device, options["double"], seed)
    if options.get("rotation"):
        return _compare_rotated(weight, transposed=options["transposed"], rotation=options["rotation"])
    if dtype in CODE_NAMES:
        return _compare_codes(weight, dtype, transposed=options["transposed"], first_row=options.get("first_row"))
    margin = 16 if options["view"] else 0
    buffer = torch.full((rows + margin, columns + margin), torch.nan, dtype=dtype, device=device)
    op.dequantize(weight, dtype=dtype, out=buffer[:rows, :columns])
    if not (buffer[rows:].isnan().all() and buffer[:, columns:].isnan().all()):
        return float("nan")
    error, size = 0.0, 0.0
    for found, exact in _slices(weight, buffer[:rows, :columns]):
        error += float((found.double() - exact.double()).square().sum())
        size += float(exact.double().square().sum())
    return (error / size) ** 0.5 if size else error


def _compare_codes(weight: Any, kind: torch.dtype, *, transposed: bool, first_row: int | None) -> float:
    """Return 0 where codes are those of the reference and nothing beside them was written, else infinity.

    Args:
        weight: quantized weight.
        kind: type of the codes.
        transposed: whether the transposed codes are written.
        first_row: number of the weight's first row in a larger one, whose tiles have scales; None: its rows have.
    """
    from burnish_kernels.eight_bit_linear.reference import quantize_rows
    from burnish_kernels.nf4 import op

    values = torch.cat([exact for _, exact in _slices(weight, torch.empty(weight.shape, device=weight.device))])
    if first_row is None:
        codes, scale = quantize_rows(values, None, kind)
        same = torch.equal(op.eight_bit_row_scale(weight, kind), scale)
    else:
        # Exact powers of two, with which no value is beyond E4M3: what becomes of that is not defined.
        scale = torch.exp2(torch.arange(5.0 * values.shape[1] // 32) % 7 - 8).view(5, -1).to(values.device)
        assert float(values.abs().max()) < 448 * float(scale.min())
        tiles = scale.repeat_interleave(32, dim=0).repeat_interleave(32, dim=1)
        codes, same = (values / tiles[first_row : first_row + len(values)]).to(kind), True
    rows, columns = weight.shape[::-1] if transposed else weight.shape
    buffer = torch.full((rows, columns + 16), 9, dtype=torch.uint8, device=weight.device)
    out = buffer[:, :columns].view(kind)
    op.eight_bit_codes(weight, scale, out, transposed=transposed, first_row=first_row or 0)
    expected = codes.view(torch.uint8)
    same = same and torch.equal(out.view(torch.uint8), expected.t() if transposed else expected)
    return 0.0 if same and bool((buffer[:, columns:] == 9).all()) else math.inf


def _compare_rotated(weight: Any, *, transposed: bool, rotation: int) -> float:
    """Return the share of codes that are the next one, as sums in another order make them; else infinity."""
    from burnish_kernels.eight_bit_linear.reference import quantize_rows
    from burnish_kernels.nf4 import op

    values = torch.cat([exact for _, exact in _slices(weight, torch.empty(weight.shape, device=weight.device))])
    codes, scale = quantize_rows(values, None, INT8, rotation)
    found = op.eight_bit_row_scale(weight, INT8, rotation=rotation)
    rows, columns = weight.shape[::-1] if transposed else weight.shape
    buffer = torch.full((rows, columns + 16), 9, dtype=INT8, device=weight.device)
    op.eight_bit_codes(weight, found, buffer[:, :columns], transposed=transposed, rotation=rotation)
    away = (buffer[:, :columns].int() - (codes.t() if transposed else codes).int()).abs()
    wrong = bool(((found - scale) / scale).abs().max() > SCALE_ERROR) or int(away.max()) > 1
    return math.inf if wrong or not bool((buffer[:, columns:] == 9).all()) else float(away.float().mean())


def random_weight(rows: int, columns: int, device: str, double: bool, seed: int = 0) -> Any:
    """Make an `Nf4` of random bytes with scales like those of weights."""
    from burnish_kernels.nf4 import op, reference

    generator = torch.Generator(device).manual_seed(seed)
    blocks = -(rows * columns // -reference.BLOCK)

    def draw(size: int) -> torch.Tensor:
        return torch.randint(0, 256, (size,), dtype=torch.uint8, device=device, generator=generator)

    def uniform(size: int) -> torch.Tensor:
        return torch.rand(size, device=device, generator=generator)

    packed = draw(-(rows * columns // -2))
    if not double:
        return op.Nf4(packed, (rows, columns), absmax=uniform(blocks) * 0.1)
    return op.Nf4(
        packed,
        (rows, columns),
        absmax_q=draw(blocks),
        nested_absmax=uniform(-(blocks // -reference.NESTED_BLOCK)) * 0.05,
        code256=reference.dynamic_map().to(device),
        offset=uniform(1) * 0.1,
    )


def _slices(weight: Any, found_NK: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the result and the reference, some rows at a time where there are many."""
    from burnish_kernels.nf4 import reference

    rows, columns = weight.shape
    scale = weight.absmax
    if weight.double:
        scale = reference.dequantize_scales(weight.absmax_q, weight.nested_absmax, weight.code256, weight.offset)
    step = rows if columns % reference.BLOCK else max(1, (1 << 26) // columns)
    for first in range(0, rows, step):
        start, count = first * columns, min(step, rows - first) * columns
        values = reference.dequantize(
            weight.packed[start // 2 : -((start + count) // -2)],
            scale[start // reference.BLOCK : -((start + count) // -reference.BLOCK)],
            count,
            torch.float32,
        )
        yield found_NK[first : first + step], rounded(values, found_NK.dtype).view(-1, columns)


def compilations() -> list[Compilation]:
    """List both dequantizations for each dtype and kind of scale, codes in each orientation, and the paste."""
    from burnish_kernels.nf4 import kernel

    found = []
    for dtype in ("fp32", "fp16", "bf16"):
        for double in (True, False):
            shared = {
                "absmax_ptr": "*u8" if double else "*fp32",
                "nested_ptr": "*fp32" if double else "*u8",
                "code_ptr": "*fp32" if double else "*u8",
                "offset_ptr": "*fp32" if double else "*u8",
                "out_ptr": f"*{dtype}",
                "out_stride": "i32",
            }
            name = f"{dtype}-{'double' if double else 'single'}"
            words = shared | {"packed_ptr": "*i32", "word_count": "i32", "row_words": "i32"}
            constants = {"DOUBLE": double, "WORDS": kernel.WORDS}
            found.append(Compilation(f"words-{name}", kernel.dequantize_words_kernel, words, constants))
            values = shared | {"packed_ptr": "*u8", "count": "i64", "K": "i32"}
            constants = {"DOUBLE": double, "BLOCK": kernel.BLOCK}
            found.append(Compilation(f"values-{name}", kernel.dequantize_values_kernel, values, constants))
            if dtype == "fp32":
                found += _code_compilations(shared | words, "double" if double else "single")
        pointers = dict.fromkeys(("buffer_ptr", "a_ptr", "b_ptr"), f"*{dtype}")
        numbers = ("N", "K", "R", "buffer_stride", "a_row", "a_column", "b_row", "b_column", "a_programs")
        signature = pointers | dict.fromkeys(numbers, "i32")
        found.append(Compilation(f"paste-{dtype}", kernel.paste_kernel, signature, {"BLOCK": kernel.PASTE}))
    return found


def _code_compilations(signature: dict[str, str], name: str) -> list[Compilation]:
    from burnish_kernels.nf4 import kernel
    from burnish_kernels.nf4.reference import TILE

    signature = {key: kind for key, kind in signature.items() if key != "word_count"}
    signature |= {"scale_ptr": "*fp32", "N": "i32", "first_row": "i32"}
    tile = {"ROWS": kernel.CODE_ROWS, "WORDS": kernel.CODE_WORDS, "DOUBLE": name == "double", "INTERPRETED": False}
    return [
        Compilation(
            f"{CODE_NAMES[codes]}-{name}{'-transposed' * transposed}{'-tiles' * bool(tiles)}{'-rotated' * bool(turn)}",
            kernel.encode_kernel,
            signature | {"out_ptr": pointer},
            tile | {"TRANSPOSED": transposed, "TILE": tiles, "ROTATION": turn},
            kernel.CODE_WARPS,
            capabilities=CAPABILITIES_OF[codes],
        )
        for codes, pointer, tiles, turn in (
            (CODES, "*fp8e4nv", 0, 0),
            (CODES, "*fp8e4nv", TILE, 0),
            (INT8, "*i8", 0, 0),
            (INT8, "*i8", 0, 64),
        )
        for transposed in (False, True)
    ]


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List dequantization into an extended buffer, and the paste of a LoRA's matrices around it.

    Args:
        device: device to make the tensors on.
    """
    from burnish_kernels.nf4 import op, reference

    for name, (rows, columns) in BENCHMARKS.items():
        weight = random_weight(rows, columns, device, double=True)
        buffer = torch.zeros(rows + RANK, columns + RANK, dtype=torch.bfloat16, device=device)
        out = buffer[:rows, :columns]

        def plain(weight: Any = weight, out: torch.Tensor = out) -> None:
            scale = reference.dequantize_scales(weight.absmax_q, weight.nested_absmax, weight.code256, weight.offset)
            out.copy_(reference.dequantize(weight.packed, scale, out.numel(), out.dtype).view(out.shape))

        def run(weight: Any = weight, out: torch.Tensor = out) -> None:
            op.dequantize(weight, dtype=torch.bfloat16, out=out)

        yield Benchmark(f"dequantize-{name}-bf16", run, plain, weight.nbytes + 2 * rows * columns)
        for codes in CODE_NAMES:
            if use_eight_bit_kernels(weight.packed, codes):
                yield from _code_benchmarks(name, weight, codes)
        a = torch.randn(RANK, columns, dtype=torch.bfloat16, device=device)
        b = torch.randn(rows, RANK, dtype=torch.bfloat16, device=device)

        def paste(buffer: torch.Tensor = buffer, a: torch.Tensor = a, b: torch.Tensor = b) -> None:
            op.paste(buffer, b.shape[0], a.shape[1], a, b)

        def copies(buffer: torch.Tensor = buffer, a: torch.Tensor = a, b: torch.Tensor = b) -> None:
            buffer[b.shape[0] :, : a.shape[1]] = a
            buffer[: b.shape[0], a.shape[1] :] = b

        yield Benchmark(f"paste-{name}-bf16", paste, copies, 2 * (a.nbytes + b.nbytes))


def _code_benchmarks(name: str, weight: Any, kind: torch.dtype) -> Iterator[Benchmark]:
    from burnish_kernels.eight_bit_linear.reference import encode
    from burnish_kernels.nf4 import op

    scale = op.eight_bit_row_scale(weight, kind)
    for transposed in (False, True):
        shape = weight.shape[::-1] if transposed else weight.shape
        out = torch.empty(shape, dtype=kind, device=weight.device)

        def run(out: torch.Tensor = out, transposed: bool = transposed) -> None:
            op.eight_bit_codes(weight, scale, out, transposed=transposed)

        def plain(out: torch.Tensor = out, transposed: bool = transposed) -> None:
            codes = encode(op.dequantize(weight, dtype=torch.float32), scale, kind)
            out.copy_(codes.t() if transposed else codes)

        label = f"{CODE_NAMES[kind]}-{name}{'-transposed' * transposed}"
        yield Benchmark(label, run, plain, weight.nbytes + out.nbytes)
