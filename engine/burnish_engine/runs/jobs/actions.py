"""Actions on runs that the command line and the app share: start, command, resume."""

from __future__ import annotations

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import cannot_write
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.commands import Command, CommandName
from burnish_engine.contract.run.state import ObservedStatus
from burnish_engine.runs.control import send
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.jobs.export_job import is_exporting
from burnish_engine.runs.process import start_detached
from burnish_engine.runs.store import create_run, summarize

ALIVE: tuple[ObservedStatus, ...] = ("running", "paused", "not responding")
"""Statuses of a run whose process exists."""

_VERBS: dict[CommandName, str] = {"stop_now": "stop", "checkpoint": "save", "sample": "ask", "smaller_plan": "shrink"}


def start(recipe: Recipe, *, anyway: bool = False) -> RunPaths:
    """Create a run and train it in a detached process; it queues where the device is busy.

    Args:
        recipe: recipe with absolute paths.
        anyway: whether to train although the plan says that it does not fit.

    Raises:
        UsageError: The recipe names no training files.
        NoSpaceError: The run folder cannot be written.
    """
    if not recipe.data.files:
        raise UsageError("The recipe names no training files (data.files is empty).", "Choose a dataset.")
    paths = create_run(recipe)
    run_detached(paths, anyway=anyway)
    return paths


def run_detached(paths: RunPaths, *, anyway: bool = False) -> None:
    """Start the process that trains the run, or queues it.

    Args:
        paths: paths of the run.
        anyway: whether to train although the plan says that it does not fit.

    Raises:
        NoSpaceError: The run's log cannot be written.
    """
    arguments = ["runs", "resume", str(paths.root), "--queue", *(["--anyway"] if anyway else [])]
    try:
        start_detached(arguments, paths.stdout_log, paths.stderr_log, paths.process_end)
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
    if summary.status == "queued" and name in ("stop", "stop_now"):
        lease.dequeue(paths)
        return None
    if summary.status not in ALIVE:
        raise UsageError(
            f"The run {summary.state.run} is {summary.status}; there is nothing to {_VERBS.get(name, name)}.",
            "" if summary.status == "finished" or name.startswith("stop") else "Resume it first.",
        )
    return send(paths, name)


def require_resumable(paths: RunPaths) -> ObservedStatus:
    """Check that a run can be resumed and return its status; "paused" needs a command instead of a process.

    Raises:
        UsageError: The run is finished, or is running already.
    """
    summary = summarize(paths)
    if summary.status == "finished":
        raise UsageError(f"The run {summary.state.run} is finished; there is nothing to resume.")
    if summary.status in ALIVE and summary.status != "paused":
        raise UsageError(f"The run {summary.state.run} is {summary.status}.", "`burnish runs show` says more.")
    return summary.status


def resume(paths: RunPaths) -> None:
    """End a pause, or resume from the last checkpoint in a detached process.

    Raises:
        UsageError: The run is finished, or is running already.
        NoSpaceError: The run's log cannot be written.
    """
    if require_resumable(paths) == "paused":
        send(paths, "resume")
        return
    lease.dequeue(paths)
    run_detached(paths)


def require_deletable(paths: RunPaths) -> None:
    """Check that no process works in the run's folder.

    Raises:
        UsageError: A process works in the folder.
    """
    summary = summarize(paths)
    if summary.status in ALIVE:
        raise UsageError(f"The run {summary.state.run} is {summary.status}.", "Stop it first.")
    if is_exporting(paths):
        raise UsageError(f"The run {summary.state.run} is being exported.", "Wait for the export, or cancel it.")
