"""Errors a person can act on, and the one table of exit codes.

Every expected failure is a `BurnishError`: one paragraph that says what happened, the value found, and what to do. The
command line prints the paragraph and exits with the error's code; the traceback goes to the log only.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Process exit codes. Scripts and the app rely on them; never renumber."""

    DONE = 0
    BUG = 1
    USAGE = 2
    DOES_NOT_FIT = 10
    DATA = 11
    ENVIRONMENT = 12
    DIVERGED = 13
    FIDELITY = 14
    NO_SPACE = 15
    LEASED = 16
    DRIVER = 17
    STOPPED = 20


EXIT_CODE_MEANINGS: dict[ExitCode, str] = {
    ExitCode.DONE: "done",
    ExitCode.BUG: "a bug in Burnish",
    ExitCode.USAGE: "usage or recipe",
    ExitCode.DOES_NOT_FIT: "out of memory, or does not fit",
    ExitCode.DATA: "data",
    ExitCode.ENVIRONMENT: "environment (driver, GPU, missing part)",
    ExitCode.DIVERGED: "diverged or not training",
    ExitCode.FIDELITY: "the fidelity gate refused the file",
    ExitCode.NO_SPACE: "no space, or a file could not be written",
    ExitCode.LEASED: "the device is leased to another run",
    ExitCode.DRIVER: "the GPU or its driver failed",
    ExitCode.STOPPED: "stopped by the user",
}


class BurnishError(Exception):
    """An expected failure.

    Args:
        what: event with the value found, as a sentence.
        remedy: advice what the person can do about it, as a sentence.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.BUG

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}".strip()


class UsageError(BurnishError):
    """The command or the recipe asks for something that cannot be."""

    exit_code = ExitCode.USAGE


class DoesNotFitError(BurnishError):
    """The memory does not suffice for what was asked."""

    exit_code = ExitCode.DOES_NOT_FIT


class DataError(BurnishError):
    """The dataset cannot be read, understood or learned from."""

    exit_code = ExitCode.DATA


class SetupError(BurnishError):
    """The machine lacks a working part: driver, GPU, library, model file."""

    exit_code = ExitCode.ENVIRONMENT


class DivergedError(BurnishError):
    """The run produced non-finite numbers or is not learning."""

    exit_code = ExitCode.DIVERGED


class FidelityError(BurnishError):
    """An exported file does not do what the trained model does."""

    exit_code = ExitCode.FIDELITY


class NoSpaceError(BurnishError):
    """A file could not be written."""

    exit_code = ExitCode.NO_SPACE


class LeasedError(BurnishError):
    """Another run holds the device."""

    exit_code = ExitCode.LEASED


class DriverError(BurnishError):
    """The GPU or its driver failed while it worked."""

    exit_code = ExitCode.DRIVER


class StoppedError(BurnishError):
    """The person stopped it."""

    exit_code = ExitCode.STOPPED
