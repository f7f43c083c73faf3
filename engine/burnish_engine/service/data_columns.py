"""List the columns of a data file and every way to read them, for a person who must choose."""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.facts.data_report import ColumnReading, FileColumns, Setting
from burnish_engine.data.files.problems import shorten
from burnish_engine.data.rows.column_readings import CandidateReading, columns_of, find_readings
from burnish_engine.data.rows.recognize import recognize
from burnish_engine.data.rows.shapes import MEANINGS, OPTIONAL_MEANINGS

SAMPLE_ROWS = 1000
"""Rows that a reading is recognized from, as many as the detection of a shape reads."""
_LETTERS = 120


def described_columns(file: str, rows: list[dict[str, Any]]) -> FileColumns:
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
        needs={shape: _needs(shape, found) for shape in MEANINGS},
        may_have=list(OPTIONAL_MEANINGS),
    )


def _needs(shape: str, found: list[CandidateReading]) -> list[str]:
    """List the meanings that a shape needs in this file, of the several sets that make it up."""
    meanings = {meaning for reading in found for meaning in reading.layout.columns if reading.layout.shape == shape}
    chats = any("conversation" in reading.layout.columns for reading in found)
    ways = MEANINGS[shape]
    fitting = [needed for needed in ways if meanings and set(needed) <= meanings]
    usual = [needed for needed in ways if ("conversation" in needed) == chats]
    return list(next(iter([*fitting, *usual, *ways])))


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
