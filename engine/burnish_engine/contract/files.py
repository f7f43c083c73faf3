"""Writes files so that a crash, a full disk or a virus scanner never leaves half of one."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path

from burnish_engine.contract.errors import NoSpaceError, UsageError
from burnish_engine.contract.units import file_size

_REPLACE_ATTEMPTS = 20
_LONGEST_STEM = 56  # characters of the file's own name, of up to 4 bytes each; names are limited to 255 bytes
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


def refuse_special(path: Path) -> None:
    """Refuse a pipe, a socket or a device: opening one may wait for ever.

    Raises:
        OSError: The path is one, or cannot be looked up.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.ENXIO, "it is a pipe, a socket or a device, not a file", str(path))


def read_plain(path: Path) -> str:
    """Read a text file in UTF-8; a pipe, a socket or a device is refused before it is opened.

    Raises:
        OSError: The file cannot be read.
        UnicodeDecodeError: The file is no UTF-8.
    """
    refuse_special(path)
    return path.read_text(encoding="utf-8")


def read_with_retry(path: Path) -> str:
    """Read a small text file, again while its writer replaces it (Windows refuses for a moment).

    Raises:
        OSError: The file cannot be read, or is a pipe, a socket or a device.
    """
    for attempt in range(_REPLACE_ATTEMPTS):
        try:
            return read_plain(path)
        except PermissionError:
            if attempt == _REPLACE_ATTEMPTS - 1:
                raise
            time.sleep(_REPLACE_PAUSE_S)
    raise AssertionError("unreachable")


def read_limited(path: Path, most_bytes: int) -> bytes:
    """Read the content of a small plain file. A folder, a pipe or a device is refused before it is opened.

    Args:
        path: the file.
        most_bytes: its largest acceptable size, bytes.

    Raises:
        ValueError: The path is no plain file, or the file is larger; the message says which.
        OSError: The file cannot be read.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise ValueError(f"is {'a folder' if stat.S_ISDIR(mode) else 'a pipe or a device'}, not a file")
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"is larger than {file_size(most_bytes)}")
    return content


def is_file(path: Path) -> bool:
    """Whether there is a plain file; also false where the path cannot be looked up (too long, folder not readable)."""
    return os.path.isfile(path)  # noqa: PTH113  Path.is_file raises errors of the system


def is_folder(path: Path) -> bool:
    """Whether there is a folder; also false where the path cannot be looked up, as in `is_file`."""
    return os.path.isdir(path)  # noqa: PTH112  see is_file


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone (mode 0700 whatever the umask is).

    Folders that exist stay as they are, and Windows leaves access to what the folder above says.

    Args:
        folder: one of the person's own, under `contract.paths.user_data_dir` or `user_cache_dir`.

    Raises:
        OSError: The folder cannot be made.
    """
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        if folder == folder.parent:
            break
        folder = folder.parent
    for each in reversed(missing):
        try:
            each.mkdir(mode=0o700)
        except FileExistsError:  # another process was faster
            if not each.is_dir():
                raise
            continue
        if os.name != "nt":
            each.chmod(0o700)


def must_be_new(path: Path, kind: str = "file") -> None:
    """Refuse a file that is there already, or cannot be written where it is wanted. Nothing is written.

    Args:
        path: path of the file.
        kind: what it is, for the message.

    Raises:
        UsageError: The file exists, its folder is missing, or the folder cannot be written.
    """
    if path.exists():
        raise UsageError(f"{path} already exists.", f"Give another name; a {kind} is never overwritten.")
    folder = path.absolute().parent
    if not is_folder(folder):
        raise UsageError(f"There is no folder {folder} for {path.name}.", "Make it, or give another name.")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"The folder {folder} cannot be written.", "Give another name.")


def write_atomic(path: Path, data: str | bytes, *, durable: bool = True) -> None:
    """Write a whole file or leave the old one: temp file beside it, fsync, replace.

    Args:
        path: path of the file.
        data: text (written as UTF-8, line ends as they are) or bytes.
        durable: whether to wait until the bytes are on disk; False for files that may be lost in a power cut.

    Raises:
        NoSpaceError: The file could not be written.
    """
    # Nobody can guess the name, and mode "x" follows no link: the data always goes into a new file.
    aside = path.with_name(f".{path.name[:_LONGEST_STEM]}.{secrets.token_hex(8)}.tmp")
    raw = data.encode("utf-8") if isinstance(data, str) else data
    try:
        with aside.open("xb") as file:
            file.write(raw)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        replace_with_retry(aside, path)
    except OSError as error:
        with suppress(OSError):  # such as a file in the place of the folder
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


def is_full(error: OSError) -> bool:
    """Whether the disk is full, or the person's share of it."""
    return error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def cannot_write(path: Path, error: OSError) -> NoSpaceError:
    """Make the error for a file that could not be written: what, why, what to do."""
    if is_full(error):
        return NoSpaceError(
            f"The disk is full: {path} could not be written.",
            "Free some space on that disk, then resume; nothing written earlier is lost.",
        )
    if error.errno == errno.ENOTDIR or (error.errno == errno.EEXIST and is_file(path)):
        file = next((one for one in (path, *path.parents) if is_file(one)), path)
        return NoSpaceError(f"{path} could not be written: {file} is a file, not a folder.", "Choose another place.")
    if error.errno == errno.ENOENT and not is_folder(path.parent):
        return NoSpaceError(
            f"{path} could not be written: there is no folder {path.parent}.", "Make it, or choose another place."
        )
    reason = error.strerror or str(error)
    return NoSpaceError(f"{path} could not be written: {reason}.", "Check the folder's permissions and the disk.")
