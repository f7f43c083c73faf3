"""The rows of a data file as column to value, read as the pipeline reads them."""

from pathlib import Path
from typing import NamedTuple

from burnish_engine.data.files.discover import find_parts
from burnish_engine.data.files.formats import parsed
from burnish_engine.data.files.problems import BrokenRowError
from burnish_engine.data.files.read import Table, no_rows


class ReadRow(NamedTuple):
    """One row: its number in the file, and column to value."""

    number: int
    values: dict


def table_rows(part, encoding="utf-8"):
    """Yield the rows of a part; raise the error of a broken one."""
    for number, text in Table(part, encoding).raw():
        if isinstance(text, BrokenRowError):
            raise text
        yield ReadRow(number, parsed(text, part.name, number))


def read_rows(path: Path, encoding="utf-8"):
    """Yield the rows of one file; raise the error of a file without rows."""
    part = find_parts([str(path)]).parts[0]
    if next(iter(Table(part, encoding).raw()), None) is None:
        raise no_rows(part.name)
    yield from table_rows(part, encoding)
