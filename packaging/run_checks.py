"""`bootstrap.py test`: linters, then the type checker and the tests side by side, since many wait for processes.

Without arguments these are the quick tests, chosen by which faults they catch; `--all` leaves out none but the long.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from child_process import end, run_attached

_DEFAULTS = {"HF_HUB_OFFLINE": "1", "QT_QPA_PLATFORM": "offscreen"}
_CACHED = {"PYTHONDONTWRITEBYTECODE": ""}
"""Whatever the caller sets: the tests start hundreds of processes, and each would compile the source anew."""
_INTERPRETED = {"TRITON_INTERPRET": "1"}
_MOST_WORKERS = 4
"""Processes that share the tests of one part; each may hold 3 GB."""
_OF_KERNELS = ("tests/kernels", "tests/engine/models/decoder/test_fused_mlp.py")
"""Tests that run in Triton's interpreter; in all others operations run their references, as without a GPU."""
_ALL = "--all"
_EVERY_TEST = "not gpu and not long"
_QUICK_TESTS = f"{_EVERY_TEST} and not full"
_POLL_S = 0.1


@dataclass(frozen=True)
class Check:
    """A program that passes when it returns 0.

    Attributes:
        arguments: the module that Python runs, and its arguments.
        env: variables that it has unless the environment of all checks sets them.
    """

    arguments: Sequence[str]
    env: Mapping[str, str]


