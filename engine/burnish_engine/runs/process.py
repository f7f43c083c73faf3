"""Processes: who owns a run, is it alive, and starting an engine process that outlives its parent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

_SAME_CREATION_S = 1.0  # psutil's creation times of one process differ by rounding only


def own_identity() -> tuple[int, float]:
    """This process's pid and creation time (seconds since the epoch). Together they survive pid reuse."""
    process = psutil.Process()
    return process.pid, process.create_time()


def is_alive(pid: int | None, created: float | None) -> bool:
    """Whether the process with this pid and creation time still runs (a zombie does not)."""
    if pid is None or created is None:
        return False
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < _SAME_CREATION_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def start_detached(arguments: list[str], stdout: Path, stderr: Path) -> int:
    """Start `burnish ARGUMENTS` so that it survives this process; its output goes to files, never to a pipe.

    Returns:
        The pid of the new process.
    """
    command = [sys.executable, "-m", "burnish_engine.cli.main", *arguments]
    with stdout.open("ab") as out, stderr.open("ab") as err:
        if os.name == "nt":
            flags = (
                getattr(subprocess, "DETACHED_PROCESS", 0)
                | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
                | getattr(subprocess, "CREATE_BREAKAWAY_FROM_JOB", 0)
            )
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, creationflags=flags, close_fds=True
            )
        else:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, close_fds=True
            )
    return process.pid
