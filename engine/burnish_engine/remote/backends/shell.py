"""Runs commands of a POSIX shell, on a host over ssh or on this machine.

ssh is the person's own client with its own configuration: keys, agent, jump hosts and known hosts are what they are
without Burnish. It never asks for a password (BatchMode) and never accepts a host's unknown key.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Protocol, Self

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.units import file_size
from burnish_engine.remote.backends.backend import DroppedError
from burnish_engine.runs.process import end_tree

SSH_VARIABLE = "BURNISH_SSH_COMMAND"
"""Environment variable with another ssh command, such as "ssh -F FILE"."""
_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15",
            "-o", "ServerAliveCountMax=3")  # fmt: skip
_SSH_FAILED = 255  # exit status of ssh itself: ssh(1)
_NO_PROGRAM = 127  # exit status of a shell that does not find a command: POSIX, 2.8.2
_REFUSALS = ("Permission denied", "Host key verification failed", "Could not resolve hostname", "no matching")
Feed = Callable[[IO[bytes]], None]
"""Function that writes the standard input of a script."""
_SHOWN = 800
_ANSWER_S, _MEASURE_S = 120.0, 0.5
_LONGEST_ANSWER = 64 * 2**20  # bytes
_LONGEST_LINE, _LONGEST_ERROR = 64 * 2**20, 10_000  # bytes; a longer line comes in pieces, which nobody can read


class Shell(Protocol):
    """A host that runs commands."""

    @property
    def host(self) -> str:
        """Name of the host, for people."""
        ...

    def command(self, script: str) -> list[str]:
        """Return the local command line that runs a script there."""
        ...


class LocalShell:
    """Runs commands on this machine."""

    host = "this machine"

    def command(self, script: str) -> list[str]:
        """Return the command line that runs a script."""
        return ["sh", "-c", script]


class SshShell:
    """Runs commands on a host.

    Args:
        host: host as the person's ssh knows it.
    """

    def __init__(self, host: str) -> None:
        self.host = host

    def command(self, script: str) -> list[str]:
        """Return the command line that runs a script there."""
        named = shlex.split(os.environ.get(SSH_VARIABLE, "ssh"), posix=os.name != "nt")
        own = [word.strip('"') for word in named] if os.name == "nt" else named  # a backslash is no escape there
        return [*own, *_OPTIONS, "--", self.host, script]


def run(shell: Shell, script: str, *, feed: Feed | None = None, wait_s: float = _ANSWER_S) -> str:
    """Run a script to its end and return what it printed; the rest is that of `run_into`."""
    with tempfile.TemporaryFile() as out:
        run_into(shell, script, out, feed=feed, wait_s=wait_s)
        out.seek(0)
        return out.read().decode("utf-8", errors="replace")


def run_into(
    shell: Shell,
    script: str,
    out: IO[bytes],
    *,
    feed: Feed | None = None,
    wait_s: float = _ANSWER_S,
    most_bytes: int = _LONGEST_ANSWER,
) -> None:
    """Run a script to its end, with its output in a file.

    Args:
        shell: where to run it.
        script: script for a POSIX shell.
        out: file of this machine.
        feed: function that writes its standard input; None: it gets none. An `OSError` of its own is taken for the
            connection's.
        wait_s: time after which the connection counts as broken, seconds.
        most_bytes: largest output, bytes; a script that prints more is ended.

    Raises:
        DroppedError: The host cannot be reached just now.
        SetupError: The host refuses us, the script failed, or it printed too much.
    """
    with _process(shell, script, out, feeds=feed is not None) as (process, errors):
        if feed is not None and process.stdin is not None:
            with _Patience(shell, process, wait_s) as patience:
                with suppress(OSError):  # it ended before (EINVAL on Windows): its status says why
                    feed(process.stdin)
                with suppress(OSError):
                    process.stdin.close()
            patience.check()
        _check(shell, _wait(shell, process, out, wait_s, most_bytes), errors)


def _wait(shell: Shell, process: subprocess.Popen[bytes], out: IO[bytes], wait_s: float, most_bytes: int) -> int:
    """Wait for the end of a script and return its status; its output is measured meanwhile."""
    last, status = time.monotonic() + wait_s, None
    while status is None:
        left = last - time.monotonic()
        if left <= 0:
            raise DroppedError(f"{shell.host} did not answer within {wait_s:.0f} s")
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(min(left, _MEASURE_S))
        if os.fstat(out.fileno()).st_size > most_bytes:
            raise SetupError(
                f"{shell.host} sent more than {file_size(most_bytes)}.", "Look there, and make room on this disk."
            )
    return status


def stream(shell: Shell, script: str, *, silence_s: float = _ANSWER_S) -> Iterator[str]:
    """Run a script and yield its lines as they come; closing the iterator ends the script's connection.

    Args:
        shell: where to run it.
        script: script for a POSIX shell, which prints something more often than `silence_s`.
        silence_s: time without a line after which the connection counts as broken, seconds.

    Raises:
        DroppedError: The connection broke, or nothing came for too long.
        SetupError: The host refuses us, or the script failed.
    """
    with _process(shell, script, subprocess.PIPE, feeds=False) as (process, errors):
        if process.stdout is None:
            raise AssertionError("it was asked for a pipe")
        while True:
            with _Patience(shell, process, silence_s) as patience:
                line = process.stdout.readline(_LONGEST_LINE)
            patience.check()
            if not line:
                break
            yield line.decode("utf-8", errors="replace").rstrip("\n")
        _check(shell, process.wait(), errors)


class _Patience:
    """Ends a script that keeps us waiting for longer than a limit, so that what waits for it continues."""

    def __init__(self, shell: Shell, process: subprocess.Popen[bytes], limit_s: float) -> None:
        self._host, self._limit_s, self._ran_out = shell.host, limit_s, False
        self._process = process
        self._timer = threading.Timer(limit_s, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def check(self) -> None:
        """Raise DroppedError where the limit was reached."""
        if self._ran_out:
            raise DroppedError(f"nothing came from {self._host} for {self._limit_s:.0f} s")

    def _end(self) -> None:
        self._ran_out = True
        end_tree(self._process.pid)


@contextmanager
def _process(
    shell: Shell, script: str, out: IO[bytes] | int, *, feeds: bool
) -> Iterator[tuple[subprocess.Popen[bytes], list[bytes]]]:
    """Start a script; its error output is collected meanwhile, and it is ended where nobody waits for it."""
    try:
        process = subprocess.Popen(
            shell.command(script),
            stdin=subprocess.PIPE if feeds else subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        if isinstance(shell, SshShell):
            raise SetupError(f"ssh could not be started: {error}.", "Install an OpenSSH client.") from None
        raise SetupError(
            f"A command on {shell.host} could not be started: {error}.",
            "It needs a POSIX shell, as Linux and WSL have.",
        ) from None
    errors: list[bytes] = []
    collector = threading.Thread(target=_collect, args=(process.stderr, errors), daemon=True)
    collector.start()
    try:
        yield process, errors
    finally:
        if process.poll() is None:
            end_tree(process.pid)  # a shell's commands too: one that prints without end would fill the disk
            process.wait()
        collector.join(1.0)
        for pipe in (process.stdout, process.stderr, process.stdin):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _collect(pipe: IO[bytes] | None, into: list[bytes]) -> None:
    with suppress(OSError, ValueError):
        while pipe is not None and (line := pipe.readline(_LONGEST_ERROR)):
            into.append(line)
            del into[:-50]


def _check(shell: Shell, status: int, errors: list[bytes]) -> None:
    if status == 0:
        return
    for _ in range(20):  # the collector is a moment behind
        if errors:
            break
        threading.Event().wait(0.02)
    text = b"".join(errors).decode("utf-8", errors="replace").strip()[-_SHOWN:] or f"status {status}"
    if status == _SSH_FAILED and isinstance(shell, SshShell):
        if any(refusal in text for refusal in _REFUSALS):
            raise SetupError(
                f"ssh does not get into {shell.host}: {text}.",
                f"Make `ssh {shell.host}` work without a question: accept its key, and use a key with an agent.",
            )
        raise DroppedError(text)
    if status == _NO_PROGRAM:
        raise SetupError(f"A program is missing on {shell.host}: {text}.", "Install it there, or name another place.")
    raise SetupError(f"A command on {shell.host} failed: {text}.", "Look there, then try again.")
