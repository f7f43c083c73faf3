"""Writing files so that a crash, a full disk or a virus scanner never leaves half of one."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from burnish_engine.contract.errors import NoSpaceError

_REPLACE_ATTEMPTS = 20
_REPLACE_PAUSE_S = 0.05  # Windows: a scanner or a reader may hold the target for a moment


def replace_with_retry(source: Path, target: Path) -> None:
    """Move `source` over `target` atomically, retried while another program holds the target (Windows).

    Raises:
        OSError: The target stayed held for about a second, or the move failed for another reason.
    """
    for attempt in range(_REPLACE_ATTEMPTS):
        try:
            source.replace(target)
            return
        except PermissionError:
            if attempt == _REPLACE_ATTEMPTS - 1:
                raise
            time.sleep(_REPLACE_PAUSE_S)


def read_with_retry(path: Path) -> str:
    """A small text file, read again while its writer replaces it (Windows refuses for a moment).

    Raises:
        OSError: It cannot be read.
    """
    for attempt in range(_REPLACE_ATTEMPTS):
        try:
            return path.read_text(encoding="utf-8")
        except PermissionError:
            if attempt == _REPLACE_ATTEMPTS - 1:
                raise
            time.sleep(_REPLACE_PAUSE_S)
    raise AssertionError("unreachable")


def write_atomic(path: Path, data: str | bytes, *, durable: bool = True) -> None:
    """Write a whole file or leave the old one: temp file beside it, fsync, replace.

    Args:
        path: The file.
        data: Text (written as UTF-8, line ends as they are) or bytes.
        durable: Wait until the bytes are on disk. False for what may be lost in a power cut.

    Raises:
        NoSpaceError: The file could not be written.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    raw = data.encode("utf-8") if isinstance(data, str) else data
    try:
        with aside.open("wb") as file:
            file.write(raw)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        replace_with_retry(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def sync_folder(folder: Path) -> None:
    """Make renames in the folder durable. Does nothing on Windows, where a folder cannot be opened."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> NoSpaceError:
    """The error for a file that could not be written: what, why, what to do."""
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        return NoSpaceError(
            f"The disk is full: {path} could not be written.",
            "Free some space on that disk, then resume; nothing written earlier is lost.",
        )
    reason = error.strerror or str(error)
    return NoSpaceError(f"{path} could not be written: {reason}.", "Check the folder's permissions and the disk.")
