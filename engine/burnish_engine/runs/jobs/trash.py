"""The trash: deleted runs, kept for a week in a folder beside the others, from which they can be restored.

A deleted run is `.trash/<time of deletion>-<name>` in the folder that held it. Only the last part of a path is ever
taken as a name, and only what has such a name and is a run counts, so nothing else is touched.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import cannot_write, is_file, make_private, replace_with_retry
from burnish_engine.contract.paths import RunPaths, runs_dir
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.jobs.actions import require_deletable

KEPT_S = 7 * 86400.0
"""Time for which a deleted run can be restored."""
_TRASH = ".trash"
_ENTRY = re.compile(r"(\d{13,})-(.+)", re.DOTALL)  # milliseconds since the epoch, name of the run
_MOST_NAMED = 5
_PURGED = re.compile(r"purged-[0-9a-f]{16}")


def discard(paths: RunPaths) -> RunPaths:
    """Move a run to the trash, and purge what lies there for longer than a week.

    Returns:
        The former paths of the run, by which it is restored or purged.

    Raises:
        UsageError: A process works in the folder, or it is a link.
        NoSpaceError: The folder cannot be moved.
    """
    root = _whole(paths.root)
    trash = root.parent / _TRASH
    for place, remedy in ((root, "Delete the run there, then remove the link."), (trash, "Remove that link first.")):
        if place.is_symlink():  # the trash would get a link alone, or be where it is not looked for
            raise UsageError(f"{place} is a link to {place.resolve()}.", remedy)
    require_deletable(RunPaths(root))
    lease.dequeue(RunPaths(root))
    with lease.owned(RunPaths(root)):
        pass  # a process that has just begun holds the lock, and its state does not say so yet
    purge_old(root.parent)
    try:
        make_private(trash)
        # Windows does not move a folder in which a file is open: then the whole run stays, instead of half of it.
        replace_with_retry(root, trash / f"{time.time_ns() // 1_000_000}-{root.name}")
    except OSError as error:
        raise cannot_write(root, error) from error
    return RunPaths(root)


def holds(folder: str | Path) -> bool:
    """Whether a run that was in this folder is in the trash.

    Args:
        folder: former folder of the run.
    """
    root = _whole(folder)
    return any(name == root.name for _, name, _ in _entries(root.parent))


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
        raise UsageError(f"There is another {root.name} in its place, {root}.", "Move or rename that one first.")
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
    entry = _newest(_whole(folder))
    try:
        shutil.rmtree(_set_aside(entry))
    except FileNotFoundError:
        pass  # another process removes it too
    except OSError as error:
        raise cannot_write(entry, error) from error


def purge_old(folder: Path | None = None, *, now: float | None = None) -> None:
    """Delete for good what was deleted more than a week ago. What cannot be removed stays until the next time.

    Args:
        folder: folder that holds runs; by default the user's.
        now: current time, seconds since the epoch; by default the clock's.
    """
    limit = (time.time() if now is None else now) - KEPT_S
    folder = folder or runs_dir()
    for deleted, _name, entry in _entries(folder):
        if deleted < limit:
            with suppress(OSError):
                _set_aside(entry)
    for path in _contents(folder):
        if _PURGED.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _whole(folder: str | Path) -> Path:
    """Return an absolute path without "..", whose last part is the run's own name."""
    return Path(os.path.abspath(folder))  # noqa: PTH100  Path.resolve would follow a link to a run elsewhere


def _newest(root: Path) -> Path:
    entries = sorted(_entries(root.parent), reverse=True)
    found = next((entry for _, name, entry in entries if name == root.name), None)
    if found is None:
        names = list(dict.fromkeys(name for _, name, _ in entries))
        hint = f" It holds {', '.join(names[:_MOST_NAMED])}{', ...' * (len(names) > _MOST_NAMED)}." if names else ""
        raise UsageError(
            f"{root} is not in the trash.", f"Deleted runs are kept there for 7 days, unless deleted for good.{hint}"
        )
    return found


def _entries(folder: Path) -> Iterator[tuple[float, str, Path]]:
    """List (time of deletion, name, folder) of the runs in the trash of a folder; links are left out."""
    for path in _contents(folder):
        match = _ENTRY.fullmatch(path.name)
        if match and not path.is_symlink() and is_file(RunPaths(path).state):
            yield int(match[1]) / 1000, match[2], path


def _contents(folder: Path) -> list[Path]:
    """List what is in the trash of a folder; nothing where there is none or it cannot be read."""
    trash = folder / _TRASH
    try:
        return [] if trash.is_symlink() else list(trash.iterdir())
    except (OSError, ValueError):
        return []


def _set_aside(entry: Path) -> Path:
    """Rename an entry before its files are removed: what is left of an interrupted deletion cannot be restored."""
    aside = entry.with_name(f"purged-{secrets.token_hex(8)}")
    replace_with_retry(entry, aside)
    return aside
