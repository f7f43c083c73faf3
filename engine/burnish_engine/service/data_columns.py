"""List the columns of the first data file and every way to read them, for a person who must choose."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from burnish_engine.contract.errors import DataError, UsageError
from burnish_engine.contract.facts.data_report import ColumnReading, FileColumns, Setting
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.files.discover import find_parts
from burnish_engine.data.files.formats import parsed
from burnish_engine.data.files.problems import BrokenRowError, shorten
from burnish_engine.data.files.read import Table, no_rows
from burnish_engine.data.report.describe import readable
from burnish_engine.data.rows.column_readings import CandidateReading, columns_of, find_readings
from burnish_engine.data.rows.recognize import recognize
from burnish_engine.data.rows.shapes import MEANINGS, OPTIONAL_MEANINGS

_ROWS = 1000  # the detection of a shape reads as many
_LETTERS = 120
_SHOWN_ROWS, _CELL_LETTERS = 20, 240  # rows and letters of a cell that a table shows


def file_columns(data: DataSection) -> FileColumns:
    """Describe the first file only, with no setting of the recipe but its encoding.

    Raises:
        UsageError: The recipe names no files.
        DataError: The first file cannot be read.
    """
    if not data.files:
        raise UsageError("The recipe names no training files.", "Set data.files.")
    parts = find_parts(data.files[:1]).parts
    if not parts:
        raise no_rows(data.files[0])
    rows = list(islice(_whole_rows(Table(parts[0], data.encoding)), _ROWS))
    if not rows:
        raise DataError(f"No row of {parts[0].name} can be read.", "Check the file and data.encoding.")
    found = find_readings(rows)
    try:
        recognize(rows, parts[0].name, found=found)
        question = ""
    except DataError as error:
        question = error.what
    return FileColumns(
        file=parts[0].name,
        columns={name: _shown(rows, name) for name in columns_of(rows)},
        readings=[_reading(one, rows) for one in found],
        question=question,
        needs={shape: _needs(shape, found) for shape in MEANINGS},
        may_have=list(OPTIONAL_MEANINGS),
        rows=[{name: shorten(readable(row[name]), _CELL_LETTERS) for name in row} for row in rows[:_SHOWN_ROWS]],
    )


def _needs(shape: str, found: list[CandidateReading]) -> list[str]:
    """List the meanings that a shape needs in this file, of the several sets that make it up."""
    meanings = {meaning for reading in found for meaning in reading.layout.columns if reading.layout.shape == shape}
    chats = any("conversation" in reading.layout.columns for reading in found)
    ways = MEANINGS[shape]
    fitting = [needed for needed in ways if meanings and set(needed) <= meanings]
    usual = [needed for needed in ways if ("conversation" in needed) == chats]
    return list(next(iter([*fitting, *usual, *ways])))


def _whole_rows(table: Table) -> Iterator[dict[str, Any]]:
    """Yield rows that can be read; the inspection reports the broken ones."""
    for number, text in islice(table.raw(), 2 * _ROWS):
        if isinstance(text, str):
            try:
                yield parsed(text, table.part.name, number)
            except BrokenRowError:
                continue


def _shown(rows: list[dict[str, Any]], column: str) -> str:
    return next((shorten(row[column], _LETTERS) for row in rows if row.get(column) not in (None, "", [])), "")


def _reading(reading: CandidateReading, rows: list[dict[str, Any]]) -> ColumnReading:
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
