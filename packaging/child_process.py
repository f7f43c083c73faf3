"""Starts other programs: with a clean environment, output into a log file, signs of life, and Ctrl-C passed on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

_HEARTBEAT_S = 60.0
_GRACE_S = 10.0
# What would make the virtual environment's Python or pip read from, or write to, another place.
_DROPPED = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__", "CONDA_PREFIX")
_DROPPED_PIP = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_REQUIRE_VIRTUALENV", "PIP_DRY_RUN")


def say(text: str) -> None:
    """Print one line of progress. It goes to stderr: stdout belongs to the command that is started afterwards."""
    print(text, file=sys.stderr, flush=True)


def child_env(env: Mapping[str, str], venv: Path) -> dict[str, str]:
    """The environment for programs of the virtual environment: the caller's, without what would lead them astray."""
    clean = {key: value for key, value in env.items() if key not in _DROPPED}
    scripts = venv / ("Scripts" if os.name == "nt" else "bin")
    clean["PATH"] = os.pathsep.join([str(scripts), *([clean["PATH"]] if clean.get("PATH") else [])])
    clean["VIRTUAL_ENV"] = str(venv)
    clean["PYTHONUTF8"] = "1"
    return clean


def pip_env(env: Mapping[str, str], venv: Path) -> dict[str, str]:
    """`child_env` for pip. Its settings for indexes, proxies and certificates stay; those for other targets go."""
    clean = {key: value for key, value in child_env(env, venv).items() if key not in _DROPPED_PIP}
    return clean | {"PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def run_logged(command: Sequence[str], log: Path, env: Mapping[str, str], doing: str) -> int:
    """Run a program with its output appended to a log; say every minute that it is still at it.

    Args:
        command: program and its arguments.
        log: file that the output is appended to.
        env: whole environment of the program.
        doing: phrase for the signs of life, such as "installing packages".

    Returns:
        Its exit code.
    """
    started = time.monotonic()
    with log.open("ab") as sink:
        sink.write(f"\n$ {' '.join(command)}\n".encode())
        sink.flush()
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=dict(env)) as child:
            try:
                while True:
                    try:
                        return child.wait(_HEARTBEAT_S)
                    except subprocess.TimeoutExpired:
                        say(f"    still {doing}, {time.monotonic() - started:.0f} s")
            except KeyboardInterrupt:
                end(child)
                raise


def tail(log: Path, lines: int = 25) -> str:
    """The last lines of a log file."""
    if not log.is_file():
        return ""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def interrupt_on_sigterm() -> None:
    """Treat a polite request to end like Ctrl-C, so that a running pip is ended too and not left behind."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def become(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Hand over to a program: on POSIX this process becomes it; on Windows it waits for it.

    Returns:
        The program's exit code (only on Windows; elsewhere this does not return).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name != "nt":
        os.execve(command[0], list(command), dict(env))  # noqa: S606 - a list, and no shell
    return run_attached(command, env)


def run_attached(command: Sequence[str], env: Mapping[str, str], cwd: Path | None = None) -> int:
    """Run a program on this terminal; returns its exit code.

    Ctrl-C reaches the program directly, and its own answer to that is waited for; a request to end is passed on.
    """
    with subprocess.Popen(command, env=dict(env), cwd=cwd) as child:
        signal.signal(signal.SIGTERM, lambda _number, _frame: child.terminate())
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                continue


def end(child: subprocess.Popen[bytes]) -> None:
    """End a program politely, and by force where it does not listen."""
    child.terminate()
    try:
        child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
