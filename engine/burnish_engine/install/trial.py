"""Tries an engine out before it is used: its torch, llama.cpp and Burnish load, and the GPU computes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from burnish_engine.contract.errors import SetupError
from burnish_engine.install.engine_process import NO_WINDOW, clean_env
from burnish_engine.install.machine.setup_checks import trial_problem

_TIMEOUT_S = 300
_MODULE = "burnish_engine.install.machine.torch_trial"


def try_engine(python: Path, *, uses_gpu: bool) -> None:
    """Let an engine compute.

    Args:
        python: path of its Python.
        uses_gpu: whether its torch is one for a GPU.

    Raises:
        SetupError: The engine does not work; the message says which part.
    """
    done = _run(python, "-m", _MODULE, *(["--gpu"] if uses_gpu else []))
    try:
        report = json.loads(done.stdout.decode("utf-8", errors="replace").strip().splitlines()[-1])
    except (IndexError, ValueError):
        report = {"torch_error": f"Python ended with code {done.returncode}: {done.stderr[-300:]!r}"}
    problem = trial_problem(
        report, wants_gpu=uses_gpu, must_run_triton=uses_gpu, env=os.environ, remake="Set the engine up again"
    )
    if problem:
        raise SetupError(problem)


def check_up(python: Path) -> None:
    """Let an engine check this PC up, with its own kernels.

    Args:
        python: path of its Python.

    Raises:
        SetupError: The engine does not call this PC ready.
    """
    done = _run(python, "-m", "burnish_engine.cli.main", "doctor", "--json")
    try:
        report = json.loads(done.stdout.decode("utf-8", errors="replace"))
        is_ready, problems = bool(report["ready"]), [str(one) for one in report["problems"]]
    except (ValueError, KeyError, TypeError):
        is_ready, problems = False, [f"it ended with code {done.returncode}: {done.stderr[-300:]!r}"]
    if not is_ready:
        found = "; ".join(problems) or "it names no reason"
        raise SetupError(f"The new engine's check-up failed: {found}.", "The engine from before stays in use.")


def _run(python: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [str(python), "-P", *arguments],
            env=clean_env(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            creationflags=NO_WINDOW,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"The new engine does not start: {error}.", "Restart the PC and try again.") from error
