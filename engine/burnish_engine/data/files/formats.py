"""Parses each file format into rows: (number, JSON text of an object, or the error). Every error names its place.

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
from typing import Any

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.units import file_size
from burnish_engine.data.files.columnar import arrow_rows, parquet_rows
from burnish_engine.data.files.discover import DatasetPart
from burnish_engine.data.files.problems import BrokenRowError, excerpt, shorten
from burnish_engine.data.files.text_files import markdown_rows, txt_rows
from burnish_engine.data.files.text_lines import Line, text_lines

NumberedJson = tuple[int, str | BrokenRowError]
"""A row's number, from 1, and the row as JSON text, which `parsed` reads, or its error."""

CONVERSATION_COLUMNS = ("messages", "conversations", "conversation", "chat")
"""Usual names of a column with chats."""

LARGEST_DOCUMENT_BYTES = 2**30
"""Largest .json file that is one document; it is read as a whole and takes about ten times its size in memory."""

_LARGEST_CSV_FIELD = 2**31 - 1  # characters; csv's own limit is 131,072, and Windows' C long ends here


def jsonl_rows(part: DatasetPart, encoding: str) -> Iterator[NumberedJson]:
    """Yield the non-blank lines of a JSON Lines file, numbered by line, without checking that they are JSON."""
    for number, line in text_lines(part, encoding):
        if isinstance(line, BrokenRowError):
            yield number, line
        elif text := line.rstrip():
            yield number, text


def json_rows(part: DatasetPart, encoding: str) -> Iterator[NumberedJson]:
    """Yield the rows of a JSON file, numbered from 1: a list of objects, or an object with exactly one such list.

    A file that is JSON Lines under a .json name is read as such.

    Raises:
        DataError: The file is not JSON, of another form, or too large to be one document.
    """
    if _is_json_lines(part, encoding):
        yield from jsonl_rows(part, encoding)
        return
    if part.size_bytes > LARGEST_DOCUMENT_BYTES:
        raise DataError(
            f"{part.name} is one JSON document of {file_size(part.size_bytes)}, which would have to be in memory "
            "as a whole.",
            "Convert it to JSON Lines (one object a line), which is read row by row.",
        )
    text = "".join(_text_or_raise(line) for line in text_lines(part, encoding))
    if not text.strip():
        return
    for number, item in enumerate(_list_of_objects(_parse(text, part.name), part.name), start=1):
        if isinstance(item, dict):
            yield number, json.dumps(item)
        else:
            yield (
                number,
                BrokenRowError(
                    f"Item {number} of the list in {part.name} is {_json_kind(item)}, not an object: {shorten(item)}.",
                    "Every item must be a JSON object, such as {...}.",
                    "not a JSON object",
                ),
            )


def csv_rows(part: DatasetPart, encoding: str) -> Iterator[NumberedJson]:
    """Yield the rows of a CSV file with a header, numbered by the line that they begin on. Every value is text.

    The separator is a comma, semicolon or tab, whichever the header uses most. Undecodable lines are broken rows.

    Raises:
        DataError: The header has empty or repeated names.
    """
    csv.field_size_limit(_LARGEST_CSV_FIELD)
    undecoded = list[tuple[int, BrokenRowError]]()
    lines = _decoded_lines(text_lines(part, encoding), undecoded)
    blank, first = 0, ""
    for first in lines:
        if first.strip():
            break
        blank += 1
    reader = csv.reader(chain([first], lines), delimiter=_delimiter(part, first), strict=True)
    names: list[str] = []
    while True:
        begins = blank + reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            yield from undecoded
            return
        except csv.Error as error:
            yield (
                begins,
                BrokenRowError(
                    f"The row that begins in line {begins} of {part.name} is not valid CSV: {error}.",
                    'Put fields that hold quotes, separators or line breaks into quotes, and double quotes inside: "".',
                    "not valid CSV",
                ),
            )
            continue
        yield from undecoded
        undecoded.clear()
        if not fields or (len(fields) == 1 and not fields[0].strip()):
            continue
        if not names:
            names = _header(part.name, fields)
        elif len(fields) != len(names):
            yield (
                begins,
                BrokenRowError(
                    f"Line {begins} of {part.name} has {_fields(len(fields))}, the header has {len(names)}: "
                    f"{shorten(fields)}.",
                    "Put fields that hold separators or line breaks into quotes.",
                    "another number of fields than the header",
                ),
            )
        else:
            yield begins, json.dumps(dict(zip(names, fields, strict=True)))


READERS: dict[str, Callable[[DatasetPart, str], Iterator[NumberedJson]]] = {
    "jsonl": jsonl_rows,
    "json": json_rows,
    "csv": csv_rows,
    "parquet": parquet_rows,
    "arrow": arrow_rows,
    "txt": txt_rows,
    "markdown": markdown_rows,
}
"""Format to the function that reads its rows."""


