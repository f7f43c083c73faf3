"""The end of a run's process that could not say itself how it ended, and what to do about it."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Literal

from pydantic import Field

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.record import Record

DeathCause = Literal["memory", "disk", "crash", "asked", "killed", "ended"]
"""memory: the kernel or Windows had none left. disk: no space. crash: a fault in a driver or library. asked: told to
end, too early to save. killed: from outside. ended: by itself, without a word."""

_CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGSYS")
_ASKED = ("SIGTERM", "SIGINT", "SIGHUP")
_NO_MEMORY_STATUS = (0xC0000017, 0xC000012D, 0xC000009A)
"""NTSTATUS: STATUS_NO_MEMORY, STATUS_COMMITMENT_LIMIT, STATUS_INSUFFICIENT_RESOURCES (MS-ERREF 2.3.1)."""


class ProcessEnd(Record):
    """Content of a run folder's `process_end.json`, written by the parent of a detached run's process."""

    v: Literal[1] = 1
    exit_status: int = Field(description="Exit status; negative: number of the signal. Windows: NTSTATUS of a crash.")
    memory_kills: int = Field(default=0, description="Processes that the kernel killed for want of memory just then.")
    t: float = Field(description="When it was seen, seconds since the epoch.")

    @property
    def cause(self) -> DeathCause:
        """Cause of the process's end."""
        name, status = self.signal_name, self.exit_status & 0xFFFFFFFF
        if (name == "SIGKILL" and self.memory_kills) or status in _NO_MEMORY_STATUS:
            return "memory"
        if self.exit_status == ExitCode.NO_SPACE:
            return "disk"
        if name in _CRASHES or (not name and status >= 0xC0000000):
            return "crash"
        if name:
            return "asked" if name in _ASKED else "killed"
        return "ended"

    @property
    def signal_name(self) -> str:
        """Name of the signal that ended the process; empty where none did."""
        if self.exit_status >= 0 or self.exit_status < -64:
            return ""
        with suppress(ValueError):
            return signal.Signals(-self.exit_status).name
        return f"signal {-self.exit_status}"


def end_text(end: ProcessEnd) -> str:
    """Write how a process ended in a sentence, without what to do."""
    return death_text(end)[0]


def death_text(end: ProcessEnd) -> tuple[str, str]:
    """Write how a process ended, and what to do, in a sentence each."""
    how = f"({end.signal_name})" if end.signal_name else f"(exit status {_status(end.exit_status)})"
    match end.cause:
        case "memory":
            return (
                f"The system killed its process {how} because the machine's memory was full.",
                "Close other programs, or lower train.micro_batch_tokens or data.max_length, before it continues.",
            )
        case "disk":
            return (
                f"Its process ended because the disk was full {how}.",
                "Free some space on the disk of the run folder before it continues.",
            )
        case "crash":
            return (
                f"Its process crashed {how}: a fault in the GPU driver or in a library.",
                "It can continue. If it crashes again, restart the machine and look at `burnish doctor`.",
            )
        case "asked":
            return f"Its process was told to end {how}, before it could save.", "It can continue."
        case "killed":
            return (
                f"Its process was killed from outside {how}: by a person, or by a program that guards memory.",
                "It can continue; close other programs first where memory was short.",
            )
        case _:
            return f"Its process ended without a word {how}.", "Its stderr.log may say more."


def _status(status: int) -> str:
    return f"{status & 0xFFFFFFFF:#x}" if not 0 <= status <= 255 else str(status)
