"""Parse each file format into rows, as (number, JSON text of an object). Every fault names its place.

Rows travel as JSON text because that keeps them exactly as they are: `load_dataset` would turn a column of ISO dates
into timestamps, "007" into 7 and the answer "NA" into null, needs one type a column, and reads brackets in a file's
name as a pattern.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import DataError
from burnish_engine.data.checks import text_lines, unreadable
from burnish_engine.data.problems import excerpt, shorten

NumberedJson = tuple[int, str]

CONVERSATION_COLUMNS = ("messages", "conversations", "conversation", "chat")
"""Column names under which chats are found."""

_LARGEST_CSV_FIELD = 2**31 - 1  # characters; csv's own limit is 131,072, and Windows' C long ends here
_PARQUET_BATCH_ROWS = 1000


def jsonl_rows(path: Path) -> Iterator[NumberedJson]:
    """Rows of a JSON Lines file, numbered by line; blank lines are skipped.

    Raises:
        DataError: A line is not a JSON object.
    """
    for number, line in text_lines(path):
        text = line.rstrip()
        if not text:
            continue
        value = _parse(text, path, number)
        if not isinstance(value, dict):
            remedy = "Every line must be one JSON object, such as {...}."
            if number == 1 and text.lstrip().startswith("["):
                remedy = "The file looks like one JSON list: give it the ending .json."
            raise DataError(f"Line {number} of {path} is {_kind(value)}, not an object: {shorten(text)}.", remedy)
        yield number, text


def json_rows(path: Path) -> Iterator[NumberedJson]:
    """Rows of a JSON file: a list of objects, or an object that holds exactly one list of objects. Numbered from 1.

    A file that is JSON Lines under a .json name is read as such.

    Raises:
        DataError: The file is not JSON, or of another form.
    """
    if _is_json_lines(path):
        yield from jsonl_rows(path)
        return
    text = "".join(line for _, line in text_lines(path))
    if not text.strip():
        return
    for number, item in enumerate(_list_of_objects(_parse(text, path), path), start=1):
        if not isinstance(item, dict):
            raise DataError(
                f"Item {number} of the list in {path} is {_kind(item)}, not an object: {shorten(item)}.",
                "Every item must be a JSON object, such as {...}.",
            )
        yield number, json.dumps(item)


def csv_rows(path: Path) -> Iterator[NumberedJson]:
    """Rows of a CSV file with a header, numbered by the line they begin on. Every value is text.

    Comma, semicolon or tab separates, whichever the header uses.

    Raises:
        DataError: The header has empty or repeated names, a row has another number of fields, or quotes are broken.
    """
    csv.field_size_limit(_LARGEST_CSV_FIELD)
    lines = (line for _, line in text_lines(path))
    blank, first = 0, ""
    for first in lines:
        if first.strip():
            break
        blank += 1
    reader = csv.reader(chain([first], lines), delimiter=_delimiter(path, first), strict=True)
    names: list[str] = []
    while True:
        begins = blank + reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(
                f"The row that begins in line {begins} of {path} is not valid CSV: {error}.",
                'Put fields that hold quotes, separators or line breaks into quotes, and double quotes inside: "".',
            ) from None
        if not fields or (len(fields) == 1 and not fields[0].strip()):
            continue
        if not names:
            names = _header(path, fields)
        elif len(fields) != len(names):
            raise DataError(
                f"Line {begins} of {path} has {_fields(len(fields))}, the header has {len(names)}: {shorten(fields)}.",
                "Put fields that hold separators or line breaks into quotes.",
            )
        else:
            yield begins, json.dumps(dict(zip(names, fields, strict=True)))


def parquet_rows(path: Path) -> Iterator[NumberedJson]:
    """Rows of a Parquet file, numbered from 1. Values that JSON does not know become text.

    Raises:
        DataError: The file is damaged.
    """
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with path.open("rb") as stream, parquet.ParquetFile(stream) as file:
            for batch in file.iter_batches(batch_size=_PARQUET_BATCH_ROWS):
                for record in batch.to_pylist():
                    number += 1
                    yield number, json.dumps(record, default=str)
    except PermissionError as error:
        raise unreadable(path, error) from error
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{path} is not a whole Parquet file: {shorten(error, 120)} (after {number} rows).",
            "Write or download the file again.",
        ) from error


def txt_rows(path: Path) -> Iterator[NumberedJson]:
    """Documents of a text file: runs of lines between blank lines, numbered by their first line."""
    begins, document = 0, list[str]()
    for number, line in chain(text_lines(path), [(0, "")]):
        if line.strip():
            begins = begins or number
            document.append(line.rstrip("\r\n"))
        elif document:
            yield begins, json.dumps({"text": "\n".join(document)})
            begins, document = 0, []


READERS: dict[str, Callable[[Path], Iterator[NumberedJson]]] = {
    "jsonl": jsonl_rows,
    "json": json_rows,
    "csv": csv_rows,
    "parquet": parquet_rows,
    "txt": txt_rows,
}
"""Format to its reader."""


def _parse(text: str, path: Path, line: int | None = None) -> Any:
    """The JSON value in a text; `line` is its line in the file, None where the text is the whole file."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {line or error.lineno}, column {error.colno}"
        lines = text.split("\n")
        shown = excerpt(lines[error.lineno - 1], error.colno - 1)
        remedy = "Correct that line, or remove it."
        if line == 1 and text.strip() in {"{", "["}:
            remedy = "The file looks like one JSON document over many lines: give it the ending .json."
        raise DataError(f"{path} is not valid JSON at {place}: {error.msg}, near `{shown}`.", remedy) from None
    except RecursionError:
        where = f"Line {line} of {path}" if line else str(path)
        raise DataError(f"{where} is nested too deeply to be data.", "Correct or remove it.") from None
    except ValueError as error:
        where = f"Line {line} of {path}" if line else str(path)
        raise DataError(f"{where} cannot be read: {shorten(error, 100)}.", "Correct or remove it.") from None


