"""One run of a duel: a `burnish train` process in a folder of its own, begun, gone on with, waited for, stopped.

The process outlives the duel's, so that a duel that was killed finds its run where it was, done or still going on.
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
from burnish_engine.contract.state import RunStateFile, Standing
from burnish_engine.runs import actions, lease
from burnish_engine.runs.process import is_alive, start_detached
from burnish_engine.runs.store import read_state, summarize

POLL_S, _QUEUE_POLL_S = 0.1, 1.0
_LOG_LINES = 5
_BEFORE_STEPS = ("", "loading", "preparing", "dry_run")
"""Phases in which a run does not read commands yet, and has nothing that is not saved."""

Watch = Callable[[RunStateFile, Standing], None]


def carry_out(paths: RunPaths, recipe: Path, log: Path, watch: Watch) -> None:
    """Bring a run to its end: start it, go on with it, or wait for the process that already does.

    Args:
        paths: Its folder.
        recipe: What it trains.
        log: What its process prints goes there.
        watch: Told the run's state now and then.

    Raises:
        KeyboardInterrupt: Passed on; the run was stopped and saved.
        StoppedError: Somebody stopped the run.
        BurnishError: It failed otherwise than by diverging.
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
    """Let a run save and end, and wait for that; a second interrupt ends it at once.

    Args:
        paths: Its folder.
        pid: Of the process that we started for it; None where we found one.
    """
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
        for owner in {read_state(paths).pid if paths.state.is_file() else None, pid} - {None}:
            _kill(int(owner or 0), getattr(signal, "SIGKILL", signal.SIGTERM))
        raise
    except BurnishError:
        return  # it has ended meanwhile


def discard_checkpoints(paths: RunPaths) -> None:
    """Delete what only a resume would need; what was trained stays."""
    shutil.rmtree(paths.checkpoints, ignore_errors=True)


def _begin(paths: RunPaths, recipe: Path, log: Path) -> int | None:
    """The pid of a process that carries the run out; None where one already does."""
    if paths.state.is_file():
        summary = summarize(paths)
        if summary.standing in (*actions.ALIVE, "queued"):
            return None
        command = ["runs", "resume", str(paths.root)]
    else:
        command = ["train", str(recipe), "--run-dir", str(paths.root), "--keep-refused"]
    try:
        return start_detached([*command, "--queue"], log, log)
    except OSError as error:
        raise cannot_write(log, error) from error


def _wait(paths: RunPaths, pid: int | None, log: Path, watch: Watch) -> None:
    """Until the run is over, by whichever process."""
    while True:
        gone = pid is not None and _reaped(pid)
        if paths.state.is_file():
            summary = summarize(paths)
            watch(summary.state, summary.standing)
            if summary.standing == "queued":
                lease.start_waiting()
                time.sleep(_QUEUE_POLL_S)
            elif summary.standing not in (*actions.ALIVE, "created") and (gone or pid is None):
                break
        elif gone:
            raise SetupError(f"A run of the duel could not be started: {_last_words(log)}.", f"Its log is {log}.")
        time.sleep(POLL_S)
    _wait_for_end(paths, pid)


def _wait_for_end(paths: RunPaths, pid: int | None) -> None:
    """Until the run's processes are gone, and with them their memory and their hold of the device."""
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


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_over(paths: RunPaths) -> bool:
    """Whether there is nothing left to carry out: finished, or diverged."""
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
    if error is None:
        raise SetupError(
            f"The run {name} of this duel ended without a word ({state.message or _last_words(log)}).",
            f"Its log is {log}.",
        )
    raise error(f"The run {name} of this duel failed: {state.message}")


def _last_words(log: Path) -> str:
    try:
        lines = [
            line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()
        ]
    except OSError:
        lines = []
    return " ".join(lines[-_LOG_LINES:]) or "it printed nothing"
