"""Write results in a staging folder and rename them when they are complete and verified."""

from __future__ import annotations

import errno
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from burnish_engine.contract.errors import DoesNotFitError, NoSpaceError, StoppedError, UsageError
from burnish_engine.contract.files import cannot_write, make_private, replace_with_retry, sync_folder
from burnish_engine.contract.paths import user_cache_dir
from burnish_engine.contract.units import file_size, memory_size
from burnish_engine.hardware.host.host_memory import host_memory

_PREFIX = ".partial-"
_SPARE_BYTES = 64 * 1024 * 1024  # space that other programs use in the meantime

Canceled = Callable[[], bool]
"""Callback that returns True when the person wants to stop."""


def never() -> bool:
    """Return False: a `Canceled` that never asks to stop."""
    return False


def stop_if(canceled: Canceled, what: str) -> None:
    """Raise `StoppedError` when the person wants to stop."""
    if canceled():
        raise StoppedError(f"{what} was stopped.", "Nothing was written under its final name; start it again any time.")


@contextmanager
def staging_folder(out: Path) -> Iterator[Path]:
    """Make a folder inside `out` for unfinished files; remove it afterwards, and leftovers of a crashed export before.

    Args:
        out: folder of the finished files; created if missing.

    Raises:
        UsageError: `out` is no folder, or another export is writing to it.
        NoSpaceError: The folder cannot be written.
    """
    require_folder(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(_lock_file(out), timeout=0)
        lock.acquire()
    except Timeout:
        raise UsageError(f"Another export is writing to {out}.", "Wait for it, or choose another folder.") from None
    except OSError as error:
        raise cannot_write(out, error) from error
    try:
        for leftover in out.glob(f"{_PREFIX}*"):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=out))
        try:
            yield folder
        except FileNotFoundError:
            raise  # a missing input file: not a failure to write
        except OSError as error:
            raise cannot_write(folder, _with_cause(folder, error)) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        lock.release()


def _with_cause(folder: Path, error: OSError) -> OSError:
    """Add the cause to an error of numpy, which does not name it when only a part could be written."""
    if error.errno is None and shutil.disk_usage(folder).free < _SPARE_BYTES:
        return OSError(errno.ENOSPC, str(error))
    return error


def _lock_file(out: Path) -> Path:
    """Path of the lock of one folder.

    It lies in our own data folder, because a lock cannot be removed safely and would litter `out`.
    """
    folder = user_cache_dir() / "locks"
    make_private(folder)
    return folder / f"{hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:32]}.lock"


def publish(finished: Path, target: Path) -> None:
    """Give a finished file or folder its final name."""
    try:
        replace_with_retry(finished, target)
        sync_folder(target.parent)
    except OSError as error:
        raise cannot_write(target, error) from error


def require_folder(folder: Path) -> None:
    """Check before the start that a folder can be written to, or made; nothing is left there.

    Raises:
        UsageError: A file stands in its place, or in that of a folder above it.
        NoSpaceError: Nothing can be written there.
    """
    there = _nearest(folder)
    if not there.is_dir():
        raise UsageError(f"{there} is a file, and files are written into a folder.", "Give a folder, old or new.")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise cannot_write(folder, error) from error


def _nearest(path: Path) -> Path:
    """Return the path itself or the nearest above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def require_space(folder: Path, needed_bytes: int, what: str) -> None:
    """Check before the start that a result fits the disk.

    Args:
        folder: destination; its nearest existing parent is measured.
        needed_bytes: predicted size, bytes.
        what: name of the result for the message.

    Raises:
        NoSpaceError: The free space is smaller than the size plus a reserve.
    """
    folder = _nearest(folder)
    needed, free = needed_bytes + _SPARE_BYTES, shutil.disk_usage(folder).free
    if free < needed:
        raise NoSpaceError(
            f"{what} needs {needed} bytes ({file_size(needed)}) in {folder}; {free} bytes ({file_size(free)}) are "
            "free.",
            "Free some space, or choose a folder on another disk.",
        )


def require_memory(needed_bytes: int, what: str) -> None:
    """Check before the start that a stage fits into memory.

    Args:
        needed_bytes: peak memory of the stage, bytes.
        what: name of the stage for the message.

    Raises:
        DoesNotFitError: Less memory is free than needed.
    """
    _, free = host_memory()
    if free < needed_bytes:
        raise DoesNotFitError(
            f"{what} needs {memory_size(needed_bytes)} of memory; {memory_size(free)} are free.",
            "Close other programs, or do it on a machine with more memory.",
        )
