"""Run the check-up in a child process: it can be ended at any moment, and a driver that hangs affects nothing else."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import IO

from pydantic import ValidationError

from burnish_engine.channel.job import Job
from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.machine import Checkup
from burnish_engine.runs.process import end_tree

_POLL_S = 0.1


def check_up_in_child(job: Job, *, bandwidth: bool) -> Checkup:
    """Run `burnish doctor`.

    Args:
        job: request; canceling it ends the check-up.
        bandwidth: whether to measure copies between GPUs too.

    Raises:
        SetupError: The check-up ended without an answer.
        StoppedError: Canceled.
    """
    command = [sys.executable, "-P", "-m", "burnish_engine.cli.main", "doctor", "--json"]
    # Files, not pipes: nobody must drain them, and handles that the child's own children keep open do not matter.
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [*command, *(["--bandwidth"] if bandwidth else [])], stdin=subprocess.DEVNULL, stdout=said, stderr=errors
        )
        try:
            _wait(child, job)
        finally:
            _end(child)
        try:
            return Checkup.model_validate_json(_content(said))
        except ValidationError:
            last = (_content(errors).decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
            raise SetupError(
                f"The check-up ended without an answer (exit status {child.returncode}): {last}",
                "Run `burnish doctor` in a terminal.",
            ) from None


def _wait(child: subprocess.Popen[bytes], job: Job) -> None:
    while True:
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=_POLL_S)
            return
        job.check()


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and the processes that it started."""
    if child.poll() is not None:
        return
    end_tree(child.pid)
    child.kill()
    child.wait()


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
