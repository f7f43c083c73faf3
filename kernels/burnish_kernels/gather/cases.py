"""Test cases, compilations and benchmarks of gathering rows."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from burnish_kernels.registry import Benchmark, Case, Compilation

TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
SHAPES = ((1, 1, 16), (7, 5, 576), (13, 31, 1000), (320, 64, 96), (5, 9, 5120))


def cases() -> list[Case]:
    """List shapes, dtypes, both kinds of ids, strided rows, a table on the host, far offsets. Copies are exact."""
    found = [_case(*shape, dtype) for shape in SHAPES for dtype in TYPES]
    found += [_case(40, 17, 320, dtype, ids=torch.int64, padding=24) for dtype in TYPES]
    found += [_case(300, 70, 2560, dtype, host=True, gpu_only=True) for dtype in TYPES]
    # The last row begins 2^31 elements behind the first.
    far = {"ids": torch.int32, "padding": (1 << 30) - 96}
    return [*found, _case(3, 4, 96, torch.bfloat16, **far, gpu_only=True)]


def _case(
    vocabulary: int,
    rows: int,
    columns: int,
    dtype: torch.dtype,
    *,
    ids: torch.dtype = torch.int32,
    padding: int = 0,
    host: bool = False,
    gpu_only: bool = False,
) -> Case:
    words = {"int64": ids == torch.int64, f"padding{padding}": padding, "host": host}
    parts = [
        f"{vocabulary}x{columns}x{rows}",
        str(dtype).removeprefix("torch."),
        *(word for word in words if words[word]),
    ]
    options = {"vocabulary": vocabulary, "rows": rows, "columns": columns, "dtype": dtype, "ids": ids}
    return Case("-".join(parts), 0.0, options | {"padding": padding, "host": host}, gpu_only=gpu_only)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst difference between kernel and reference, which is 0: nothing is computed.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where something beside the output was written.
    """
    from burnish_kernels.gather import op, reference

    options = case.options
    generator = torch.Generator().manual_seed(seed)
    vocabulary, rows, columns, padding = (options[name] for name in ("vocabulary", "rows", "columns", "padding"))
    values = torch.randn(vocabulary, columns, generator=generator).to(options["dtype"])
    ids = torch.randint(vocabulary, (rows,), generator=generator, dtype=options["ids"])
    ids[-1] = vocabulary - 1
    if options["host"]:
        table = values.pin_memory()
    else:
        size = (vocabulary - 1) * (columns + padding) + columns
        table = torch.empty(size, dtype=options["dtype"], device=device)
        table = table.as_strided((vocabulary, columns), (columns + padding, 1)).copy_(values)
    beside = min(padding, 24)
    whole = torch.full((rows, columns + beside), math.nan, dtype=options["dtype"], device=device)
    found = op.gather_rows(table, ids.to(device), out=whole[:, :columns])
    if bool(whole[:, columns:].isfinite().any()):
        return math.inf
    error = float((found.cpu().double() - reference.gather_rows(values.double(), ids)).abs().max())
    return math.inf if math.isnan(error) else error


def compilations() -> list[Compilation]:
    """List blocks of every size in use, with both kinds of ids."""
    from burnish_kernels.gather import kernel

    found = []
    for pointer in TYPES.values():
        for columns in (128, 1024, 2048, 4096):
            for ids in ("*i32", "*i64"):
                block = kernel.block_columns(columns)
                signature = {"table_ptr": pointer, "ids_ptr": ids, "out_ptr": pointer}
                signature |= dict.fromkeys(("H", "table_stride", "out_stride"), "i32") | {"BLOCK": "constexpr"}
                name = f"gather-{block}-{pointer[1:]}-{ids[1:]}"
                found.append(
                    Compilation(name, kernel.gather_kernel, signature, {"BLOCK": block}, num_warps=kernel.WARPS)
                )
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List the embeddings of a micro-batch, from the device's memory and from the host's."""
    rows, vocabulary, columns = 16384, 128256, 4096
    ids = torch.randint(vocabulary, (rows,), device=device, dtype=torch.int32)
    moved = 2 * rows * columns * 2
    for place in ("device", "host"):
        table = torch.zeros(vocabulary, columns, dtype=torch.bfloat16, device=device if place == "device" else "cpu")
        if place == "host" and device != "cpu":
            table = table.pin_memory()
        out = torch.empty(rows, columns, dtype=torch.bfloat16, device=device)
        yield _benchmark(f"{place}-{rows}x{columns}", table, ids, out, moved)


def _benchmark(name: str, table: torch.Tensor, ids: torch.Tensor, out: torch.Tensor, moved: int) -> Benchmark:
    from burnish_kernels.gather import op, reference

    def run() -> object:
        return op.gather_rows(table, ids, out)

    def plain() -> object:
        return reference.gather_rows(table, ids)

    return Benchmark(name, run, plain if table.device == ids.device else None, bytes=moved)
