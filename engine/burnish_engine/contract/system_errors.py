"""Turns errors of the operating system into errors that a person can act on: one mapping for all processes.

Command line, `burnish serve` and its workers ask it last, for whatever nobody expected closer to where it happened.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from burnish_engine.contract.errors import BurnishError, DoesNotFitError, NoSpaceError, SetupError, UsageError
from burnish_engine.contract.files import cannot_write, is_full

_NO_SUCH_PATH = {
    errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ENODEV,
}  # fmt: skip
_UNWRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM}
_TOO_MANY = {errno.EMFILE, errno.ENFILE, errno.EAGAIN}
_UNREACHED = {
    errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EBUSY, errno.EINVAL, errno.ENOTCONN, errno.EHOSTUNREACH,
    errno.ENETUNREACH, getattr(errno, "EHOSTDOWN", errno.EHOSTUNREACH), getattr(errno, "EUCLEAN", errno.EIO),
    getattr(errno, "EREMOTEIO", errno.EIO), errno.EOVERFLOW, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOLCK,
}  # fmt: skip
"""Errors of an unplugged or remote disk, of a damaged file system, and of an odd name (EINVAL, on Windows)."""
_LONGEST_NAME = 300


def known_error(error: BaseException) -> BurnishError | None:
    """Return the error that tells a person what the system refused; None for one that only a bug explains.

    Args:
        error: any exception. A `BurnishError` is returned as it is.
    """
    if isinstance(error, BurnishError):
        return error
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, without torch
        return _out_of_memory(str(error))
    if isinstance(error, ValueError) and str(error).endswith(("embedded null byte", "embedded null character in path")):
        return UsageError("A path holds a NUL character, which no name of a file has.", "Correct the path.")
    if isinstance(error, UnicodeEncodeError) and "surrogate" in error.reason:
        return UsageError("A name holds characters that are no Unicode text.", "Rename it, or use another.")
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # Path.resolve, before Python 3.13
        return UsageError(f"{error}.", "Check the path.")
    return _of_system(error, error.errno) if isinstance(error, OSError) and error.errno is not None else None


def _out_of_memory(said: str) -> BurnishError:
    details = said.splitlines()[0] if said else "no details"
    return DoesNotFitError(
        f"Out of memory ({details}).", "Close other programs that use memory, or take a smaller model."
    )


def _of_system(error: OSError, number: int) -> BurnishError | None:
    reason, name = error.strerror or os.strerror(number), _name(error)
    if is_full(error):
        return cannot_write(name or Path("A file"), error)
    if number == errno.ENOMEM:
        return _out_of_memory(reason)
    if number in _NO_SUCH_PATH:
        return UsageError(f"{name or 'A file'} cannot be opened: {reason}.", "Check the path.")
    if number in _TOO_MANY:
        return SetupError(
            f"The system gives this process no more files or processes: {reason}.",
            "Close other programs, or raise the limit (`ulimit -n`).",
        )
    if number in _UNWRITABLE and name is None:
        return NoSpaceError(f"The output could not be written: {reason}.", "Check the disk that it goes to.")
    if number in _UNWRITABLE:
        return cannot_open(name or Path(), error)
    if number in _UNREACHED:
        return SetupError(
            f"{name or 'A file'} could not be read or written: {reason}.",
            "Check the path, the disk, and the connection to it.",
        )
    return None


def _name(error: OSError) -> Path | None:
    """Return the file that an error names, shortened; None where it names none."""
    if not isinstance(error.filename, str | bytes) or not error.filename:
        return None
    name = os.fsdecode(error.filename)
    return Path(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}...")


def cannot_open(path: Path, error: OSError) -> BurnishError:
    """Make the error for a file that could not be opened, of which only its permissions show whether it was to be read.

    Args:
        path: path that was opened.
        error: error of the system.
    """
    hidden = not os.access(path.parent, os.X_OK) or (os.path.lexists(path) and not os.access(path, os.R_OK))
    if isinstance(error, PermissionError) and hidden:
        return UsageError(
            f"{path} could not be read: {error.strerror}.", "Check its permissions and those of the folders above it."
        )
    return cannot_write(path, error)
