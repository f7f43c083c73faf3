"""Keeps the queue of downloads: one small file for each, so that it outlives every process.

Processes of their own (`hub.download_worker`) do the work, at most two at a time. They end when nothing is left for
them and are started again by whoever asks how the downloads are doing, so a download continues after a crash or a
restart. An access token is handed to one process in its environment and never written: where that process ended, the
download waits until a person gives the token again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout
from pydantic import ValidationError

from burnish_engine.contract.errors import BurnishError, SetupError, StoppedError, UsageError
from burnish_engine.contract.facts.downloads import Download
from burnish_engine.contract.files import cannot_write, make_private, read_with_retry, write_atomic
from burnish_engine.contract.paths import downloads_dir, fetched_model_dir, is_hub_name
from burnish_engine.hub.fetch import check_name, discard
from burnish_engine.runs.process import identity, is_alive, start_detached

TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105  the name of the variable that huggingface_hub reads too
AT_A_TIME = 2
"""Downloads that run at the same time: more share the same line and end later."""
_MOST = 100  # entries: a window needs a handful
_MOST_LOSSES = 3
_LONGEST_LOG = 2**20  # bytes; longer ones are begun anew
_LOCK_S = 10.0
_START_S = 10.0  # a process needs a moment until it holds its place
_last_started: tuple[float, int, float] | None = None  # moment, pid, its creation


def list_downloads() -> list[Download]:
    """List the downloads in the order in which they were asked for; unreadable entries are left out."""
    try:
        files = sorted(downloads_dir().glob("*.json"))[:_MOST]
    except OSError:
        return []
    found = [entry for entry in map(_read, files) if entry is not None]
    return sorted(found, key=lambda entry: (entry.added, entry.name))


def add_download(name: str, token: str = "") -> None:
    """Put a model into the queue, or continue with its download.

    Args:
        name: name of the model, such as "Qwen/Qwen3-0.6B".
        token: access token, for gated models; empty: none but what the environment has.

    Raises:
        UsageError: The name is no model's name, or the queue is full.
        NoSpaceError: The queue cannot be written.
    """
    check_name(name)
    with _locked():
        known = _read(_file(name))
        if known is None and len(list_downloads()) >= _MOST:
            raise UsageError(f"{_MOST} downloads are in the queue already.", "Remove some of them.")
        if known is None or known.status == "finished":
            known = Download(name=name, added=time.time())
        if known.status != "running":
            gated = known.gated or bool(token)
            queued = _write(known, status="queued", gated=gated, what="", message="", remedy="", losses=0,
                            bytes_per_s=0.0, pid=None, process_created=None)  # fmt: skip
            if token:  # it takes nothing before this lock is free
                pid, created = _start_worker(token)
                _write(queued, pid=pid, process_created=created)
    start_waiting()


def pause_download(name: str) -> None:
    """Stop a download; what it has stays.

    Raises:
        UsageError: The model is not in the queue.
    """
    with _locked():
        entry = _known(name)
        if entry.status in ("queued", "running"):
            _write(entry, status="paused", bytes_per_s=0.0, what="")


def cancel_download(name: str) -> None:
    """Take a download out of the queue and delete what it has of an unfinished model.

    Raises:
        UsageError: The model is not in the queue.
    """
    with _locked():
        entry = _known(name)
        _file(name).unlink(missing_ok=True)
    if entry.status != "finished":
        with suppress(StoppedError):  # another program fetches the same model, and needs what is there
            discard(name)  # waits until the process that is at it has noticed


def start_waiting() -> None:
    """Mend what dead processes left, and start a process where a download waits and nobody is there for it."""
    global _last_started  # noqa: PLW0603  whichever request asks for a worker, one at a time is on its way
    with _locked():
        for entry in list_downloads():
            _mend(entry)
        waits = next_download(with_token=has_token()) is not None
    if waits and not _is_on_its_way() and _has_free_slot():
        _last_started = (time.monotonic(), *_start_worker(""))


def _is_on_its_way() -> bool:
    """Whether a process was started so lately that it may not hold its place yet."""
    if _last_started is None:
        return False
    moment, pid, created = _last_started
    works = any(entry.status == "running" and entry.pid == pid for entry in list_downloads())
    return not works and time.monotonic() - moment < _START_S and is_alive(pid, created)


def next_download(*, with_token: bool) -> Download | None:
    """Return the download that a process takes next; None where there is none for it.

    Args:
        with_token: whether the process has an access token; such a process takes gated models first.
    """
    queued = [entry for entry in list_downloads() if entry.status == "queued"]
    gated = [entry for entry in queued if entry.gated]
    free = [entry for entry in queued if not entry.gated]
    return next(iter([*gated, *free] if with_token else free), None)


def take_next() -> Download | None:
    """Mark the next download as this process's and return it; None where there is none for it."""
    with _locked():
        entry = next_download(with_token=has_token())
        if entry is None:
            return None
        pid, created = identity(os.getpid())
        return _write(entry, status="running", pid=pid, process_created=created, message="", remedy="")


