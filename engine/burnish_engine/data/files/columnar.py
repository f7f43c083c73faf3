"""Reads Parquet and Arrow files batch by batch; `typed_values` makes JSON values of theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from burnish_engine.contract.errors import DataError
from burnish_engine.data.files.discover import DatasetPart
from burnish_engine.data.files.problems import shorten
from burnish_engine.data.files.typed_values import Convert, converter
from burnish_engine.data.files.unpack import seekable

_BATCH_ROWS = 1000


def parquet_rows(part: DatasetPart, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield the rows of a Parquet file, numbered from 1, as JSON text.

    Raises:
        DataError: The file is damaged.
    """
    from pyarrow import parquet

    with (
        _named(part, "Parquet", encoding) as read,
        seekable(part) as stream,
        parquet.ParquetFile(stream, arrow_extensions_enabled=True) as file,
    ):
        yield from read(file.iter_batches(batch_size=_BATCH_ROWS))


def arrow_rows(part: DatasetPart, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield the rows of an Arrow or Feather file, numbered from 1, as JSON text.

    Arrow files may be in IPC's file format (with a footer) or in its stream format, which `datasets` saves.

    Raises:
        DataError: The file is damaged.
    """
    import pyarrow
    from pyarrow import ipc

    with _named(part, "Arrow", encoding) as read, seekable(part) as stream:
        begin = stream.read(6)
        stream.seek(0)
        if begin == b"ARROW1":
            with ipc.open_file(pyarrow.PythonFile(stream, mode="r")) as file:
                yield from read(file.get_batch(index) for index in range(file.num_record_batches))
        else:
            with ipc.open_stream(pyarrow.PythonFile(stream, mode="r")) as batches:
                yield from read(batches)


@contextmanager
def _named(part: DatasetPart, kind: str, encoding: str) -> Iterator[Any]:
    """Provide a function that numbers the rows of batches; where the file is damaged, the error names the last row."""
    import pyarrow

    damaged = (pyarrow.ArrowException, OSError, ValueError, KeyError, NotImplementedError, OverflowError)
    number = 0

    def error(cause: Exception) -> DataError:
        return DataError(
            f"{part.name} is not a whole {kind} file: {shorten(cause, 120)} (after {number} rows).",
            "Write or download the file again.",
        )

    def rows(batches: Any) -> Iterator[tuple[int, str]]:
        nonlocal number
        try:
            for whole in batches:
                names = whole.schema.names
                converters = [converter(field.type, field.name, encoding) for field in whole.schema]
                for start in range(0, whole.num_rows, _BATCH_ROWS):
                    columns = map(_values, whole.slice(start, _BATCH_ROWS).columns, converters)
                    for values in zip(*columns, strict=True):
                        number += 1
                        yield number, json.dumps(dict(zip(names, values, strict=True)))
        except damaged as cause:
            raise error(cause) from cause

    try:
        yield rows
    except PermissionError:
        raise
    except damaged as cause:
        raise error(cause) from cause


def _values(column: Any, convert: Convert | None) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]
