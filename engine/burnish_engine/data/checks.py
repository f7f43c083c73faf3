"""Which files can be read, and as what."""

from __future__ import annotations

from pathlib import Path

from burnish_engine.contract.errors import DataError

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".txt": "txt",
    ".text": "txt",
    ".md": "markdown",
    ".markdown": "markdown",
}
"""File name ending to format."""

PACKINGS = {".gz": "gz", ".zst": "zst", ".bz2": "bz2", ".xz": "xz"}
"""Ending of a compressed file to how it is compressed. `.zip` is an archive of several files."""

COLUMNAR = {"parquet", "arrow"}
"""Formats that are read from places in the file, not from its beginning to its end."""

_UNREADABLE = (".7z", ".tar", ".tgz", ".rar")


def format_of(name: str) -> tuple[str, str]:
    """Format and packing that a file's name says; the format is empty where the ending is not known.

    Args:
        name: Such as "rows.jsonl.gz".
    """
    path = Path(name)
    packing = PACKINGS.get(path.suffix.lower(), "")
    ending = Path(path.stem).suffix if packing else path.suffix
    return FORMATS.get(ending.lower(), ""), packing


def size_of(path: Path) -> int:
    """Bytes of a file that is there and not empty.

    Raises:
        DataError: It is missing, empty, or cannot be looked at.
    """
    try:
        size_bytes = path.stat().st_size
    except FileNotFoundError:
        raise DataError(f"There is no data file at {path}.", "Check the path.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"The data file {path} could not be looked at: {error}.", "Check the path.") from None
    if size_bytes == 0:
        raise DataError(f"The data file {path} is empty (0 bytes).", "Check that it was saved or copied completely.")
    return size_bytes


def unknown_kind(name: str) -> DataError:
    """The error for a file whose ending says nothing of use."""
    path = Path(name)
    known = ", ".join([*FORMATS, *(f"{ending} of those" for ending in PACKINGS), ".zip of those"])
    remedy = "Unpack it first." if path.suffix.lower() in _UNREADABLE else "Convert the file, or correct its name."
    found = f'has the ending "{path.suffix}"' if path.suffix else "has no ending"
    return DataError(f"{name} {found}, which is not a known kind of data file (known: {known}).", remedy)


def unreadable(path: Path, error: OSError) -> DataError:
    """The error for a file that is there but cannot be opened or read."""
    return DataError(
        f"The data file {path} could not be read: {error.strerror or error}.",
        "Check its permissions and that no other program holds it.",
    )