def update_own(name: str, **values: Any) -> bool:
    """Write what this process knows about its download, and tell whether it shall continue.

    Args:
        name: name of the model.
        **values: fields of `Download` and their new values.
    """
    with _locked():
        entry = _read(_file(name))
        if entry is None or entry.status != "running" or entry.pid != os.getpid():
            return False
        _write(entry, **values)
        return True


def is_listed(name: str) -> bool:
    """Whether a model is in the queue."""
    return _file(name).is_file()


def slot_locks() -> list[FileLock]:
    """Return the locks of which a working process holds one, until it ends in whatever way."""
    make_private(downloads_dir())
    return [FileLock(str(downloads_dir() / f"place-{number}.lock")) for number in range(AT_A_TIME)]


def download_log() -> Path:
    """Return the file with what the processes said."""
    return downloads_dir() / "downloads.log"


def has_token() -> bool:
    """Whether this process has an access token."""
    return bool(os.environ.get(TOKEN_VARIABLE, "").strip())


def _mend(entry: Download) -> None:
    """Queue a download again whose process died; one that needs a token waits for a person."""
    owned = entry.status == "running" or (entry.status == "queued" and entry.gated)
    if not owned or is_alive(entry.pid, entry.process_created):
        return
    losses = entry.losses + (entry.status == "running")
    if entry.gated and not has_token():
        _write(entry, status="paused", bytes_per_s=0.0, what="", message="It needs its access token again.",
               remedy="Give the token, then continue: it is never stored.")  # fmt: skip
    elif losses >= _MOST_LOSSES:
        _write(entry, status="failed", losses=losses, bytes_per_s=0.0,
               message=f"Its process ended {losses} times without a word.",
               remedy=f"What it last said is in {download_log()}.")  # fmt: skip
    elif entry.status == "running":
        _write(entry, status="queued", losses=losses, bytes_per_s=0.0, what="", pid=None, process_created=None)


def _has_free_slot() -> bool:
    for lock in slot_locks():
        try:
            with lock.acquire(timeout=0):
                return True
        except Timeout:
            continue
    return False


def _start_worker(token: str) -> tuple[int, float]:
    """Start a process that works through the queue; a token is seen in its environment only."""
    folder, log = downloads_dir(), download_log()
    try:
        make_private(folder)
        with suppress(OSError):  # it is not there, or on Windows another process writes into it
            if log.stat().st_size > _LONGEST_LOG:
                log.unlink()
        own: Mapping[str, str] = {TOKEN_VARIABLE: token} if token else {}
        pid = start_detached(["models", "downloads", "--work"], log, log, environment=own)
        return identity(pid)
    except psutil.NoSuchProcess:
        raise SetupError("The process for downloads ended at once.", f"See {log}.") from None
    except OSError as error:
        raise cannot_write(folder, error) from error


def _file(name: str) -> Path:
    return downloads_dir() / f"{fetched_model_dir(name).name}.json"


def _known(name: str) -> Download:
    entry = _read(_file(name)) if is_hub_name(name) else None
    if entry is None:
        raise UsageError(f"{name} is not among the downloads.", "Look at the list again.")
    return entry


def _read(file: Path) -> Download | None:
    try:
        return Download.model_validate_json(read_with_retry(file))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None


def _write(entry: Download, **values: Any) -> Download:
    changed = entry.model_copy(update=values)
    write_atomic(_file(entry.name), changed.model_dump_json(indent=1) + "\n", durable=False)
    return changed


@contextmanager
def _locked() -> Iterator[None]:
    """Hold the queue: everything that reads and then writes does so inside."""
    try:
        make_private(downloads_dir())
        lock = FileLock(str(downloads_dir() / "queue.lock"), timeout=_LOCK_S)
        with lock:
            yield
    except Timeout:
        raise SetupError("The queue of downloads is held by another process.", "Try again.") from None
    except OSError as error:
        raise error if isinstance(error, BurnishError) else cannot_write(downloads_dir(), error) from error
