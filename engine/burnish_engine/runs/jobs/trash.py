"""The trash: deleted runs, kept for a week in a folder beside the others, from which they can be restored.

A deleted run is `.trash/<time of deletion>-<name>` in the folder that held it. Only the last part of a path is ever
taken as a name, so nothing outside of that folder is touched.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import cannot_write, make_private, replace_with_retry
from burnish_engine.contract.paths import RunPaths, runs_dir
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.jobs.actions import require_deletable

KEPT_S = 7 * 86400.0
"""Time for which a deleted run can be restored."""
_TRASH = ".trash"
_ENTRY = re.compile(r"(\d{13,})-(.+)", re.DOTALL)  # milliseconds since the epoch, name of the run


def discard(paths: RunPaths) -> None:
    """Move a run to the trash, and purge what lies there for longer than a week.

    Raises:
        UsageError: A process works in the folder.
        NoSpaceError: The folder cannot be moved.
    """
    root = _whole(paths.root)
    require_deletable(RunPaths(root))
    lease.dequeue(RunPaths(root))
    with lease.owned(RunPaths(root)):
        pass  # a process that has just begun holds the lock, and its state does not say so yet
    purge_old(root.parent)
    try:
        make_private(root.parent / _TRASH)
        # Windows does not move a folder in which a file is open: then the whole run stays, instead of half of it.
        replace_with_retry(root, root.parent / _TRASH / f"{time.time_ns() // 1_000_000}-{root.name}")
    except OSError as error:
        raise cannot_write(root, error) from error


def restore(folder: str | Path) -> RunPaths:
    """Move a run from the trash back to where it was; of several with this name, the one deleted last.

    Args:
        folder: former folder of the run.

    Raises:
        UsageError: The run is not in the trash, or another run has its place.
        NoSpaceError: The folder cannot be moved.
    """
    root = _whole(folder)
    entry = _newest(root)
    if root.exists():
        raise UsageError(f"There is another {root.name} in its place.", "Move or rename that one first.")
    try:
        replace_with_retry(entry, root)
    except OSError as error:
        raise cannot_write(root, error) from error
    return RunPaths(root)


def purge(folder: str | Path) -> None:
    """Delete a run for good that is in the trash.

    Args:
        folder: former folder of the run.

    Raises:
        UsageError: The run is not in the trash.
        NoSpaceError: A file cannot be removed.
    """
    _remove(_newest(_whole(folder)))


def purge_old(folder: Path | None = None, *, now: float | None = None) -> None:
    """Delete for good what was deleted more than a week ago. What cannot be removed stays until the next time.

    Args:
        folder: folder that holds runs; by default the user's.
        now: current time, seconds since the epoch; by default the clock's.
    """
    limit = (time.time() if now is None else now) - KEPT_S
    for deleted, _name, entry in _entries(folder or runs_dir()):
        if deleted < limit:
            _empty(entry)
            shutil.rmtree(entry, ignore_errors=True)


def _whole(folder: str | Path) -> Path:
    """Return an absolute path without "..", whose last part is the run's own name."""
    return Path(os.path.abspath(folder))  # noqa: PTH100  Path.resolve would follow a link to a run elsewhere


def _newest(root: Path) -> Path:
    found = [(deleted, entry) for deleted, name, entry in _entries(root.parent) if name == root.name]
    if not found:
        raise UsageError(
            f"{root.name} is not in the trash.", "Deleted runs are kept there for 7 days, unless deleted for good."
        )
    return max(found)[1]


def _entries(folder: Path) -> Iterator[tuple[float, str, Path]]:
    """List (time of deletion, name, folder) of what is in the trash of a folder; links are left out."""
    trash = folder / _TRASH
    for entry in trash.iterdir() if trash.is_dir() and not trash.is_symlink() else ():
        match = _ENTRY.fullmatch(entry.name)
        if match and not entry.is_symlink() and entry.is_dir():
            yield int(match[1]) / 1000, match[2], entry


def _remove(entry: Path) -> None:
    try:
        _empty(entry)
        shutil.rmtree(entry)
    except OSError as error:
        raise cannot_write(entry, error) from error


def _empty(entry: Path) -> None:
    """Remove the state first: the remains of an interrupted deletion are no run any more."""
    RunPaths(entry).state.unlink(missing_ok=True)
