"""Writes down how a process ended: as its parent, which alone learns the signal, or as a child that outlives it.

A detached run has a parent for that. A run in a terminal has none of ours, so a child watches it: the pipe between them
closes when it dies. It runs as a program (`python -m`) and imports the standard library alone, so that it takes little
beside a run. Of a run that died it also starts what waits in the queue, as the run itself would have done.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

KEPT = "KEPT_BY_BURNISH"
"""Environment variable of a process whose parent writes down how it ends."""
_WATCH = "--watch"
_LOG_BYTES = 1_000_000
_CRASH_WORDS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
}
"""Lines of Python's crash handler for each signal."""
_ENDS_MS = 5000
_SYNCHRONIZE, _QUERY_LIMITED = 0x00100000, 0x1000  # PROCESS_QUERY_LIMITED_INFORMATION
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
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, KEPT: "1"})
    signal.signal(signal.SIGTERM, lambda number, _frame: process.send_signal(number))
    while True:
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(_LOOK_S)
            break
        before = _memory_kills()
    kills = max(_memory_kills() - before, 0)
    _write(record, {"v": 1, "exit_status": status, "memory_kills": kills, "t": time.time()})
    if status != 0:  # Windows does not tell an end by force from a failure
        start_queue()
    return status if status >= 0 else 128 - status


def watch(pid: int, record: Path, log: Path, written: int) -> int:
    """Wait until the process that started us has ended, and write down how if it could not say so itself.

    Args:
        pid: id of that process; between us there may be a virtual environment's launcher.
        record: file for the record of the end.
        log: file to which the parent's crash handler writes.
        written: bytes that the log had before.
    """
    _write(record, {})
    handle = _windows_handle(pid)
    before = _memory_kills()
    if sys.stdin.buffer.read():  # it says goodbye; where it dies, the pipe just closes
        return 0
    kills = max(_memory_kills() - before, 0)
    status = _windows_status(handle) if handle else _signal_of(log, written, kills)
    _write(record, {"v": 1, "exit_status": status, "memory_kills": kills, "t": time.time()})
    start_queue()
    return 0


def start_queue() -> None:
    """Let a process of its own start the runs that wait for a free device. Does not wait for it, never raises.

    A reserved lease names our own process as its owner, so the device may only be free once we have ended.
    """
    command = [sys.executable, "-P", "-m", "burnish_engine.cli.main", "runs", "queue"]
    with suppress(OSError):
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **_own_group()
        )


@contextmanager
def watched(record: Path, log: Path) -> Iterator[None]:
    """Let a child write down how this process ended if it dies inside; nothing where a parent does that already.

    Args:
        record: file for the record of the end.
        log: file to which a crash writes where it happened.
    """
    if KEPT in os.environ:
        yield
        return
    command = [sys.executable, "-P", "-S", __file__, _WATCH, str(os.getpid()), str(record), str(log)]
    with ExitStack() as stack:
        with suppress(OSError, RuntimeError):  # no log, or no more processes: then nobody watches
            crashes = stack.enter_context(log.open("ab"))
            command.append(str(crashes.seek(0, os.SEEK_END)))
            if not faulthandler.is_enabled():  # else whoever enabled it reads what a crash writes
                faulthandler.enable(crashes)
                stack.callback(faulthandler.disable)
            watcher = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **_own_group()
            )
            stack.callback(_say_goodbye, watcher)
        yield


def _own_group() -> dict[str, Any]:
    """Return arguments of `Popen` with which Ctrl-C and a closed terminal are not for the new process."""
    if os.name == "nt":
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    return {"start_new_session": True}


def _say_goodbye(watcher: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        watcher.communicate(b"done")


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


def _signal_of(log: Path, written: int, kills: int) -> int:
    """Conclude the signal that ended a process without a word: one that writes no crash to its log was killed."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(written)
        text = "" if kills else file.read(_LOG_BYTES).decode("utf-8", errors="replace")
        for words, name in _CRASH_WORDS.items():
            if f"Fatal Python error: {words}" in text:
                return -int(getattr(signal, name, signal.SIGABRT))
    return -int(getattr(signal, "SIGKILL", 9))


def _windows_handle(pid: int) -> int:
    """Open a process on Windows, so that its exit status can be read after its end; 0 elsewhere."""
    if sys.platform == "win32":
        import _winapi

        with suppress(OSError):
            return int(_winapi.OpenProcess(_SYNCHRONIZE | _QUERY_LIMITED, False, pid))
    return 0


def _windows_status(handle: int) -> int:
    """Read the exit status of an opened process once it has ended; 0 elsewhere than on Windows."""
    if sys.platform == "win32":
        import _winapi

        _winapi.WaitForSingleObject(handle, _ENDS_MS)
        return int(_winapi.GetExitCodeProcess(handle))
    return 0


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
    if sys.argv[1] == _WATCH:
        sys.exit(watch(int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5])))
    sys.exit(main(sys.argv[1:]))
