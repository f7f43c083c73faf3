"""Starts a process, waits for it and writes down how it ended: only its parent learns the signal that killed it.

It runs as a program (`python -m`) and imports the standard library alone, so that it takes little beside a run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

_RECORD_BYTES = 512  # written at the start, so that a full disk has room for the end
_LOOK_S = 5.0
_CONTROL_GROUP = Path("/proc/self/cgroup")


def main(arguments: list[str]) -> int:
    """Run a command to its end.

    Args:
        arguments: file for the record of the end, then the command.

    Returns:
        Exit status of the command; 128 and the signal's number where a signal ended it.
    """
    record, command = Path(arguments[0]), arguments[1:]
    _write(record, {})
    for name in ("SIGINT", "SIGHUP", "SIGBREAK", "SIGTERM"):  # the whole group gets them; a handler is not inherited
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _outlive)
    before = _memory_kills()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda number, _frame: process.send_signal(number))
    while True:
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(_LOOK_S)
            break
        before = _memory_kills()
    kills = max(_memory_kills() - before, 0)
    _write(record, {"v": 1, "exit_status": status, "memory_kills": kills, "t": time.time()})
    return status if status >= 0 else 128 - status


def _outlive(_number: int, _frame: FrameType | None) -> None:
    """Ignore a signal: the process that is waited for decides what it means."""


def _write(record: Path, content: dict[str, object]) -> None:
    """Write the record over its former bytes; a run folder that is gone or full is no reason to fail."""
    with suppress(OSError):
        descriptor = os.open(record, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        try:
            os.write(descriptor, json.dumps(content).encode().ljust(_RECORD_BYTES - 1) + b"\n")
        finally:
            os.close(descriptor)


def _memory_kills() -> int:
    """Count the processes that the kernel has killed for want of memory, in our control group and in the machine."""
    found = 0
    for file in (_control_group_events(), Path("/proc/vmstat")):
        with suppress(OSError, ValueError):
            counts = dict(line.split() for line in file.read_text(encoding="utf-8").splitlines())
            found += int(counts.get("oom_kill", 0))
    return found


def _control_group_events() -> Path:
    """Find the file with our control group's events (cgroups(7), version 2)."""
    with suppress(OSError):
        for line in _CONTROL_GROUP.read_text(encoding="utf-8").splitlines():
            number, _, group = line.split(":", 2)
            if number == "0":
                return Path("/sys/fs/cgroup") / group.lstrip("/") / "memory.events"
    return Path("/sys/fs/cgroup/memory.events")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
