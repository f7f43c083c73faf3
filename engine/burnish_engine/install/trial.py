"""Tries an engine out before it is used: its torch, llama.cpp and Burnish load, and the GPU computes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from burnish_engine.contract.errors import SetupError
from burnish_engine.install.engine_process import run_program
from burnish_engine.install.machine.setup_checks import trial_problem

_TIMEOUT_S = 300.0
_MODULE = "burnish_engine.install.machine.torch_trial"


class _Answer(NamedTuple):
    code: int
    output: str
    errors: str

    def ending(self) -> str:
        """Return how it ended, in words."""
        return f"ended with code {self.code}: {self.errors[-300:]!r}"


def try_engine(python: Path, check: Callable[[], object], *, uses_gpu: bool) -> None:
    """Let an engine compute.

    Args:
        python: path of its Python.
        check: function that raises if the trial is to end.
        uses_gpu: whether its torch is one for a GPU.

    Raises:
        SetupError: The engine does not work; the message says which part.
        StoppedError: The function raised it.
    """
    done = _run(python, check, "-m", _MODULE, *(["--gpu"] if uses_gpu else []))
    try:
        report = json.loads(done.output.strip().splitlines()[-1])
    except (IndexError, ValueError):
        report = {"torch_error": f"Python {done.ending()}"}
    problem = trial_problem(
        report, wants_gpu=uses_gpu, must_run_triton=uses_gpu, env=os.environ, remake="Set the engine up again"
    )
    if problem:
        raise SetupError(problem)


def check_up(python: Path, check: Callable[[], object]) -> None:
    """Let an engine check this PC up, with its own kernels.

    Args:
        python: path of its Python.
        check: function that raises if the check-up is to end.

    Raises:
        SetupError: The engine does not call this PC ready.
        StoppedError: The function raised it.
    """
    done = _run(python, check, "-m", "burnish_engine.cli.main", "doctor", "--json")
    try:
        report = json.loads(done.output)
        is_ready, problems = bool(report["ready"]), [str(one) for one in report["problems"]]
    except (ValueError, KeyError, TypeError):
        is_ready, problems = False, [f"it {done.ending()}"]
    if not is_ready:
        found = "; ".join(problems) or "it names no reason"
        raise SetupError(f"The new engine's check-up failed: {found}.", "The engine from before stays in use.")


def _run(python: Path, check: Callable[[], object], *arguments: str) -> _Answer:
    try:
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            command = [str(python), "-P", *arguments]
            code = run_program(command, check, output=output, errors=errors, timeout_s=_TIMEOUT_S)
            for file in (output, errors):
                file.seek(0)
            said, failed = (file.read().decode("utf-8", errors="replace") for file in (output, errors))
            return _Answer(code, said, failed)
    except OSError as error:
        raise SetupError(f"The new engine does not start: {error}.", "Restart the PC and try again.") from error
