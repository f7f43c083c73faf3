"""Give each device to one run at a time: leases, and the queue of runs that wait for one.

A lease is a small file named after the device; one lock guards all of them. It is void when its owner (pid and creation
time) is gone, so a crash never blocks a device. The process that ends starts the next queued run, or where it was
killed, its keeper.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from burnish_engine.contract.errors import BurnishError, ExitCode, LeasedError, UsageError
from burnish_engine.contract.files import cannot_write, make_private, read_plain, write_atomic
from burnish_engine.contract.paths import RunPaths, user_data_dir
from burnish_engine.runs.process import identity, is_alive, own_identity, start_detached
from burnish_engine.runs.store import open_run, read_state, write_state


@dataclass(frozen=True)
class QueueEntry:
    """A run that waits for a device; `anyway` and `gpus` are those of `enqueue`."""

    file: Path
    run: Path
    device: str
    anyway: bool = False
    gpus: int = 0


@contextmanager
def owned(run: RunPaths) -> Iterator[None]:
    """Hold the run's lock inside the context, so that only this process trains it.

    Raises:
        UsageError: Another process holds it.
        NoSpaceError: The run folder cannot be written.
    """
    lock = FileLock(str(run.root / ".owner.lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(
            f"The run {run.root.name} is already being carried out by another process.",
            "`burnish runs show` says how far it is.",
        ) from None
    except OSError as error:
        raise cannot_write(run.root, error) from error
    try:
        yield
    finally:
        lock.release()


def acquire(device: str, run: RunPaths, *, force: bool = False) -> None:
    """Take the device for this process.

    Args:
        device: name of the device, such as "cuda-0" or "cpu".
        run: folder of the run that will use it.
        force: whether to use it beside another run; that run stays the holder.

    Raises:
        LeasedError: Another live process holds it.
    """
    with _lock():
        holder = _holder(device)
        mine = holder is None or holder["pid"] == own_identity()[0] or _reserved_for(holder, run)
        if not mine and force:
            return
        if holder and not mine:
            raise LeasedError(
                f"The device {device} is in use by the run {holder['run']} (process {holder['pid']}).",
                "Add --queue to start when it is free, --force to share it, or stop that run first.",
            )
        _hold(device, run, *own_identity())


def release(run: RunPaths) -> None:
    """Release every device that this process holds, or that is reserved, for the run."""
    with _lock():
        for file in _folder("leases").glob("*.json"):
            holder = _holder(file.stem)
            if (
                holder
                and holder["run"] == str(run.root)
                and (holder["pid"] == own_identity()[0] or _reserved_for(holder, run))
            ):
                file.unlink(missing_ok=True)


def holder_of(device: str) -> str | None:
    """Find the run folder that holds the device, or None."""
    with _lock():
        holder = _holder(device)
    return str(holder["run"]) if holder else None


def holders() -> list[tuple[int, Path]]:
    """List (process id, run folder) of the live runs that hold a device. Takes no lock, since it is asked often."""
    found = []
    for file in _folder("leases").glob("*.json"):
        holder = _holder(file.stem)
        if holder:
            found.append((int(holder["pid"]), Path(holder["run"])))
    return found


def enqueue(run: RunPaths, device: str, *, anyway: bool = False, gpus: int = 0) -> None:
    """Put a run at the end of the queue.

    Args:
        run: folder of the run.
        device: name of the device it waits for, such as "cuda-0" or "cpu".
        anyway: whether to start it although the plan says that it does not fit.
        gpus: number of GPUs that share it; 0: as its recipe says.
    """
    folder = _folder("queue")
    with _lock():
        write_state(run, read_state(run).model_copy(update={"status": "queued", "device": device}))
        entry = {"run": str(run.root), "device": device, "anyway": anyway, "gpus": gpus, "since": time.time()}
        write_atomic(folder / f"{time.time_ns():020d}.json", json.dumps(entry) + "\n")


def queue() -> list[QueueEntry]:
    """List waiting runs, first to start first, without damaged entries and deleted runs."""
    entries = []
    for file in sorted(_folder("queue").glob("*.json")):
        with suppress(ValueError, TypeError, OSError, KeyError):
            raw = json.loads(read_plain(file))
            if RunPaths(Path(raw["run"])).state.is_file():
                anyway, gpus = bool(raw.get("anyway")), int(raw.get("gpus", 0))
                entries.append(QueueEntry(file, Path(raw["run"]), str(raw["device"]), anyway, gpus))
    return entries


def dequeue(run: RunPaths) -> bool:
    """Remove a run from the queue; return False where it was not queued."""
    with _lock():
        mine = [entry for entry in queue() if entry.run == run.root]
        for entry in mine:
            entry.file.unlink(missing_ok=True)
        state = read_state(run)
        if mine and state.status == "queued":
            write_state(run, state.model_copy(update={"status": "stopped"}))
    return bool(mine)


def start_waiting() -> list[Path]:
    """Start, detached, the first waiting run of every device that is free. Never raises.

    The engine process that ends calls it, and every command that looks at the queue, so that a crash of the process
    that held the device does not strand the queue. A queued run that cannot start is marked failed and skipped.

    Returns:
        Folders of the runs that were started.
    """
    started: list[Path] = []
    with suppress(Timeout, OSError, BurnishError), _lock():
        for entry in queue():
            if _holder(entry.device) is None:
                pid = _start(entry)
                entry.file.unlink(missing_ok=True)
                if pid is not None:
                    with suppress(psutil.NoSuchProcess):
                        _hold(entry.device, RunPaths(entry.run), *identity(pid), reserved=True)
                    started.append(entry.run)
    return started


def _start(entry: QueueEntry) -> int | None:
    run = RunPaths(entry.run)
    try:
        open_run(entry.run)
        arguments = ["runs", "resume", str(run.root), "--wait", *(["--anyway"] if entry.anyway else [])]
        arguments += ["--gpus", str(entry.gpus)] if entry.gpus else []
        return start_detached(arguments, run.stdout_log, run.stderr_log, run.process_end)
    except (BurnishError, OSError) as error:
        with suppress(BurnishError, OSError):
            failed = {
                "status": "failed",
                "exit_code": int(ExitCode.BUG),
                "message": f"It could not be started: {error}",
            }
            write_state(run, read_state(run).model_copy(update=failed))
        return None


def _hold(device: str, run: RunPaths, pid: int, created: float, *, reserved: bool = False) -> None:
    """Write the lease. A reserved one is for a process that was just started, until it takes the lease itself."""
    record = {"pid": pid, "created": created, "run": str(run.root), "reserved": reserved, "since": time.time()}
    write_atomic(_lease_file(device), json.dumps(record) + "\n")


def _reserved_for(holder: dict[str, Any], run: RunPaths) -> bool:
    return bool(holder.get("reserved")) and holder["run"] == str(run.root)


def _holder(device: str) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(read_plain(_lease_file(device)))
        return record if is_alive(record["pid"], record["created"]) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _lease_file(device: str) -> Path:
    return _folder("leases") / f"{device}.json"


def _folder(name: str) -> Path:
    folder = user_data_dir() / name
    try:
        make_private(folder)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return folder


def _lock() -> FileLock:
    return FileLock(str(_folder("leases") / "all.lock"), timeout=30)
