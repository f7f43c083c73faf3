"""Is this a file we can read? Exact answers before any library sees it: kind, encoding, line by line."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from burnish_engine.contract.errors import DataError

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".txt": "txt",
}
"""File name ending to format."""

_PACKED = (".gz", ".zip", ".bz2", ".xz", ".zst", ".7z", ".tar")
_OTHER_ENCODINGS = (  # UTF-32 first: its little-endian mark begins with UTF-16's
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_SAVE_AS_UTF8 = "Save it as UTF-8 (Excel: file type CSV UTF-8; Notepad: Save as, encoding UTF-8)."


def check_file(path: Path) -> str:
    """The format of a data file, after making sure that it is there and not empty.

    Raises:
        DataError: The file is missing, a folder, unreadable, empty, or of an unknown kind.
    """
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder, not a data file.", "Give the files in it one by one.")
        size_bytes = path.stat().st_size
    except FileNotFoundError:
        raise DataError(f"There is no data file at {path}.", "Check the path.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"The data file {path} could not be looked at: {error}.", "Check the path.") from None
    ending = path.suffix.lower()
    if ending not in FORMATS:
        known = ", ".join(FORMATS)
        remedy = "Unpack it first." if ending in _PACKED else "Convert the file, or correct its name."
        found = f'has the ending "{path.suffix}"' if path.suffix else "has no ending"
        raise DataError(f"{path} {found}, which is not a known kind of data file (known: {known}).", remedy)
    if size_bytes == 0:
        raise DataError(f"The data file {path} is empty (0 bytes).", "Check that it was saved or copied completely.")
    return FORMATS[ending]


def unreadable(path: Path, error: OSError) -> DataError:
    """The error for a file that is there but cannot be opened or read."""
    return DataError(
        f"The data file {path} could not be read: {error.strerror or error}.",
        "Check its permissions and that no other program holds it.",
    )


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a UTF-8 file with their numbers from 1, streaming. Only a line feed ends a line; it is kept.

    A byte order mark at the start is accepted and removed.

    Raises:
        DataError: A line is not UTF-8 or holds NUL bytes, or the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            _refuse_other_encodings(path, stream.read(4))
            stream.seek(0)
            for number, raw in enumerate(stream, start=1):
                yield number, _decode(path, number, raw)
    except OSError as error:
        raise unreadable(path, error) from error


def _refuse_other_encodings(path: Path, first_bytes: bytes) -> None:
    for mark, name in _OTHER_ENCODINGS:
        if first_bytes.startswith(mark):
            raise DataError(
                f"The data file {path} is not UTF-8: line 1 begins with the bytes {mark.hex(' ').upper()}, so it "
                f"looks like {name}.",
                _SAVE_AS_UTF8,
            )


def _decode(path: Path, number: int, raw: bytes) -> str:
    if number == 1:
        raw = raw.removeprefix(codecs.BOM_UTF8)
    if b"\0" in raw:
        position = raw.index(0) + 1
        # ASCII text in UTF-16 without a mark is half NULs.
        guess = "it looks like UTF-16" if raw.count(0) * 3 >= len(raw) else "it is binary or damaged"
        raise DataError(
            f"The data file {path} has a NUL byte in line {number} (byte {position}): {guess}.", _SAVE_AS_UTF8
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"The data file {path} is not UTF-8: line {number}, byte {error.start + 1} is 0x{raw[error.start]:02X}.",
            _SAVE_AS_UTF8,
        ) from None
