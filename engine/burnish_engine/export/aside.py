"""Finished files only: results are written in a folder aside and renamed when they are whole and proven."""

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
from burnish_engine.contract.files import cannot_write, replace_with_retry, sync_folder
from burnish_engine.contract.paths import user_cache_dir
from burnish_engine.contract.units import file_size, memory_size
from burnish_engine.hardware.host_memory import host_memory

_PREFIX = ".partial-"
_SPARE_BYTES = 64 * 1024 * 1024  # what else a machine writes in the meantime

Cancelled = Callable[[], bool]
"""Polled; true means the person wants to stop."""


def never() -> bool:
    """A `Cancelled` that never is."""
    return False


def stop_if(cancelled: Cancelled, what: str) -> None:
    """Raise `StoppedError` when the person wants to stop."""
    if cancelled():
        raise StoppedError(f"{what} was stopped.", "Nothing was written under its final name; start it again any time.")


@contextmanager
def partial_folder(out: Path) -> Iterator[Path]:
    """A folder inside `out` for unfinished files, gone afterwards; leftovers of a crashed export go first.

    Args:
        out: Where finished files go; created if missing.

    Raises:
        UsageError: Another export is writing to `out` at this moment.
        NoSpaceError: The folder cannot be written.
    """
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
            raise  # something to be read is missing: not about writing
        except OSError as error:
            raise cannot_write(folder, _with_cause(folder, error)) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        lock.release()


def _with_cause(folder: Path, error: OSError) -> OSError:
    """The error, with the cause that numpy does not tell when it could write only a part."""
    if error.errno is None and shutil.disk_usage(folder).free < _SPARE_BYTES:
        return OSError(errno.ENOSPC, str(error))
    return error


def _lock_file(out: Path) -> Path:
    """The lock of one folder. It lies with our own files: it cannot be removed safely, and would litter `out`."""
    folder = user_cache_dir() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:32]}.lock"


def publish(finished: Path, target: Path) -> None:
    """Give a finished file or folder its final name."""
    try:
        replace_with_retry(finished, target)
        sync_folder(target.parent)
    except OSError as error:
        raise cannot_write(target, error) from error


def require_space(folder: Path, needed_bytes: int, what: str) -> None:
    """Check before starting that a result will fit.

    Args:
        folder: Where it goes; its nearest existing parent is asked.
        needed_bytes: Its predicted size, bytes.
        what: Names it in the message.

    Raises:
        NoSpaceError: Less is free than needed, with a little to spare.
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    needed, free = needed_bytes + _SPARE_BYTES, shutil.disk_usage(folder).free
    if free < needed:
        raise NoSpaceError(
            f"{what} needs {needed} bytes ({file_size(needed)}) in {folder}; {free} bytes ({file_size(free)}) are "
            "free.",
            "Free some space, or choose a folder on another disk.",
        )


def require_memory(needed_bytes: int, what: str) -> None:
    """Check before starting that a stage will fit into memory.

    Args:
        needed_bytes: What it takes at its peak, bytes.
        what: Names it in the message.

    Raises:
        DoesNotFitError: Less is free than needed.
    """
    _, free = host_memory()
    if free < needed_bytes:
        raise DoesNotFitError(
            f"{what} needs {memory_size(needed_bytes)} of memory; {memory_size(free)} are free.",
            "Close other programs, or do it on a machine with more memory.",
        )
