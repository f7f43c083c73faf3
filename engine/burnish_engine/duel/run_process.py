"""Run one run of a duel as a `burnish train` process in its own folder: start, resume, wait and stop.

The process outlives the duel's, so that a duel that was killed finds its run in its folder, ended or still running.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from burnish_engine.contract.errors import BurnishError, ExitCode, SetupError, StoppedError
from burnish_engine.contract.files import cannot_write
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.process_end import end_text
from burnish_engine.contract.run.state import ObservedStatus, RunStateFile
from burnish_engine.runs.jobs import actions, lease
from burnish_engine.runs.process import is_alive, start_detached
from burnish_engine.runs.store import read_state, summarize

POLL_S, _QUEUE_POLL_S = 0.1, 1.0
_LOG_LINES = 5
_BEFORE_STEPS = ("", "loading", "preparing", "weights", "checking", "dry_run")
"""Phases in which a run does not read commands yet, and has nothing to save."""

StatusListener = Callable[[RunStateFile, ObservedStatus], None]


def run_one(paths: RunPaths, recipe: Path, log: Path, watch: StatusListener) -> None:
    """Bring a run to its end: start it, resume it, or wait for the process that already runs it.

    Args:
        paths: paths of the run.
        recipe: file of the run's recipe.
        log: file for the process's output.
        watch: callback given the run's state from time to time.

    Raises:
        KeyboardInterrupt: The person interrupted; the run was stopped and saved.
        StoppedError: Somebody stopped the run.
        BurnishError: The run failed other than by diverging.
    """
    if paths.root.exists() and not paths.state.is_file():
        shutil.rmtree(paths.root)  # a process was killed while it made the folder
    if not _is_over(paths):
        pid = _begin(paths, recipe, log)
        try:
            _wait(paths, pid, log, watch)
        except KeyboardInterrupt:
            _stop(paths, pid)
            raise
    _refuse_failure(paths, log)


def _stop(paths: RunPaths, pid: int | None) -> None:
    """Let a run save and end, and wait for it; a second interrupt ends it at once."""
    try:
        state = read_state(paths) if paths.state.is_file() else None
        owner = state.pid if state and is_alive(state.pid, state.process_created) else pid
        reads = state and (state.status == "queued" or (owner == state.pid and state.phase not in _BEFORE_STEPS))
        if reads:
            actions.command(paths, "stop")
        elif owner is not None and (owner != pid or not _reaped(owner)):
            _kill(owner, signal.SIGTERM)
        _wait_for_end(paths, pid)
    except KeyboardInterrupt:
        for owner in {read_state(paths).pid if paths.state.is_file() else None, pid, *_children(pid)} - {None}:
            _kill(int(owner or 0), getattr(signal, "SIGKILL", signal.SIGTERM))
        raise
    except BurnishError:
        return  # the run has ended meanwhile


def discard_checkpoints(paths: RunPaths) -> None:
    """Delete the checkpoints, which only a resume would need; the trained result stays."""
    shutil.rmtree(paths.checkpoints, ignore_errors=True)


def _begin(paths: RunPaths, recipe: Path, log: Path) -> int | None:
    """Start a process that makes the run and return its pid; None where one already runs."""
    if paths.state.is_file():
        summary = summarize(paths)
        if summary.status in (*actions.ALIVE, "queued"):
            return None
        command = ["runs", "resume", str(paths.root)]
    else:
        command = ["train", str(recipe), "--run-dir", str(paths.root), "--keep-refused"]
    try:
        return start_detached([*command, "--queue"], log, log, paths.process_end)
    except OSError as error:
        raise cannot_write(log, error) from error


def _wait(paths: RunPaths, pid: int | None, log: Path, watch: StatusListener) -> None:
    """Wait until the run is over, in whichever process."""
    while True:
        gone = pid is not None and _reaped(pid)
        if paths.state.is_file():
            summary = summarize(paths)
            watch(summary.state, summary.status)
            if summary.status == "queued":
                lease.start_waiting()
                time.sleep(_QUEUE_POLL_S)
            elif summary.status not in (*actions.ALIVE, "created") and (gone or pid is None):
                break
        elif gone:
            raise SetupError(f"A run of the duel could not be started: {_log_tail(log)}.", f"Its log is {log}.")
        time.sleep(POLL_S)
    _wait_for_end(paths, pid)


def _wait_for_end(paths: RunPaths, pid: int | None) -> None:
    """Wait until the run's processes are gone, and with them their memory and their lease of the device."""
    while True:
        state = read_state(paths) if paths.state.is_file() else None
        alive = state is not None and is_alive(state.pid, state.process_created)
        if not alive and (pid is None or _reaped(pid)):
            return
        time.sleep(POLL_S)


def _reaped(pid: int) -> bool:
    """Whether a process that we started is gone."""
    if os.name == "nt":
        import psutil

        return not psutil.pid_exists(pid)
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _children(pid: int | None) -> list[int]:
    """List the children of a process that we started: the run is its child, and it only records how the run ends."""
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children()] if pid is not None else []
    except psutil.Error:
        return []


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_over(paths: RunPaths) -> bool:
    """Whether the run is finished or has diverged."""
    if not paths.state.is_file():
        return False
    state = summarize(paths).state
    return state.status == "finished" or (state.status == "failed" and state.exit_code == ExitCode.DIVERGED)


def _refuse_failure(paths: RunPaths, log: Path) -> None:
    if _is_over(paths):
        return
    state = read_state(paths)
    name = paths.root.name
    if state.status in ("stopped", "suspended"):
        raise StoppedError(f"The run {name} of this duel was stopped at step {state.step}.")
    error = next(
        (kind for kind in BurnishError.__subclasses__() if kind.exit_code == state.exit_code and state.message), None
    )
    if error is None and (end := summarize(paths).process_end) is not None:
        raise SetupError(f"The run {name} of this duel was interrupted. {end_text(end)}", f"Its log is {log}.")
    if error is None:
        raise SetupError(
            f"The run {name} of this duel ended without a word ({state.message or _log_tail(log)}).",
            f"Its log is {log}.",
        )
    raise error(f"The run {name} of this duel failed: {state.message}")


def _log_tail(log: Path) -> str:
    try:
        lines = [
            line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()
        ]
    except OSError:
        lines = []
    return " ".join(lines[-_LOG_LINES:]) or "it printed nothing"