def run_checks(root: Path, python: str, env: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Run the linters and the quick tests, or with `--all` all tests, or with other arguments pytest alone.

    Args:
        root: the repository.
        python: the virtual environment's Python.
        env: the environment of all checks; what it sets goes before the defaults here, but for the cache of bytecode.
        arguments: arguments for pytest; it gets them instead of its usual ones.

    Returns:
        The exit code of the first linter that failed, else of the first other check that did.
    """
    env = {**_DEFAULTS, **env, **_CACHED}
    every = list(arguments) == [_ALL]
    if arguments and not every:
        paths = [Path(argument.partition("::")[0]).as_posix() for argument in arguments]
        of_kernels = any(path.startswith(_OF_KERNELS) for path in paths) and "gpu" not in arguments
        extra = _INTERPRETED if of_kernels else {}
        return run_attached([python, "-m", "pytest", *arguments], {**extra, **env}, cwd=root)
    began, began_s = os.times(), time.monotonic()
    for linter in (["ruff", "check", "."], ["ruff", "format", "--check", "."]):
        print(f"$ {' '.join(linter)}", flush=True)
        code = run_attached([python, "-m", *linter], env, cwd=root)
        if code:
            return code
    setup_code = [path.relative_to(root).as_posix() for path in sorted((root / "packaging").rglob("*.py"))]
    setup_path = os.pathsep.join(["packaging", "packaging/release"])
    types = [Check(["mypy"], {}), Check(["mypy", *setup_code], {"MYPYPATH": setup_path})]
    rest, *others = test_parts(os.cpu_count() or 1, every=every)
    codes = run_side_by_side([[rest], [*types, *others]], root, python, env)
    if any(codes):
        print(f"{sum(map(bool, codes))} of {len(codes)} checks failed.", flush=True)
    print(_cost(began, time.monotonic() - began_s), flush=True)
    return next((code for code in codes if code), 0)


def _cost(began: os.times_result, wall_s: float) -> str:
    """Return what the checks took: processor time of them and all they started, time by the clock, and the load."""
    now = os.times()
    took = now.children_user + now.children_system - began.children_user - began.children_system
    parts = [f"{wall_s / 60:.1f} min by the clock"]
    if took:  # Windows does not count children
        parts.insert(0, f"{took / 60:.1f} min of processor time")
    if hasattr(os, "getloadavg"):
        parts.append(f"load {os.getloadavg()[2]:.1f} over the last 15 min on {os.cpu_count()} cores")
    return f"The checks took {', '.join(parts)}."


def test_parts(cores: int, *, every: bool) -> tuple[Check, Check, Check, Check]:
    """Return the tests but those of the app and the kernels, then these, each part for a pytest of its own.

    The app's tests show that nothing of theirs loads torch; those that time the window's handlers slow every window of
    their process. The kernels' have Triton's interpreter, in which everything else would crawl.

    Args:
        cores: number of processors.
        every: whether tests marked `full` run too.
    """
    marks = _EVERY_TEST if every else _QUICK_TESTS
    # A worker imports and collects everything anew, which costs more than a quick part wins by it on few cores.
    share = cores if every else max(cores // 2, 1)
    apart = [f"--ignore={path}" for path in ("tests/app", *_OF_KERNELS)]
    parts = [  # a worker more than there are cores in the longest, whose tests wait for processes
        (marks, apart, min(share + every, _MOST_WORKERS), {}),
        (f"{marks} and measured", ["tests/app"], min(share, _MOST_WORKERS), {}),
        (f"{marks} and not measured", ["tests/app"], min(share, _MOST_WORKERS), {}),
        (marks, [*_OF_KERNELS], min(share, _MOST_WORKERS), _INTERPRETED),
    ]
    rest, measured, app, kernels = (
        Check(
            ["pytest", "-m", marked, "-n", str(workers), "--dist", "worksteal", "--durations=20", *paths],
            # More threads than cores would wait for each other.
            {"OMP_NUM_THREADS": str(max(cores // (workers if every else 2), 1)), **extra},
        )
        for marked, paths, workers, extra in parts
    )
    return rest, measured, app, kernels


def run_side_by_side(lanes: Sequence[Sequence[Check]], root: Path, python: str, env: Mapping[str, str]) -> list[int]:
    """Run the lanes at the same time, the checks of a lane one after the other.

    The first lane prints to this terminal as it goes. What the others print is shown when the first lane waits or has
    ended, a check at a time.

    Returns:
        Exit codes, lane by lane.
    """
    waiting = [list(lane) for lane in lanes]
    codes: list[list[int]] = [[] for _ in lanes]
    running: dict[int, _Started] = {}
    ended: list[_Started] = []
    try:
        while running or any(waiting):
            for index, lane in enumerate(waiting):
                if index in running and running[index].process.poll() is not None:
                    started = running.pop(index)
                    codes[index].append(started.process.returncode)
                    ended.append(started)
                if index not in running and lane:
                    if index == 0:
                        _show(ended)
                    running[index] = _start(lane.pop(0), root, python, env, live=index == 0)
            if 0 not in running:
                _show(ended)
            time.sleep(_POLL_S)
    finally:  # also after Ctrl-C, which reached them all: what is left of them is ended
        for started in running.values():
            end(started.process)
        _show([*ended, *running.values()])
    return [code for lane_codes in codes for code in lane_codes]


@dataclass(frozen=True)
class _Started:
    check: Check
    process: subprocess.Popen[bytes]
    output: IO[bytes] | None


def _start(check: Check, root: Path, python: str, env: Mapping[str, str], *, live: bool) -> _Started:
    if live:
        print(f"$ {' '.join(check.arguments)}", flush=True)
    output = None if live else tempfile.TemporaryFile()  # noqa: SIM115 - closed when it is shown
    command = [python, "-m", *check.arguments]
    process = subprocess.Popen(
        command, env={**check.env, **env}, cwd=root, stdout=output, stderr=subprocess.STDOUT if output else None
    )
    return _Started(check, process, output)


def _show(ended: list[_Started]) -> None:
    """Print what checks wrote into files, and forget them."""
    while ended:
        started = ended.pop(0)
        if started.output is None:
            continue
        print(f"$ {' '.join(started.check.arguments)}", flush=True)
        with started.output as file, suppress(OSError):
            file.seek(0)
            sys.stdout.write(file.read().decode("utf-8", errors="replace"))
            sys.stdout.flush()
