"""Tells which files can be read, and their formats, from the endings of their names."""

from __future__ import annotations

import stat
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
"""Ending of a file name to its format."""

PACKINGS = {".gz": "gz", ".zst": "zst", ".bz2": "bz2", ".xz": "xz"}
"""Ending of a compressed file to its compression. A `.zip` is an archive of several files and not listed."""

COLUMNAR = {"parquet", "arrow"}
"""Formats whose readers seek in the file instead of reading it from beginning to end."""

_UNREADABLE = (".7z", ".tar", ".tgz", ".rar")


def format_of(name: str) -> tuple[str, str]:
    """Return the format and compression that a file's name says; the format is empty for an unknown ending.

    Args:
        name: name of the file, such as "rows.jsonl.gz".
    """
    path = Path(name)
    packing = PACKINGS.get(path.suffix.lower(), "")
    ending = Path(path.stem).suffix if packing else path.suffix
    return FORMATS.get(ending.lower(), ""), packing


def size_of(path: Path) -> int:
    """Return the size of a file, bytes.

    Raises:
        DataError: The file is missing, empty, or cannot be looked at.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        raise DataError(
            f"There is no data file at {path}.",
            "Put it there, or correct the name; one in a recipe counts from the recipe's folder.",
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(f"The data file {path} could not be looked at: {error}.", "Check the path.") from None
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise DataError(
            f"The data file {path} is a pipe, a socket or a device.", "Write the rows into a file, and give that."
        )
    if found.st_size == 0:
        raise DataError(f"The data file {path} is empty (0 bytes).", "Check that it was saved or copied completely.")
    return found.st_size


def unknown_kind(name: str) -> DataError:
    """Return the error for a file whose ending is not known."""
    path = Path(name)
    known = ", ".join([*FORMATS, *(f"{ending} of those" for ending in PACKINGS), ".zip of those"])
    remedy = "Unpack it first." if path.suffix.lower() in _UNREADABLE else "Convert the file, or correct its name."
    found = f'has the ending "{path.suffix}"' if path.suffix else "has no ending"
    return DataError(f"{name} {found}, which is not a known kind of data file (known: {known}).", remedy)


def unreadable(path: Path, error: OSError) -> DataError:
    """Return the error for a file that exists but cannot be opened or read."""
    return DataError(
        f"The data file {path} could not be read: {error.strerror or error}.",
        "Check its permissions and that no other program holds it.",
    )
