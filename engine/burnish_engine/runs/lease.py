"""One run a device: leases, and the queue of runs that wait for one.

A lease is a small file named after the device, under one lock for all of them. It is void when its owner (pid and
creation time) is gone, so a crash never blocks a device. The process that ends starts the next queued run.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from burnish_engine.contract.errors import LeasedError
from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.paths import RunPaths, user_data_dir
from burnish_engine.runs.process import is_alive, own_identity, start_detached
from burnish_engine.runs.store import open_run, read_state, write_state


@dataclass(frozen=True)
class QueueEntry:
    """A run that waits for a device."""

    file: Path
    run: Path
    device: str


def acquire(device: str, run: RunPaths, *, force: bool = False) -> None:
    """Take the device for this process.

    Args:
        device: Such as "cuda-0" or "cpu".
        run: The run folder that will use it.
        force: Take it even where another run holds it.

    Raises:
        LeasedError: Another live process holds it.
    """
    with _lock():
        holder = _holder(device)
        pid, created = own_identity()
        if holder and holder["pid"] != pid and not force:
            raise LeasedError(
                f"The device {device} is in use by the run {holder['run']} (process {holder['pid']}).",
                "Add --queue to start when it is free, --force to share it, or stop that run first.",
            )
        record = {"pid": pid, "created": created, "run": str(run.root), "since": time.time()}
        write_atomic(_lease_file(device), json.dumps(record) + "\n")


def release(device: str) -> None:
    """Give the device back if this process holds it."""
    with _lock():
        holder = _holder(device)
        if holder and holder["pid"] == own_identity()[0]:
            _lease_file(device).unlink(missing_ok=True)


def holder_of(device: str) -> str | None:
    """The run folder that holds the device, or None."""
    with _lock():
        holder = _holder(device)
    return str(holder["run"]) if holder else None


def enqueue(run: RunPaths, device: str) -> None:
    """Put a run at the end of the queue."""
    folder = _folder("queue")
    with _lock():
        write_state(run, read_state(run).model_copy(update={"status": "queued", "device": device}))
        entry = {"run": str(run.root), "device": device, "since": time.time()}
        write_atomic(folder / f"{time.time_ns():020d}.json", json.dumps(entry) + "\n")


def queue() -> list[QueueEntry]:
    """Waiting runs, first to start first. Damaged entries and deleted runs are left out."""
    entries = []
    for file in sorted(_folder("queue").glob("*.json")):
        with suppress(json.JSONDecodeError, OSError, KeyError):
            raw = json.loads(file.read_text(encoding="utf-8"))
            if RunPaths(Path(raw["run"])).state.is_file():
                entries.append(QueueEntry(file, Path(raw["run"]), str(raw["device"])))
    return entries


def dequeue(run: RunPaths) -> bool:
    """Take a run out of the queue; False where it was not in it."""
    with _lock():
        mine = [entry for entry in queue() if entry.run == run.root]
        for entry in mine:
            entry.file.unlink(missing_ok=True)
    return bool(mine)


def start_waiting() -> list[Path]:
    """Start, detached, the first waiting run of every device that is free.

    Called by the engine process that ends, and whenever somebody looks at the queue, so that a crash of the process
    that held the device does not strand the queue.

    Returns:
        The run folders that were started.
    """
    started: list[Path] = []
    with _lock():
        taken: set[str] = set()
        for entry in queue():
            if entry.device in taken or _holder(entry.device):
                continue
            taken.add(entry.device)
            entry.file.unlink(missing_ok=True)
            run = open_run(entry.run)
            pid = start_detached(["runs", "resume", str(run.root), "--wait"], run.stdout_log, run.stderr_log)
            _reserve(entry.device, run, pid)
            started.append(run.root)
    return started


def _reserve(device: str, run: RunPaths, pid: int) -> None:
    """Hold the device for a process that was just started, until it takes the lease itself."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        record = {"pid": pid, "created": psutil.Process(pid).create_time(), "run": str(run.root), "since": time.time()}
        write_atomic(_lease_file(device), json.dumps(record) + "\n")


def _holder(device: str) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(_lease_file(device).read_text(encoding="utf-8"))
        return record if is_alive(record["pid"], record["created"]) else None
    except (OSError, json.JSONDecodeError, KeyError):
        return None


def _lease_file(device: str) -> Path:
    return _folder("leases") / f"{device}.json"


def _folder(name: str) -> Path:
    folder = user_data_dir() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _lock() -> FileLock:
    return FileLock(str(_folder("leases") / "all.lock"), timeout=30)
