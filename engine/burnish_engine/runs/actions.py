"""What a person does with runs, the same from the command line and from the app."""

from __future__ import annotations

import shutil

from burnish_engine.contract.commands import Command, CommandName
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import cannot_write, replace_with_retry
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.state import Standing
from burnish_engine.runs import lease
from burnish_engine.runs.control import send
from burnish_engine.runs.export_job import is_exporting
from burnish_engine.runs.process import start_detached
from burnish_engine.runs.store import create_run, summarize

ALIVE: tuple[Standing, ...] = ("running", "paused", "not responding")
"""Standings of a run whose process exists."""

_VERBS: dict[CommandName, str] = {"stop_now": "stop", "checkpoint": "save", "sample": "ask"}


def start(recipe: Recipe, *, anyway: bool = False) -> RunPaths:
    """Make a run and carry it out in a process of its own, which outlives this one; it queues where the device is busy.

    Args:
        recipe: With absolute paths.
        anyway: Train although the plan says that it does not fit.

    Raises:
        UsageError: The recipe names no training files.
        NoSpaceError: The run folder cannot be written.
    """
    if not recipe.data.files:
        raise UsageError("The recipe names no training files (data.files is empty).", "Choose a dataset.")
    paths = create_run(recipe)
    carry_out_detached(paths, anyway=anyway)
    return paths


def carry_out_detached(paths: RunPaths, *, anyway: bool = False) -> None:
    """Start the process that trains the run, or queues it.

    Args:
        paths: The run.
        anyway: Train although the plan says that it does not fit.

    Raises:
        NoSpaceError: Its log cannot be written.
    """
    arguments = ["runs", "resume", str(paths.root), "--queue", *(["--anyway"] if anyway else [])]
    try:
        start_detached(arguments, paths.stdout_log, paths.stderr_log)
    except OSError as error:
        raise cannot_write(paths.root, error) from error


def command(paths: RunPaths, name: CommandName) -> Command | None:
    """Send a command to a run. A queued run takes a stop by leaving the queue.

    Returns:
        The command that was sent; None where the run only had to leave the queue.

    Raises:
        UsageError: No process would take the command.
    """
    summary = summarize(paths)
    if summary.standing == "queued" and name in ("stop", "stop_now"):
        lease.dequeue(paths)
        return None
    if summary.standing not in ALIVE:
        raise UsageError(
            f"The run {summary.state.run} is {summary.standing}; there is nothing to {_VERBS.get(name, name)}.",
            "" if summary.standing == "finished" or name.startswith("stop") else "Resume it first.",
        )
    return send(paths, name)


def require_resumable(paths: RunPaths) -> Standing:
    """Check that a run can go on; its standing, of which "paused" needs a command instead of a process.

    Raises:
        UsageError: It is finished or going on already.
    """
    summary = summarize(paths)
    if summary.standing == "finished":
        raise UsageError(f"The run {summary.state.run} is finished; there is nothing to resume.")
    if summary.standing in ALIVE and summary.standing != "paused":
        raise UsageError(f"The run {summary.state.run} is {summary.standing}.", "`burnish runs show` says more.")
    return summary.standing


def resume(paths: RunPaths) -> None:
    """End a pause, or go on from the last checkpoint in a process of its own.

    Raises:
        UsageError: It is finished or going on already.
        NoSpaceError: Its log cannot be written.
    """
    if require_resumable(paths) == "paused":
        send(paths, "resume")
        return
    lease.dequeue(paths)
    carry_out_detached(paths)


def require_deletable(paths: RunPaths) -> None:
    """Check that no process works in the run's folder.

    Raises:
        UsageError: One does.
    """
    summary = summarize(paths)
    if summary.standing in ALIVE:
        raise UsageError(f"The run {summary.state.run} is {summary.standing}.", "Stop it first.")
    if is_exporting(paths):
        raise UsageError(f"The run {summary.state.run} is being exported.", "Wait for the export, or cancel it.")


def delete(paths: RunPaths) -> None:
    """Delete a run with all its files.

    Raises:
        UsageError: A process works in it.
        NoSpaceError: A file could not be removed.
    """
    require_deletable(paths)
    lease.dequeue(paths)
    aside = RunPaths(paths.root.with_name(f".{paths.root.name}.deleted"))
    try:
        # Windows does not move a folder in which a file is open: then the run stays as it is, instead of half of it.
        replace_with_retry(paths.root, aside.root)
        # The state goes first: what is left after an interrupted deletion is no run any more.
        aside.state.unlink(missing_ok=True)
        shutil.rmtree(aside.root)
    except OSError as error:
        raise cannot_write(paths.root, error) from error
