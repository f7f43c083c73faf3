"""Keeps the system from going to sleep by itself while a job runs: systemd's inhibitors on Linux, Windows' API."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_ES_CONTINUOUS, _ES_SYSTEM_REQUIRED = 0x80000000, 0x00000001  # SetThreadExecutionState, winbase.h
_WAIT_S = 2.0


@contextmanager
def kept_awake(why: str) -> Iterator[None]:
    """Keep the system awake inside, where it lets itself be kept; the screen may turn off.

    Windows counts this for the thread that enters. Never raises: a job that cannot keep the system awake continues.

    Args:
        why: what is being done, which the system shows to the person.
    """
    if os.name == "nt":
        with _windows():
            yield
        return
    holder = _hold(why)
    try:
        yield
    finally:
        if holder is not None:
            _release(holder)


@contextmanager
def _windows() -> Iterator[None]:
    set_state = getattr(ctypes, "windll").kernel32.SetThreadExecutionState  # noqa: B009  only Windows has it
    set_state.argtypes = [ctypes.c_uint32]
    set_state(_ES_CONTINUOUS | _ES_SYSTEM_REQUIRED)
    try:
        yield
    finally:
        set_state(_ES_CONTINUOUS)


def _hold(why: str) -> subprocess.Popen[bytes] | None:
    """Start the process that holds systemd's lock; it ends with its standard input, and so with this process."""
    program = shutil.which("systemd-inhibit")
    if program is None:
        return None
    command = [program, "--what=sleep:idle", "--mode=block", "--who=Burnish", f"--why={why}", "cat"]
    with suppress(OSError):
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the job, which may continue to save
        )
    return None


def _release(holder: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        if holder.stdin is not None:
            holder.stdin.close()
    try:
        holder.wait(_WAIT_S)
    except subprocess.TimeoutExpired:
        holder.kill()
        holder.wait()
