"""Runs programs that nobody has read, such as those that a model wrote, each in a process of its own (`code_cell`)."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from burnish_engine.contract.errors import SetupError

_MODULE = "burnish_engine.data.sandbox.code_cell"
_OUTPUT_BYTES = 64 * 1024
_START_S = 20.0  # wall time that the start of a process may take on a busy machine
_PATIENCE = 5.0  # times the processor time that a program may take by the clock
_MOST_AT_ONCE = 16
_KEPT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TEMP", "TMP")
"""Variables that Python needs to start; others may hold tokens."""


@dataclass(frozen=True)
class CodeLimits:
    """Limits of a program.

    Attributes:
        seconds: processor time.
        memory_bytes: address space.
        isolated: whether it runs without network, other processes and files; else with these limits alone.
    """

    seconds: float = 5.0
    memory_bytes: int = 512 * 2**20
    isolated: bool = True


@dataclass(frozen=True)
class CodeOutcome:
    """The end of a program.

    Attributes:
        finished: whether it ran to its last line, without an error and within the limits.
        output: what it printed; shortened where it is too long.
    """

    finished: bool
    output: str


def run_programs(programs: Sequence[str], limits: CodeLimits) -> list[CodeOutcome]:
    """Run Python programs, several at once.

    Raises:
        SetupError: The system does not let a process be set apart, or a process does not start.
    """
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_AT_ONCE)) as pool:
        return list(pool.map(lambda program: _run(program, limits), programs))


def _run(program: str, limits: CodeLimits) -> CodeOutcome:
    done, refused = secrets.token_hex(16), secrets.token_hex(16)
    asked = {
        "program": program,
        "memory_bytes": limits.memory_bytes,
        "seconds": limits.seconds,
        "output_bytes": _OUTPUT_BYTES,
        "isolated": limits.isolated,
        "refused": refused,
        "done": done,
    }
    # A file, not a pipe: its size can be limited, and nobody must drain it.
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryFile() as output:
        child = _start(empty, output.fileno())
        try:
            child.communicate(json.dumps(asked).encode(), timeout=_START_S + _PATIENCE * limits.seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end(child)
        output.seek(0)
        text = output.read(2 * _OUTPUT_BYTES).decode("utf-8", "replace")
    if text.startswith(refused):
        raise SetupError(
            f"This system does not let code of a model be set apart from your files: {text.removeprefix(refused)}.",
            'Allow user namespaces (Linux), or set reward.isolation = "limits", which only limits memory and time: '
            "the code then has your rights.",
        )
    return CodeOutcome(child.returncode == 0 and text.endswith(done), text.removesuffix(done))


def _start(empty: str, output: int) -> subprocess.Popen[bytes]:
    # A session (group) of its own keeps Ctrl-C in a terminal from the child, which this process ends itself.
    windows = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-X", "utf8", "-m", _MODULE, empty],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            start_new_session=os.name != "nt",
            creationflags=windows,
        )
    except OSError as error:
        raise SetupError(
            f"The process for a model's code did not start: {error.strerror or error}.",
            "Close other programs and try again.",
        ) from error


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a program and what it started; those of Windows start nothing."""
    if sys.platform != "win32":
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.communicate()
