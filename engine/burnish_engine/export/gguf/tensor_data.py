"""Read a GGUF file's tensors, a few rows at a time, so that memory stays bounded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from burnish_engine.advise.facts.gguf_size import block_size
from burnish_engine.contract.errors import SetupError
from burnish_engine.export.gguf.block_formats import Codes, Floats, dequantize
from burnish_engine.models.checkpoint.gguf_file.header import GgufHeader, TensorShape

PIECE = 4 * 1024 * 1024
"""Number of values that are read at a time."""


def row_pieces(
    path: Path, header: GgufHeader, tensor: TensorShape, rows: range | None = None
) -> Iterator[tuple[Codes, Floats]]:
    """Yield a tensor's rows, at most `PIECE` / row at a time: bytes [rows, bytes of a row], and fp32 [rows, row].

    The file is open only during a read.

    Args:
        path: The file.
        header: header of the file.
        tensor: one of the header's tensors.
        rows: rows to read, of all matrices of a stack numbered through; None: all.

    Raises:
        SetupError: The file ends before the tensor does, or the rows do not fill the type's blocks.
        NotImplementedError: gguf cannot dequantize this type.
    """
    block, block_bytes = block_size(tensor.type)
    if tensor.row % block:
        raise SetupError(
            f"{path} is damaged: {tensor.name} has rows of {tensor.row}, which {tensor.type} cannot hold.",
            "Make or download the file again.",
        )
    row_bytes = tensor.row // block * block_bytes
    rows = range(math.prod(tensor.shape[:-1])) if rows is None else rows
    step = max(PIECE // max(tensor.row, 1), 1)
    start = header.data_start + header.offsets[tensor.name]
    for first in rows[::step]:
        count = min(step, rows.stop - first)
        raw = _read(path, start + first * row_bytes, count * row_bytes, tensor.name).reshape(count, row_bytes)
        yield raw, dequantize(raw, tensor.type)


def _read(path: Path, start: int, count: int, name: str) -> Codes:
    with path.open("rb") as file:
        file.seek(start)
        raw = np.fromfile(file, dtype=np.uint8, count=count)
    if len(raw) < count:
        raise SetupError(
            f"{path} is damaged: it ends {count - len(raw)} bytes before {name} does.",
            "Make or download the file again.",
        )
    return raw
