"""Read data files: rows as dicts with their numbers; large files memory-mapped through the `datasets` library."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import BurnishError, DataError, NoSpaceError
from burnish_engine.contract.paths import user_cache_dir
from burnish_engine.data.checks import check_file, unreadable
from burnish_engine.data.formats import READERS

IN_MEMORY_BYTES = 64 * 2**20
"""Files up to this size are kept in memory; larger ones are converted once into the user's cache."""

_LAYOUT = 1  # part of the cache's key; raise it when what is stored changes
_BATCH_ROWS = 1000


@dataclass(frozen=True)
class Row:
    """One row of a file.

    Attributes:
        number: Line where the row begins (JSONL, CSV, TXT) or its place (JSON, Parquet), from 1.
        values: Column to value.
    """

    number: int
    values: dict[str, Any]


class Table:
    """The rows of one file.

    Args:
        path: The file.
        file_format: jsonl, json, csv, parquet or txt.
        stored: A `datasets.Dataset` with the columns `number` and `json`, or what stands for one.
    """

    def __init__(self, path: Path, file_format: str, stored: Any) -> None:
        self.path = path
        self.file_format = file_format
        self._stored = stored

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[Row]:
        for batch in self._stored.iter(_BATCH_ROWS):
            for number, text in zip(batch["number"], batch["json"], strict=True):
                yield Row(number, json.loads(text))

    def row(self, position: int) -> Row:
        """The row at a position from 0."""
        record = self._stored[position]
        return Row(record["number"], json.loads(record["json"]))


class _InMemory:
    """What `Table` uses of a `datasets.Dataset`, of lists; importing `datasets` takes longer than most files."""

    def __init__(self, numbers: list[int], texts: list[str]) -> None:
        self._numbers, self._texts = numbers, texts

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, position: int) -> dict[str, Any]:
        return {"number": self._numbers[position], "json": self._texts[position]}

    def iter(self, _batch_size: int) -> Iterator[dict[str, list[Any]]]:
        yield {"number": self._numbers, "json": self._texts}


def read_table(path: Path) -> Table:
    """Check and read one data file. Never touches the network.

    Raises:
        DataError: The file is missing, unreadable, of an unknown kind, damaged, or has no rows.
        NoSpaceError: A large file could not be converted for lack of disk space.
    """
    file_format = check_file(path)
    stored: Any
    if path.stat().st_size <= IN_MEMORY_BYTES:
        numbers, texts = list[int](), list[str]()
        for number, text in READERS[file_format](path):
            numbers.append(number)
            texts.append(text)
        stored = _InMemory(numbers, texts)
    else:
        stored = _stored_on_disk(path, file_format)
    if not len(stored):
        raise DataError(
            f"The data file {path} has no rows: nothing but blank space, a header or an empty list.",
            "Check that it was saved or copied completely.",
        )
    return Table(path, file_format, stored)


def _stored_on_disk(path: Path, file_format: str) -> Any:
    """The rows as an Arrow file in the cache, keyed by the file's content, so that an edited file is read anew."""
    import datasets

    datasets.disable_progress_bars()
    features = datasets.Features({"number": datasets.Value("int64"), "json": datasets.Value("large_string")})

    def rows() -> Iterator[dict[str, Any]]:
        for number, text in READERS[file_format](path):
            yield {"number": number, "json": text}

    key = f"{_content_hash(path)}-{file_format}-v{_LAYOUT}"
    try:
        return datasets.Dataset.from_generator(
            rows, features=features, cache_dir=str(user_cache_dir() / "datasets"), fingerprint=key
        )
    except (datasets.exceptions.DatasetGenerationError, OSError) as error:
        raise _explained(path, error) from error


def _explained(path: Path, error: BaseException) -> BaseException:
    """The error of ours, or of the system, under those that the library wrapped around it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BurnishError):
            return cause
        if isinstance(cause, OSError) and cause.errno in {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS}:
            return NoSpaceError(
                f"{path} could not be converted into {user_cache_dir()}: {cause.strerror}.",
                "Free some space, or move Burnish's folder with BURNISH_HOME.",
            )
        cause = cause.__cause__ or cause.__context__
    return error


def _content_hash(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()[:32]
    except OSError as error:
        raise unreadable(path, error) from error
