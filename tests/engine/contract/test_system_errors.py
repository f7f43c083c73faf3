"""Refusals of the system are told in words: one mapping for command line and server."""

import errno
import os

import pytest

from burnish_engine.channel.server import failure
from burnish_engine.contract.errors import DataError, ExitCode
from burnish_engine.contract.system_errors import cannot_open, known_error


def of(code, name=None):
    """The error that Python raises for a code of the system, about a file or about none."""
    return OSError(code, os.strerror(code), *([name] if name else []))


class OutOfMemoryError(Exception):
    """Stands for torch's, which is known by its name."""


KNOWN = {
    ExitCode.USAGE: [
        *[of(getattr(errno, name), "x") for name in ("ENOENT", "ENAMETOOLONG", "ELOOP", "ENOTDIR", "EISDIR", "ENXIO")],
        of(errno.ENOTDIR), ValueError("embedded null byte"), RuntimeError("Symlink loop from 'x'"),
        ValueError("stat: embedded null character in path"),
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    ],
    ExitCode.ENVIRONMENT: [
        *[of(getattr(errno, name), "x") for name in ("EIO", "ESTALE", "ETIMEDOUT", "EINVAL", "EBUSY", "EMFILE")],
        of(errno.EIO), of(errno.ENFILE),
    ],
    ExitCode.NO_SPACE: [
        *[of(getattr(errno, name), "x") for name in ("ENOSPC", "EROFS", "EACCES", "EPERM")], of(errno.EACCES),
        of(errno.ENOSPC),
    ],
    ExitCode.DOES_NOT_FIT: [MemoryError(), of(errno.ENOMEM), OutOfMemoryError("Tried to allocate 9 GiB")],
    ExitCode.DATA: [DataError("a", "b")],
}  # fmt: skip
CASES = [(error, code) for code, errors in KNOWN.items() for error in errors]


@pytest.mark.parametrize(("error", "code"), CASES, ids=repr)
def test_what_the_system_refuses_is_no_bug(burnish_home, error, code):
    found = known_error(error)
    assert found.exit_code is code
    assert found.remedy
    assert failure("x", error).exit_code == code


@pytest.mark.parametrize(
    "error", [ValueError("x"), OSError("no number"), KeyError("x"), ConnectionResetError(errno.ECONNRESET, "reset")]
)
def test_what_only_a_fault_explains_stays_a_bug(burnish_home, error):
    assert known_error(error) is None
    assert failure("x", error).exit_code == ExitCode.BUG


def test_a_name_of_thousands_of_letters_is_not_printed_whole():
    assert len(str(known_error(of(errno.ENAMETOOLONG, "/" + "n" * 5000)))) < 500


def test_a_file_without_permission_to_read_could_not_be_read(tmp_path, monkeypatch):
    file, denied = tmp_path / "x", PermissionError(errno.EACCES, "Permission denied")
    assert cannot_open(file, denied).exit_code is ExitCode.NO_SPACE  # it was to be made
    file.touch()
    assert "could not be written" in str(cannot_open(file, denied))
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    assert "could not be written" in str(cannot_open(file, denied)), "it can be read"
    for hidden in (file, tmp_path):
        monkeypatch.setattr(os, "access", lambda path, _mode, hidden=hidden: path != hidden)
        error = cannot_open(file, denied)
        assert str(error).startswith(f"{file} could not be read: Permission denied.")
        assert error.exit_code is ExitCode.USAGE
    assert "disk is full" in str(cannot_open(file, OSError(errno.ENOSPC, "No space left on device")))
