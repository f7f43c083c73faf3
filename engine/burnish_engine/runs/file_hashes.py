"""Compute SHA-256 of files; hashes of large files are stored in one small file, so that each is read once."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.files import make_private, read_with_retry, refuse_special, write_atomic
from burnish_engine.contract.paths import file_hashes_file

_log = logging.getLogger(__name__)

VERSION = 1
LARGE_BYTES = 16 * 2**20  # smaller files are read in no time
MOST = 500
_MOST_FILE_BYTES = 2_000_000  # 500 files take about 150 kB: a larger file is not ours
_BLOCK_BYTES = 2**20
_LOCK_S = 5.0
_SETTLED_S = 3.0
"""Age in seconds below which a file may change again without a new time: some file systems count in steps of 2 s."""


class CanceledError(Exception):
    """The hash is no longer wanted."""


class _KnownHash(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    bytes: int
    mtime_ns: int
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _HashFile(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    version: Literal[1]
    files: dict[str, _KnownHash] = Field(max_length=10 * MOST)


def sha256_file(path: Path, canceled: Callable[[], bool] = lambda: False) -> str:
    """Compute the SHA-256 of a file's content, hexadecimal.

    Args:
        path: The file.
        canceled: callback polled between blocks; True stops the work.

    Raises:
        OSError: The file cannot be read.
        CanceledError: `canceled` returned True.
    """
    digest = hashlib.sha256()
    refuse_special(path)
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            if canceled():
                raise CanceledError
            digest.update(block)  # lets other threads work meanwhile
    return digest.hexdigest()


def known_sha256(path: Path, canceled: Callable[[], bool] = lambda: False, *, large: int = LARGE_BYTES) -> str:
    """Compute or look up a file's SHA-256: a large file of equal path, size and time of change is not read again.

    Args:
        path: The file.
        canceled: callback polled between blocks; True stops the work.
        large: size of the smallest file that is remembered, bytes.

    Raises:
        OSError: The file cannot be read.
        CanceledError: `canceled` returned True.
    """
    path = path.resolve()
    before = path.stat()
    if before.st_size < large:
        return sha256_file(path, canceled)
    known = _read()[0].get(str(path))
    if known and (known.bytes, known.mtime_ns) == (before.st_size, before.st_mtime_ns):
        return known.sha256
    sha256 = sha256_file(path, canceled)
    after = path.stat()
    same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    if same and time.time() - after.st_mtime > _SETTLED_S:
        _remember(path, _KnownHash(bytes=after.st_size, mtime_ns=after.st_mtime_ns, sha256=sha256))
    return sha256


def _remember(path: Path, known: _KnownHash) -> None:
    """Add a file and drop the oldest of too many. Never raises; leaves a newer version's file alone."""
    store = file_hashes_file()
    try:
        make_private(store.parent)
        with FileLock(str(store.with_suffix(".lock")), timeout=_LOCK_S):
            files, ours = _read()
            if ours:
                files.pop(str(path), None)
                newest = dict([*files.items(), (str(path), known)][-MOST:])
                write_atomic(store, _HashFile(version=VERSION, files=newest).model_dump_json(indent=1) + "\n")
    except (OSError, NoSpaceError, Timeout) as error:
        _log.warning("The hash of %s could not be kept in %s: %s", path.name, store, error)


def _read() -> tuple[dict[str, _KnownHash], bool]:
    """Read (files by path, oldest first; whether the file may be replaced)."""
    store = file_hashes_file()
    try:
        if not store.exists():
            return {}, True
        if store.stat().st_size > _MOST_FILE_BYTES:
            raise ValueError("it is too large")
        document = json.loads(read_with_retry(store))
        version = document.get("version") if isinstance(document, dict) else None
        if isinstance(version, int) and version > VERSION:
            return {}, False
        return dict(_HashFile.model_validate(document).files), True
    except (OSError, ValueError, RecursionError):  # pydantic's and JSON's errors are ValueErrors
        return {}, True  # it only saves time, so a damaged file is made again
