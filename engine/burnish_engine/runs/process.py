"""Identify processes, check whether they are alive, and start a detached engine process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

_HIGHEST_PID = 2**31 - 1
_SAME_CREATION_S = 1.0  # two readings of one process's creation time differ by rounding only


def own_identity() -> tuple[int, float]:
    """Return this process's pid and creation time, which together identify it even after the pid is reused."""
    return identity(os.getpid())


def identity(pid: int) -> tuple[int, float]:
    """Return a process's pid and creation time (see `_created`).

    Raises:
        psutil.NoSuchProcess: There is no such process.
    """
    return pid, _created(psutil.Process(pid))


def is_alive(pid: int | None, created: float | None) -> bool:
    """Whether the process with this pid and creation time still runs (a zombie does not)."""
    if pid is None or created is None or not 0 < pid <= _HIGHEST_PID:  # a file that holds them may be damaged
        return False
    try:
        process = psutil.Process(pid)
        same = abs(_created(process) - created) < _SAME_CREATION_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _created(process: psutil.Process) -> float:
    """Read when a process began: on Linux seconds since boot, elsewhere seconds since the epoch.

    On Linux psutil adds the time of boot, which moves whenever the clock is set (after boot, after a suspend), so that
    a live process would look like another one.
    """
    with suppress(OSError, ValueError, IndexError):
        # Field 22 of /proc/PID/stat, counted after the command name, which may hold spaces: proc(5).
        stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return process.create_time()


def end_tree(pid: int) -> None:
    """End a process and those that it started, at once; one that is gone already is no error."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (*process.children(recursive=True), process):
            with suppress(psutil.Error):
                one.kill()


def start_detached(
    arguments: list[str],
    stdout: Path,
    stderr: Path,
    end: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Start `burnish ARGUMENTS` so that it survives this process; its output goes to files, never to a pipe.

    Args:
        arguments: arguments of the command line.
        stdout: file for its output.
        stderr: file for its errors.
        end: file in which a parent of its own records how it ended; None: nobody does.
        environment: variables that it has beside those of this process.

    Returns:
        Pid of the new process, or of its parent, which lives equally long (as a Windows virtual environment's does).
    """
    # -P, as wherever we start one: a json.py in the person's working folder must not be imported.
    python = [sys.executable, "-P", "-m"]
    if os.name != "nt":  # a crash writes its stack to the log; on Windows errors that libraries handle would too
        python[2:2] = ["-X", "faulthandler"]
    command = [*python, "burnish_engine.cli.main", *arguments]
    if end is not None:
        command = [*python, "burnish_engine.runs.jobs.keeper", str(end), *command]
    variables = {**os.environ, **(environment or {})}
    with stdout.open("ab") as out, stderr.open("ab") as err:
        if os.name != "nt":
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=variables, start_new_session=True
            ).pid
        # A hidden console, not none (DETACHED_PROCESS): a virtual environment's launcher starts the real Python, and
        # the engine starts workers; without a console to inherit each would open a window.
        detached = getattr(subprocess, "CREATE_NO_WINDOW", 0) | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        for flags in (detached | getattr(subprocess, "CREATE_BREAKAWAY_FROM_JOB", 0), detached):
            with suppress(PermissionError):  # some jobs forbid breaking away
                return subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=variables, creationflags=flags
                ).pid
    raise OSError("the system refuses to start a detached process")