def _is_json_lines(path: Path) -> bool:
    """Whether the first line is an object of its own and another line follows."""
    filled = (line.strip() for _, line in text_lines(path) if line.strip())
    first, second = next(filled, ""), next(filled, "")
    if not (first.startswith("{") and second):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _list_of_objects(document: Any, path: Path) -> list[Any]:
    if isinstance(document, list):
        return document
    remedy = "Make the file a list of objects, [{...}, {...}], or JSON Lines."
    if not isinstance(document, dict):
        raise DataError(f"{path} holds {_kind(document)}, not a list of objects.", remedy)
    lists = [
        name
        for name, value in document.items()
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
    ]
    if len(lists) == 1:
        only = lists[0]
        # A file with a single chat: the list is the chat's turns, not the rows.
        return [document] if only.strip().lower() in CONVERSATION_COLUMNS else list(document[only])
    found = ", ".join(f"{shorten(name, 30)} ({_kind(value)})" for name, value in list(document.items())[:8])
    raise DataError(
        f"{path} holds an object with {len(lists) or 'no'} lists of objects in it, but exactly one is needed; it has: "
        f"{found or 'nothing'}.",
        remedy,
    )


def _delimiter(path: Path, header: str) -> str:
    if path.suffix.lower() == ".tsv":
        return "\t"
    bare = re.sub(r'"(?:[^"]|"")*"', "", header)
    return max((",", ";", "\t"), key=bare.count)


def _header(path: Path, fields: list[str]) -> list[str]:
    names = [name.strip() for name in fields]
    for column, name in enumerate(names, start=1):
        if not name:
            raise DataError(
                f"Column {column} of {path} has no name in the header: {shorten(names)}.",
                "Name it or remove it (pandas writes such a column for its index; save with index=False).",
            )
        if name in names[: column - 1]:
            raise DataError(f'The header of {path} names the column "{shorten(name)}" twice.', "Rename one of them.")
    return names


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
