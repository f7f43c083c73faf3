"""Describes the columns of a file: how they are read, and every other way to read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.facts.data_report import ColumnReading, FileColumns, Setting
from burnish_engine.data.files.problems import shorten
from burnish_engine.data.report.describe import readable
from burnish_engine.data.rows.column_readings import CandidateReading, columns_of, find_readings
from burnish_engine.data.rows.part_rows import RowSource
from burnish_engine.data.rows.recognize import recognize

FROM_RECIPE = "as the recipe says"
"""Explanation of a column reading that the recipe sets."""
_EXAMPLE_LETTERS = 200


def column_readings(source: RowSource) -> list[ColumnReading]:
    """List the ways to read a part's columns, the one in use first, each with an example."""
    in_use = source.layout
    same = [(one.layout.shape, one.layout.columns) == (in_use.shape, in_use.columns) for one in source.readings]
    used = [reading for reading, equal in zip(source.readings, same, strict=True) if equal and not in_use.from_recipe]
    others = [reading for reading, equal in zip(source.readings, same, strict=True) if not equal]
    chosen = used or [CandidateReading(in_use, 1.0, FROM_RECIPE)]
    example = next(iter(source.values()), {})
    return [_reading(reading, [example]) for reading in [*chosen[:1], *others[:4]]]


def file_columns(file: str, rows: Sequence[dict[str, Any]]) -> FileColumns:
    """Describe the columns of a file and every way to read them, whatever the recipe says.

    Args:
        file: name of the file.
        rows: its first rows as column to value, at least one.
    """
    found = find_readings(rows)
    try:
        recognize(rows, file, found=found)
        question = ""
    except DataError as error:
        question = error.what
    return FileColumns(
        file=file,
        columns={name: _shown(rows, name) for name in columns_of(rows)},
        readings=[_reading(one, rows) for one in found],
        question=question,
    )


def _shown(rows: Sequence[dict[str, Any]], column: str) -> str:
    """Return the first value that a column has, shortened."""
    values = (row[column] for row in rows if row.get(column) not in (None, "", []))
    return next((shorten(readable(value), _EXAMPLE_LETTERS) for value in values), "")


def _reading(reading: CandidateReading, rows: Sequence[dict[str, Any]]) -> ColumnReading:
    shape, columns = reading.layout.shape, reading.layout.columns
    pairs = [f"{meaning}={name}" for meaning, name in columns.items()]
    return ColumnReading(
        shape=shape,
        columns=columns,
        confidence=round(reading.confidence, 3),
        says=reading.why,
        example={meaning: _shown(rows, name) for meaning, name in columns.items()},
        settings=[
            Setting(key="data.shape", value=shape, says="reads it so"),
            Setting(key="data.columns", value=pairs, says="says which"),
        ],
    )