def parsed(text: str, name: str, number: int) -> dict[str, Any]:
    """Parse a row's JSON text into column to value.

    Args:
        text: JSON text of the row.
        name: name of the row's file in messages.
        number: line of the row in the file.

    Raises:
        BrokenRowError: The text is no JSON object.
    """
    try:
        value = _without_nan(text)
    except (ValueError, RecursionError):
        try:
            value = _parse(text, name, number)
        except DataError as error:
            raise BrokenRowError(error.what, error.remedy, "not valid JSON") from None
    if isinstance(value, dict):
        return value
    remedy = "Every line must be one JSON object, such as {...}."
    if number == 1 and text.lstrip().startswith("["):
        remedy = (
            'Give a file that is one JSON list the ending .json, and write a line with a chat as {"messages": [...]}.'
        )
    raise BrokenRowError(
        f"Line {number} of {name} is {_json_kind(value)}, not an object: {shorten(text)}.", remedy, "not a JSON object"
    )


def _parse(text: str, name: str, line: int | None = None) -> Any:
    """Parse a JSON text; `line` is its line in the file, None where the text is the whole file."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {line or error.lineno}, column {error.colno}"
        lines = text.split("\n")
        shown = excerpt(lines[error.lineno - 1], error.colno - 1)
        remedy = "Correct that line, or remove it."
        if line == 1 and text.strip() in {"{", "["}:
            remedy = "The file looks like one JSON document over many lines: give it the ending .json."
        raise DataError(f"{name} is not valid JSON at {place}: {error.msg}, near `{shown}`.", remedy) from None
    except RecursionError:
        where = f"Line {line} of {name}" if line else name
        raise DataError(f"{where} is nested too deeply to be data.", "Correct or remove it.") from None
    except ValueError as error:
        where = f"Line {line} of {name}" if line else name
        raise DataError(f"{where} cannot be read: {shorten(error, 100)}.", "Correct or remove it.") from None


_without_nan = json.JSONDecoder(parse_constant=lambda _: None).decode
"""Parses a JSON text; NaN, which pandas and Python write for a missing value, is read as null."""


def _text_or_raise(line: Line) -> str:
    if isinstance(line[1], BrokenRowError):
        raise DataError(line[1].what, "Correct that line.")
    return line[1]


def _decoded_lines(lines: Iterator[Line], undecoded: list[tuple[int, BrokenRowError]]) -> Iterator[str]:
    """Yield the decoded lines; an undecodable line goes into `undecoded`, and an empty line takes its place."""
    for number, line in lines:
        if isinstance(line, BrokenRowError):
            undecoded.append((number, line))
            yield "\n"
        else:
            yield line


def _is_json_lines(part: DatasetPart, encoding: str) -> bool:
    """Whether the first line is a whole JSON object and another line follows."""
    filled = (_text_or_raise(line).strip() for line in text_lines(part, encoding) if _text_or_raise(line).strip())
    first, second = next(filled, ""), next(filled, "")
    if not (first.startswith("{") and second):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _list_of_objects(document: Any, name: str) -> list[Any]:
    if isinstance(document, list):
        return document
    remedy = "Make the file a list of objects, [{...}, {...}], or JSON Lines."
    if not isinstance(document, dict):
        raise DataError(f"{name} holds {_json_kind(document)}, not a list of objects.", remedy)
    lists = [
        name
        for name, value in document.items()
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
    ]
    if len(lists) == 1:
        only = lists[0]
        # In a file with a single chat, the list holds the chat's turns, not rows.
        return [document] if only.strip().lower() in CONVERSATION_COLUMNS else list(document[only])
    found = ", ".join(f"{shorten(name, 30)} ({_json_kind(value)})" for name, value in list(document.items())[:8])
    raise DataError(
        f"{name} holds an object with {len(lists) or 'no'} lists of objects in it, but exactly one is needed; it has: "
        f"{found or 'nothing'}.",
        remedy,
    )


def _delimiter(part: DatasetPart, header: str) -> str:
    if ".tsv" in part.short_name.lower():
        return "\t"
    bare = re.sub(r'"(?:[^"]|"")*"', "", header)
    return max((",", ";", "\t"), key=bare.count)


def _header(file: str, fields: list[str]) -> list[str]:
    names = [name.strip() for name in fields]
    if len(names) > 1 and not names[0]:
        names[0] = "Unnamed: 0"  # the index that pandas writes, named as pandas reads it
    seen = set[str]()
    for column, name in enumerate(names, start=1):
        if not name:
            raise DataError(f"Column {column} of {file} has no name in the header: {shorten(names)}.", "Name it.")
        if name in seen:
            raise DataError(f'The header of {file} names the column "{shorten(name)}" twice.', "Rename one of them.")
        seen.add(name)
    return names


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"


def _json_kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
