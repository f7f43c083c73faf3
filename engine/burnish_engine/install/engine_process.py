"""Starts programs of an engine: which no setting of another Python leads astray, and which end when they are to."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

_NO_WINDOW: int = getattr(subprocess, "CREATE_NO_WINDOW", 0)
"""Flag with which Windows opens no console for a program."""
_LEADING_ASTRAY = ("PYTHON", "UV_", "PIP_", "CONDA_", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""Beginnings of the names of variables that make Python or uv read from, or write to, another place."""
_POLL_S = 0.1


def clean_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for an engine's programs, without what would lead them to another Python."""
    kept = {name: value for name, value in env.items() if not name.upper().startswith(_LEADING_ASTRAY)}
    return kept | {"PYTHONUTF8": "1"}


def run_program(
    command: Sequence[str],
    check: Callable[[], object],
    *,
    output: IO[bytes],
    errors: IO[bytes],
    timeout_s: float | None = None,
) -> int:
    """Run a program of an engine to its end; returns its exit code. It is killed where that does not come by itself.

    Args:
        command: program with its arguments.
        check: function that raises if the program is to end.
        output: file that takes its standard output.
        errors: file that takes its standard error.
        timeout_s: longest time it may take, seconds; None: any.

    Raises:
        OSError: The program cannot be started, or took too long (`TimeoutError`).
        StoppedError: The function raised it.
    """
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        env=clean_env(os.environ),
        creationflags=_NO_WINDOW,
    )
    try:
        while True:
            check()
            try:
                return child.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                if end_s is not None and time.monotonic() > end_s:
                    raise TimeoutError(f"it took longer than {timeout_s:.0f} s") from None
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
